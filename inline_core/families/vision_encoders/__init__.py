"""Vision encoders: what a model is told of a picture beside its latents."""
