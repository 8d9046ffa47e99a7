"""The autoencoder of FLUX.2: AutoencoderKL whose latents are joined in patches and normalised.

Imports torch and diffusers, so it is imported on the device thread only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch
from diffusers import AutoencoderKLFlux2
from torch.nn import functional

from inline_core.errors import ModelFileInvalid
from inline_core.families.autoencoders.kl import VaeRuntime
from inline_core.families.autoencoders.kl_keys import vae_sources
from inline_core.loading.reader import TensorReader
from inline_core.loading.stream import LoadPlan, TensorSource, fill
from inline_core.sampling.family import LatentSpace

if TYPE_CHECKING:
    from torch import Tensor

_MEAN: Final = "bn.running_mean"
_VARIANCE: Final = "bn.running_var"
# Beside the statistics there is a count of the batches they were taken over.
_STATISTICS: Final = (_MEAN, _VARIANCE, "bn.num_batches_tracked")
_ENCODER: Final = "encoder.conv_in.weight"
# Black Forest Labs have these inside the halves, everybody else beside them.
_INSIDE: Final = ("encoder.quant_conv.", "decoder.post_quant_conv.")


class Flux2VaeRuntime(VaeRuntime):
    """A loaded AutoencoderKLFlux2 with the statistics of its own file.  Device thread only."""

    def __init__(self, model: Any, space: LatentSpace, mean: Tensor, variance: Tensor) -> None:
        """`mean` and `variance` (channels,) float32 are those of the patches."""
        super().__init__(model, space)
        self.scale = (space.scaling, space.shift)
        self._patch = int(model.config.patch_size[0])
        self._mean = mean.view(1, -1, 1, 1)
        self._spread = torch.sqrt(variance.view(1, -1, 1, 1) + model.config.batch_norm_eps)

    def _raw(self, latents: Tensor) -> Tensor:
        """Normalised patches (n, 4c, h, w) -> latents (n, c, 2h, 2w)."""
        patches = latents.float() * self._spread + self._mean
        return functional.pixel_shuffle(patches, self._patch).to(self._model.dtype)

    def _normalised(self, raw: Tensor) -> Tensor:
        """Latents (n, c, 2h, 2w) -> normalised patches (n, 4c, h, w)."""
        return (functional.pixel_unshuffle(raw, self._patch) - self._mean) / self._spread


def flux2_vae_config(plan: LoadPlan) -> dict[str, Any]:
    """Constructor arguments from shapes; what a config beside the file says wins.

    Raises: ModelFileInvalid for half of a VAE.
    """
    prefix, tensors = plan.identity.prefix, plan.logical.tensors
    if prefix + _ENCODER not in tensors:
        message = f"{plan.label} has no encoder: a full VAE is needed"
        raise ModelFileInvalid(message)
    config = dict(plan.identity.config)
    inside = any(name.startswith(prefix + _INSIDE[0]) for name in tensors)
    if inside:
        config |= {"use_quant_conv": True, "use_post_quant_conv": True}
    keys = (*config, "batch_norm_eps")
    told = {key: plan.files.config[key] for key in keys if plan.files.config.get(key) is not None}
    return {**config, **told}


def flux2_vae_sources(plan: LoadPlan, blocks: int) -> dict[str, TensorSource]:
    """Module name -> place in the file, without the statistics."""
    prefix = plan.identity.prefix
    statistics = {prefix + name for name in _STATISTICS}
    names = [name for name in plan.logical.tensors if name not in statistics]
    sources = vae_sources(names, blocks, prefix)
    for start in _INSIDE:
        half = start.partition(".")[0] + "."
        for name in [name for name in sources if name.startswith(start)]:
            sources[name.removeprefix(half)] = sources.pop(name)
    return sources


def load_vae(plan: LoadPlan, space: LatentSpace) -> Flux2VaeRuntime:
    """The VAE, ready to decode and encode.  Raises: ModelFileInvalid, RunCancelled."""
    config = flux2_vae_config(plan)
    with torch.device("meta"):
        model: Any = AutoencoderKLFlux2(**config)
    # No weights but buffers, which the network itself never uses.
    model.bn = torch.nn.Identity()
    prefix = plan.identity.prefix
    sources = flux2_vae_sources(plan, len(config["block_out_channels"]))
    fill(model, sources, plan, ignorable=[prefix + name for name in _STATISTICS])
    mean, variance = _statistics(plan)
    return Flux2VaeRuntime(model.eval(), space, mean, variance)


def _statistics(plan: LoadPlan) -> tuple[Tensor, Tensor]:
    """Mean and variance (channels,) float32 at the place of the plan.  Raises: ModelFileInvalid."""
    names = [plan.identity.prefix + name for name in (_MEAN, _VARIANCE)]
    missing = [name for name in names if name not in plan.logical.tensors]
    if missing:
        message = f"{plan.label} does not match its architecture: {missing[0]} is missing"
        raise ModelFileInvalid(message)
    with TensorReader(plan.files, plan.label) as reader:
        # A copy, as what the reader gives may be its buffer or the mapped file.
        mean, variance = (
            reader.mapped(name).to(plan.placement.storage, torch.float32, copy=True)
            for name in names
        )
        reader.check_unchanged()
    return mean, variance
