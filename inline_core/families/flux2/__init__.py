"""FLUX.2 klein."""
