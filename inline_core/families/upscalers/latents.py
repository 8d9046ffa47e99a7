"""A loaded latent upscaler of LTX-2.  Imports torch and diffusers; device thread only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch
from diffusers.pipelines.ltx2.latent_upsampler import BlurDownsample, LTX2LatentUpsamplerModel

from inline_core.errors import ModelFileInvalid
from inline_core.loading.interruption import Interruption
from inline_core.loading.stream import LoadPlan, TensorSource, fill

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from inline_core.loading.header import TensorInfo

_FIRST: Final = "initial_conv.weight"
_RATIONAL: Final = "upsampler.conv.weight"
_PLAIN: Final = "upsampler.0.weight"
_OVER_TIME: Final = 5  # axes of the weight of a convolution over frames too
# Rows of the resampler for each channel -> how much larger it makes latents.
_SCALES: Final = {4: 2.0, 9: 1.5, 16: 4.0}


class LatentUpscaler:
    """Enlarges raw latents of videos in width and height."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.interruption = Interruption([*model.res_blocks, *model.post_upsample_res_blocks])

    def upscale(self, raw: Tensor) -> Tensor:
        """Latents (n, channels, t, h, w) as the VAE decodes them, larger, in float32."""
        placed = raw.to(self._model.device, self._model.dtype)
        larger: Tensor = self._model(placed).float()  # (n, channels, t, H, W)
        return larger


def load_latent_upscaler(plan: LoadPlan) -> LatentUpscaler:
    """The latent upscaler of a file.  Raises: ModelFileInvalid, RunCancelled."""
    config = config_of(plan.logical.tensors, plan.label)
    with torch.device("meta"):
        model: Any = LTX2LatentUpsamplerModel(**config)
    if config["use_rational_resampler"]:
        blur = BlurDownsample(2, model.upsampler.den)
        dtype: torch.dtype = getattr(torch, plan.placement.dtype)
        model.upsampler.blur_down = blur.to(plan.placement.storage, dtype)
    sources = {name: TensorSource(name) for name, _ in model.named_parameters()}
    # The blur is no weight but made of binomial coefficients; files may hold it all the same.
    blurs = [name for name in plan.logical.tensors if name.endswith("blur_down.kernel")]
    fill(model, sources, plan, ignorable=blurs)
    return LatentUpscaler(model.eval())


def config_of(tensors: Mapping[str, TensorInfo], label: str) -> dict[str, Any]:
    """The constructor arguments that the shapes tell.

    Raises: ModelFileInvalid for one that makes more frames.
    """
    first = tensors[_FIRST].shape
    width, channels = first[:2]
    rational = tensors.get(_RATIONAL)
    upsampler = rational or tensors.get(_PLAIN)
    if upsampler is None or len(upsampler.shape) == _OVER_TIME:
        message = f"{label} is a latent upscaler that makes more frames; only larger ones are known"
        raise ModelFileInvalid(message)
    scale = _SCALES.get(upsampler.shape[0] // width)
    if scale is None:
        message = f"{label} enlarges latents by a factor that is not known"
        raise ModelFileInvalid(message)
    blocks = {name.split(".")[1] for name in tensors if name.startswith("res_blocks.")}
    return {
        "in_channels": channels,
        "mid_channels": width,
        "num_blocks_per_stage": len(blocks),
        "dims": 3 if len(first) == _OVER_TIME else 2,
        "rational_spatial_scale": scale,
        "use_rational_resampler": rational is not None,
    }
