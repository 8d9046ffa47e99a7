"""Stable Diffusion 3 and 3.5: joint blocks for picture and text, three text encoders."""
