"""Krea 2, RAW and Turbo: a flow transformer that reads layers of Qwen3-VL."""
