"""Lumina-Image 2.0: a flow transformer that reads its prompts with Gemma 2."""
