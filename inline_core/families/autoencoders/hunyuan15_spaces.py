"""The latent space of HunyuanVideo 1.5's VAE and the tiles it works in, without torch.

The scaling is that of AutoencoderKLHunyuanVideo15 of diffusers; it is in no shape.
"""

from __future__ import annotations

from typing import Final

from inline_core.sampling.family import LatentSpace

HUNYUAN_15: Final = LatentSpace(
    "hunyuan15", channels=32, factor=16, scaling=1.03682, frame_factor=4
)
# Sides of tiles in pixels, the reference's first.  Overlaps and seams are whole latents for each.
_TILES: Final = (256, 192, 128)
# The VAE decodes all frames of a tile at once.  So many of its pixels take about 8 GB in bfloat16.
_MOST_PIXELS: Final = 4_500_000


def tile_side(frames: int) -> int:
    """The side of the tiles, in pixels, that a video of so many frames is decoded in."""
    fitting = (side for side in _TILES if side * side * frames <= _MOST_PIXELS)
    return next(fitting, _TILES[-1])
