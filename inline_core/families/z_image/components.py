"""Build Z-Image's transformer from identified files: config from the header, weights streamed in.

Imports torch and diffusers, so it is imported on the device thread only.
"""

from __future__ import annotations

from typing import Any

import torch
from diffusers import ZImageTransformer2DModel

from inline_core.families.z_image.denoise import ZImageDenoiser
from inline_core.families.z_image.family import RULES
from inline_core.families.z_image.keys import IGNORABLE, adapter_targets, transformer_sources
from inline_core.families.z_image.text import encode_prompt
from inline_core.loading.adapters import AdaptedModel
from inline_core.loading.identify import FileIdentity
from inline_core.loading.offload import offload
from inline_core.loading.stream import LoadPlan, fill

__all__ = ["adapted_model", "encode_prompt", "load_denoiser", "transformer_config"]


def transformer_config(identity: FileIdentity) -> dict[str, Any]:
    """Constructor arguments of the transformer, derived from the header alone.

    The rope axes are 1/4, 3/8 and 3/8 of a head, as in the published config (32, 48, 48 of 128).
    """
    size = identity.geometry
    head = size["head_dim"] or 128
    return {
        "in_channels": size["in_channels"],
        "dim": size["dim"],
        "n_layers": size["n_layers"],
        "n_refiner_layers": size["n_refiner_layers"],
        "n_heads": size["dim"] // head,
        "n_kv_heads": size["dim"] // head,
        "cap_feat_dim": size["cap_feat_dim"],
        "axes_dims": [head // 4, 3 * head // 8, 3 * head // 8],
    }


def adapted_model(plan: LoadPlan) -> AdaptedModel:
    """What adapters can be put on: every linear under its names in all layouts."""
    sources = transformer_sources(plan.logical.tensors, plan.identity.prefix)
    shapes = {
        name: (shape[0] // source.parts, *shape[1:])
        for name, source in sources.items()
        if len(shape := plan.logical.tensors[source.name].shape) == 2  # noqa: PLR2004 - a matrix
    }
    return AdaptedModel(plan.label, RULES.label, adapter_targets(shapes), shapes)


def load_denoiser(plan: LoadPlan) -> ZImageDenoiser:
    """The diffusion model, ready to predict.  Raises: ModelFileInvalid, RunCancelled."""
    config = transformer_config(plan.identity)
    with torch.device("meta"):
        model: Any = ZImageTransformer2DModel(**config)
    sources = transformer_sources(plan.logical.tensors, plan.identity.prefix)
    ignorable = [plan.identity.prefix + name for name in IGNORABLE]
    fill(model, sources, plan, ignorable=ignorable)
    offload(model, plan.placement)
    return ZImageDenoiser(model.eval())
