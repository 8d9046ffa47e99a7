"""Kandinsky 5, videos from text: a flow transformer that reads Qwen2.5-VL and CLIP."""
