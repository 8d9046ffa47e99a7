"""Autoencoders: one module for each architecture, whatever model its latents come from."""
