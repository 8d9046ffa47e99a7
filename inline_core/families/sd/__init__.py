"""Stable Diffusion 1.5 and XL: a U-Net that predicts noise and reads its prompts with CLIP."""
