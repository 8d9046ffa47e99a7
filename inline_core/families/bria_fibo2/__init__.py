"""Bria FIBO 2: a flow transformer that reads structured captions, and edits, with Qwen3-VL."""
