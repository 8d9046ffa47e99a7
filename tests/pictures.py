"""Pictures for tests that want neither a photo on disk nor an even colour."""

from __future__ import annotations

import numpy as np
from PIL import Image


def noise_picture(seed: int, size: tuple[int, int]) -> Image.Image:
    """A soft RGB picture of width and height `size`: nine by nine random colours, enlarged."""
    draw = np.random.default_rng(seed)
    colours = draw.integers(0, 255, (9, 9, 3), dtype=np.uint8)
    return Image.fromarray(colours).resize(size)
