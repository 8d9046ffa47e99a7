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
    """The noise of one job: each picture has its own generator, seeded with `seed + index`.

    With `one_draw` the pictures are consecutive parts of one draw from `seed`, as ComfyUI has it;
    then picture i of a batch cannot be made alone.
    """

    def __init__(
        self,
        seed: int,
        count: int,
        shape: tuple[int, ...],
        device: str,
        *,
        one_draw: bool = False,
    ) -> None:
        """`shape` is (channels, ..., height, width) of one latent."""
        self._shape = (count, *shape) if one_draw else shape
        self._device = device
        self._one_draw = one_draw
        self._generators = [
            torch.Generator("cpu").manual_seed(picture_seed(seed, index))
            for index in range(1 if one_draw else count)
        ]

    def draw(self) -> Tensor:
        """The next noise of every picture: (pictures, channels, ..., height, width) float32."""
        drawn = [
            torch.randn(self._shape, generator=generator, dtype=torch.float32)
            for generator in self._generators
        ]
        noise = drawn[0] if self._one_draw else torch.stack(drawn)
        return noise.to(self._device)  # (pictures, channels, ..., height, width)
