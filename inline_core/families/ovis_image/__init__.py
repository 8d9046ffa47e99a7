"""Ovis-Image: a flow transformer that reads its prompts with Qwen3."""
