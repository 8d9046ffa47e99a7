"""Devices and memory: the one owner of placement."""
