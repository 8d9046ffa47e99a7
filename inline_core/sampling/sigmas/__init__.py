"""Sigmas: the tables of noise levels models were trained on, and the ways to walk down them.

All of it is pure arithmetic on floats.  Names and values are ComfyUI's, checked against test
vectors; where a formula was published, the place is named.
"""
