"""LongCat-Image and LongCat-Image-Edit: a flow transformer that reads Qwen2.5-VL."""
