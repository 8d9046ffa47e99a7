"""AutoencoderKLHunyuanVideo: videos to latents and back, and its weights' names in original files.

Imports torch and diffusers, so it is imported on the device thread only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import torch
from diffusers import AutoencoderKLHunyuanVideo

from inline_core.families.autoencoders.videos import VideoVae
from inline_core.loading.interruption import Interruption
from inline_core.loading.stream import LoadPlan, TensorSource, fill

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.sampling.family import LatentSpace

_SCALING: Final = "scaling_factor"
# ldm's names for the same modules.
_RENAMED: Final = (
    (r"\.mid\.block_1\.", ".mid_block.resnets.0."),
    (r"\.mid\.block_2\.", ".mid_block.resnets.1."),
    (r"\.mid\.attn_1\.norm\.", ".mid_block.attentions.0.group_norm."),
    (r"\.mid\.attn_1\.([qkv])\.", r".mid_block.attentions.0.to_\1."),
    (r"\.mid\.attn_1\.proj_out\.", ".mid_block.attentions.0.to_out.0."),
    (r"\.norm_out\.", ".conv_norm_out."),
    (r"\.(down|up)\.(\d+)\.block\.", r".\1_blocks.\2.resnets."),
    (r"\.(down|up)\.(\d+)\.(down|up)sample\.", r".\1_blocks.\2.\3samplers.0."),
    (r"\.nin_shortcut\.", ".conv_shortcut."),
)
_LINEAR: Final = re.compile(r"mid_block\.attentions\.0\.to_(?:[qkv]|out\.0)\.weight$")
_MATRIX: Final = 2


class HunyuanVae(VideoVae):
    """A loaded AutoencoderKLHunyuanVideo.  Any of the device's threads."""

    def __init__(self, model: Any, space: LatentSpace) -> None:
        super().__init__(model, space, Interruption(_stages(model)))
        self._scaling = float(model.config.scaling_factor)
        self.scale = (self._scaling, space.shift)

    def raw(self, latents: Tensor) -> Tensor:
        """What the network decodes, from normalised latents (n, c, t, h, w) in float32."""
        return latents / self._scaling

    def normalised(self, raw: Tensor) -> Tensor:
        """Normalised latents, from what the network encoded (n, c, t, h, w) in float32."""
        return raw * self._scaling


def load_vae(plan: LoadPlan, space: LatentSpace) -> HunyuanVae:
    """The VAE, ready to decode and encode.  Raises: ModelFileInvalid, RunCancelled."""
    scaling = plan.files.config.get(_SCALING) or space.scaling
    with torch.device("meta"):
        model: Any = AutoencoderKLHunyuanVideo(**plan.identity.config, scaling_factor=scaling)
    shapes = {name: info.shape for name, info in plan.logical.tensors.items()}
    fill(model, vae_sources(shapes, plan.identity.prefix), plan)
    return HunyuanVae(model.eval(), space)


def vae_sources(shapes: Mapping[str, tuple[int, ...]], prefix: str) -> dict[str, TensorSource]:
    """Module name -> place in the file, for original files and those of diffusers alike.

    ldm counts the levels of the decoder from its end, which their widths tell; the attention in the
    middle is a convolution of one point there.
    """
    inside = {name[len(prefix) :]: name for name in shapes if name.startswith(prefix)}
    first = shapes.get(inside.get("decoder.up.0.block.0.conv1.conv.weight", ""))
    levels = {match[1] for name in inside if (match := re.match(r"decoder\.up\.(\d+)\.", name))}
    last = shapes.get(inside.get(f"decoder.up.{len(levels) - 1}.block.0.conv1.conv.weight", ""))
    backwards = first is not None and last is not None and first[0] < last[0]
    sources: dict[str, TensorSource] = {}
    for bare, name in inside.items():
        new = bare
        for pattern, replacement in _RENAMED:
            new = re.sub(pattern, replacement, new)
        if backwards and bare.startswith("decoder.up."):
            new = re.sub(
                r"up_blocks\.(\d+)",
                lambda found: f"up_blocks.{len(levels) - 1 - int(found[1])}",
                new,
            )
        flat = _LINEAR.search(new) is not None and len(shapes[name]) > _MATRIX
        sources[new] = TensorSource(name, flatten=flat)
    return sources


def _stages(model: Any) -> list[Any]:
    """The stages of both halves."""
    halves = (model.encoder.down_blocks, model.decoder.up_blocks)
    stages = [stage for half in halves for stage in half]
    return [*stages, model.encoder.mid_block, model.decoder.mid_block]
