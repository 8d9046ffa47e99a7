"""From latents to pixels and back, as diffusers' image processor does it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from inline_core.errors import NotFinite

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from inline_core.sampling.family import LatentSpace


class VaeRuntime:
    """A loaded AutoencoderKL with the scaling of its own config.  Device thread only."""

    def __init__(self, model: Any, space: LatentSpace) -> None:
        self._model = model
        self.space = space
        self._scaling = float(model.config.scaling_factor)
        self._shift = float(model.config.shift_factor or 0.0)

    def decode_raw(self, latents: Tensor) -> Tensor:
        """Normalised latents (n, c, h, w) -> pixels (n, 3, 8h, 8w) float32, about -1..1."""
        raw = latents.to(self._model.device, self._model.dtype) / self._scaling + self._shift
        pixels: Tensor = self._model.decode(raw, return_dict=False)[0]
        return pixels.float()

    def decode(self, latents: Tensor) -> NDArray[np.uint8]:
        """Normalised latents (1, c, h, w) of one picture -> uint8 (height, width, 3).

        Raises: NotFinite.
        """
        pixels = self.decode_raw(latents)  # (1, 3, height, width)
        if not bool(torch.isfinite(pixels).all()):
            message = "NaN or infinity in the decoded pixels: no picture was made"
            raise NotFinite(message)
        unit = (pixels * 0.5 + 0.5).clamp(0, 1)  # (1, 3, height, width)
        array = unit[0].permute(1, 2, 0).cpu().numpy()  # (height, width, 3)
        return (array * 255).round().astype(np.uint8)

    def encode(self, pixels: NDArray[np.uint8]) -> Tensor:
        """uint8 (height, width, 3) -> normalised latents (1, c, h, w): the mode, no noise."""
        unit = torch.from_numpy(pixels.astype(np.float32) / 255.0)  # (height, width, 3)
        image = unit.permute(2, 0, 1)[None] * 2 - 1  # (1, 3, height, width)
        return self.encode_raw(image)

    def encode_raw(self, images: Tensor) -> Tensor:
        """Pixels (n, 3, 8h, 8w) float32 in -1..1 -> normalised latents (n, c, h, w) on the CPU."""
        inputs = images.to(self._model.device, self._model.dtype)
        raw: Tensor = self._model.encode(inputs).latent_dist.mode()  # (n, c, h, w)
        return ((raw.float() - self._shift) * self._scaling).cpu()
