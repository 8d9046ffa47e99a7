"""Qwen-Image, Qwen-Image-Edit and Edit-Plus: a flow transformer that reads Qwen2.5-VL."""
