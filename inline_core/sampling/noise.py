"""Noise: drawn on the CPU in float32 for each picture, so that a seed means the same everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

if TYPE_CHECKING:
    from torch import Tensor

_SEED_MASK: Final = (1 << 64) - 1


def picture_seed(seed: int, index: int) -> int:
    """Seed of picture `index` of a batch that starts at `seed`; wraps at 64 bits."""
    return (seed + index) & _SEED_MASK


class NoiseSource:
    """The noise of one job: each picture has its own generator, seeded with `seed + index`."""

    def __init__(self, seed: int, count: int, shape: tuple[int, int, int], device: str) -> None:
        """`shape` is (channels, height, width) of one latent."""
        self._shape = shape
        self._device = device
        self._generators = [
            torch.Generator("cpu").manual_seed(picture_seed(seed, index)) for index in range(count)
        ]

    def draw(self) -> Tensor:
        """The next noise of every picture: (pictures, channels, height, width) float32."""
        drawn = [
            torch.randn(self._shape, generator=generator, dtype=torch.float32)
            for generator in self._generators
        ]
        return torch.stack(drawn).to(self._device)  # (pictures, channels, height, width)
