"""Ideogram 4: a flow transformer that reads layers of Qwen3-VL, guided by a model without words."""
