"""Chroma: FLUX.1's blocks with one small network for all modulation, and T5 alone."""
