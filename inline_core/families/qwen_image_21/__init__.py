"""Qwen-Image 2.1: a block-causal flow transformer that reads Qwen3-VL; its pictures have alpha."""
