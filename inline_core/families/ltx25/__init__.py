"""LTX-2.5: LTX-2 with another text encoder, and a diffusion model that decodes its videos."""
