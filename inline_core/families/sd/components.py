"""Build Stable Diffusion's U-Net and ControlNets from identified files.

Imports torch and diffusers, so it is imported on the device thread only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import torch
from diffusers import ControlNetModel, UNet2DConditionModel
from torch.nn import functional

from inline_core.families import transformer
from inline_core.families.sd.control import UNetControl
from inline_core.families.sd.denoise import UNetDenoiser
from inline_core.families.sd.family import REFINER_RULES, SD15_RULES, SDXL_RULES
from inline_core.families.sd.keys import unet_keys
from inline_core.families.sd.text import SdPrompt, encode
from inline_core.loading.adapters import AdaptedModel, AdapterTarget
from inline_core.loading.stream import LoadPlan

if TYPE_CHECKING:
    from inline_core.sampling.values import Latent

__all__ = [
    "adapted_encoder",
    "adapted_model",
    "encode",
    "load_control",
    "load_denoiser",
    "with_references",
]

_GROUPS: Final = 32  # of the norms of every published one; not in the shapes
# What trainers write before the modules of each text encoder.
_ENCODERS: Final = (
    ("lora_te_", "lora_te1_", "text_encoder."),
    ("lora_te2_", "text_encoder_2."),
)
_ALL_ENCODERS: Final = tuple(prefix for prefixes in _ENCODERS for prefix in prefixes)
_MATRIX: Final = 2


def load_denoiser(plan: LoadPlan) -> UNetDenoiser:
    """The diffusion model, ready to predict.  Raises: ModelFileInvalid, RunCancelled."""
    return UNetDenoiser(_loaded(plan, UNet2DConditionModel))


def load_control(plan: LoadPlan) -> UNetControl:
    """A ControlNet for the U-Net.  Raises: ModelFileInvalid, RunCancelled."""
    return UNetControl(_loaded(plan, ControlNetModel))


def _loaded(plan: LoadPlan, build: Any) -> Any:
    config = plan.identity.config
    groups = math.gcd(_GROUPS, *config["block_out_channels"])
    table = unet_keys(config)
    return transformer.load_transformer(plan, build, table, norm_num_groups=groups)


def adapted_model(plan: LoadPlan) -> AdaptedModel:
    """What adapters can be put on: every linear and convolution under its names in all layouts.

    Adapters of Stable Diffusion change its text encoders too.
    """
    known = {rules.name: rules for rules in (SD15_RULES, SDXL_RULES, REFINER_RULES)}
    rules = known[plan.identity.family]
    table = unet_keys(plan.identity.config)
    sources = table.sources(plan.logical.tensors, plan.identity.prefix)
    shapes = {}
    for name, source in sources.items():
        shape = plan.logical.tensors[source.name].shape
        if len(shape) >= _MATRIX:
            shapes[name] = (shape[0], math.prod(shape[1:]))
    targets = table.adapter_targets(shapes)
    return AdaptedModel(plan.label, rules.label, targets, shapes, elsewhere=_ALL_ENCODERS)


def adapted_encoder(model: Any, position: int, label: str) -> AdaptedModel:
    """What adapters can be put on in a loaded text encoder."""
    linears = {
        name: (module.out_features, module.in_features)
        for name, module in model.named_modules()
        if hasattr(module, "out_features")  # also those that are held packed
    }
    shapes = {f"{name}.weight": shape for name, shape in linears.items()}
    targets = {name: [AdapterTarget(f"{name}.weight")] for name in linears}
    return AdaptedModel(label, "CLIP", targets, shapes, prefixes=_ENCODERS[position])


def with_references(encoded: SdPrompt, latents: Sequence[Latent]) -> SdPrompt:
    """The prompt with the picture to be filled: its mask, and its latents without what is masked.

    The mask is taken at the nearest pixel, as StableDiffusionInpaintPipeline does it.
    """
    latent = latents[0]
    samples = latent.samples[0]  # (channels, height, width)
    mask = torch.from_numpy(latent.mask).to(samples.device, torch.float32) / 255.0
    small = functional.interpolate(mask[None, None], size=samples.shape[-2:])  # (1, 1, h, w)
    return replace(encoded, fill=torch.cat([small[0], samples]))  # (1 + channels, h, w)
