"""Tiny autoencoders (TAESD and kin): a rough picture from latents in milliseconds on a GPU.

Imports torch and diffusers, so it is imported on the device thread only.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final

import torch
from diffusers.models.autoencoders.vae import DecoderTiny
from PIL import Image as PillowImage

from inline_core.errors import ModelFileInvalid, NotFinite
from inline_core.families.autoencoders.tiny_keys import tiny_shape
from inline_core.loading.stream import LoadPlan, TensorSource, fill
from inline_core.sampling.preview import PREVIEW_SIDE, as_jpeg, one_thread, shrunk

if TYPE_CHECKING:
    from torch import Tensor

# In no shape; those of every published one, unless a config beside the file says otherwise.
_TOLD: Final = {"upsampling_scaling_factor": 2, "act_fn": "relu", "upsample_fn": "nearest"}


class TinyDecoder:
    """A loaded decoder.  Used on one thread at a time, but not on the device's own."""

    def __init__(self, model: Any, factor: int, scaling: float, shift: float) -> None:
        self._model = model
        self._factor = factor
        self._scaling = scaling
        self._shift = shift
        first = next(model.parameters())
        self._device, self._dtype = first.device, first.dtype

    def decode(self, latents: Tensor) -> Tensor:
        """Normalised latents (n, c, h, w) -> pixels (n, 3, H, W) float32, about -1..1."""
        raw = latents.to(self._device, self._dtype) / self._scaling + self._shift
        pixels: Tensor = self._model(raw)  # (n, 3, H, W)
        return pixels.float()

    def jpeg(self, latents: Tensor) -> bytes:
        """A preview of one latent (c, h, w), at most 512 pixels on a side.  Raises: NotFinite."""
        with torch.inference_mode(), one_thread(), _aside(latents):
            pixels = self.decode(shrunk(latents[None].detach(), PREVIEW_SIDE // self._factor))
            unit = (pixels[0] * 0.5 + 0.5).permute(1, 2, 0).cpu()  # (H, W, 3)
        if not bool(torch.isfinite(unit).all()):
            message = "NaN or infinity in the preview"
            raise NotFinite(message)
        array = (unit.clamp(0, 1) * 255).round().to(torch.uint8).numpy()
        return as_jpeg(PillowImage.fromarray(array, "RGB"))


def load_tiny(plan: LoadPlan) -> TinyDecoder:
    """The decoder of a tiny autoencoder.  Raises: ModelFileInvalid, RunCancelled."""
    tensors = plan.logical.tensors
    shape = tiny_shape(tensors)
    if shape is None:
        message = f"{plan.label} has no decoder of a tiny autoencoder"
        raise ModelFileInvalid(message)
    told = plan.files.config
    extra = {key: told.get(key) or value for key, value in _TOLD.items()}
    with torch.device("meta"):
        model: Any = DecoderTiny(**shape.config, **extra)
    sources = {name: TensorSource(source) for name, source in shape.sources.items()}
    others = tensors.keys() - set(shape.sources.values())  # the encoder
    fill(model, sources, plan, ignorable=others)
    return TinyDecoder(
        model.eval(),
        shape.factor,
        float(told.get("scaling_factor") or 1.0),
        float(told.get("shift_factor") or 0.0),
    )


def _aside(latents: Tensor) -> AbstractContextManager[Any]:
    """A stream of its own on a GPU: the next step is queued on the usual one already."""
    if not latents.is_cuda:
        return nullcontext()
    return torch.cuda.stream(torch.cuda.Stream(latents.device))  # type: ignore[no-untyped-call]
