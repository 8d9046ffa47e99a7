"""The latent spaces of the KL VAEs of pictures, without torch.

Scaling and shift are from the published configs.  The first two have the same shapes, and so have
the last two: only names tell their files apart.
"""

from __future__ import annotations

from typing import Final

from inline_core.sampling.family import LatentSpace

FLUX: Final = LatentSpace(
    "flux", channels=16, factor=8, scaling=0.3611, shift=0.1159, words=("ae", "flux", "taef1")
)
SD3: Final = LatentSpace(
    "sd3", channels=16, factor=8, scaling=1.5305, shift=0.0609, words=("sd3", "taesd3")
)
# Patches of 2 x 2 latents of FLUX.2's VAE, normalised by the statistics in its file.
FLUX_2: Final = LatentSpace("flux2", channels=128, factor=16)
FLUX_2_VAE_CHANNELS: Final = 32
SD15: Final = LatentSpace(
    "sd15",
    channels=4,
    factor=8,
    scaling=0.18215,
    words=("sd15", "sd1", "840000", "560000", "vae-ft-mse", "vae-ft-ema", "taesd"),
)
SDXL: Final = LatentSpace(
    "sdxl", channels=4, factor=8, scaling=0.13025, words=("sdxl", "xl", "taesdxl")
)
