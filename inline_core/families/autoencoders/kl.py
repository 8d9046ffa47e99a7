"""AutoencoderKL (SD, SDXL, SD3, FLUX.1, Z-Image): from latents to pixels and back.

Pixels are scaled as diffusers' image processor does it.  Imports torch and diffusers, so it is
imported on the device thread only.
"""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from diffusers import AutoencoderKL

from inline_core.errors import ModelFileInvalid, NotFinite
from inline_core.families.autoencoders.kl_keys import vae_sources
from inline_core.loading.identify import count_blocks
from inline_core.loading.interruption import Interruption
from inline_core.loading.stream import LoadPlan, fill
from inline_core.sampling.family import LatentSpace

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

NORM_GROUPS: Final = 32  # of every published one; not in the shapes
TILE_PIXELS: Final = 512


class VaeRuntime:
    """A loaded AutoencoderKL, with the scaling of its own config if there is one.

    `scale` is that (scaling, shift), or None where the file does not tell; then `in_space` says.
    Device thread only.
    """

    def __init__(self, model: Any, space: LatentSpace, *, told: bool = True) -> None:
        self._model = model
        self.space = space
        self.interruption = Interruption(_blocks(model))
        # Those of FLUX.2 have neither (see `kl_flux2`).
        self.scaling = float(model.config.get("scaling_factor") or 1.0)
        self.shift = float(model.config.get("shift_factor") or 0.0)
        self.scale = (self.scaling, self.shift) if told else None
        model.tile_sample_min_size = TILE_PIXELS
        model.tile_latent_min_size = TILE_PIXELS >> (len(model.config.block_out_channels) - 1)

    def in_space(self, space: LatentSpace | None) -> VaeRuntime:
        """The same VAE for normalised latents of a space; None: for raw ones, as it makes them.

        What its own file tells counts more than the space.
        """
        if space is not None and self.scale is not None:
            return self
        view = copy.copy(self)
        view.scaling = space.scaling if space is not None else 1.0
        view.shift = space.shift if space is not None else 0.0
        return view

    def decode_raw(self, latents: Tensor, *, tiled: bool = False) -> Tensor:
        """Normalised latents (n, c, h, w) -> pixels (n, 3, 8h, 8w) float32, about -1..1.

        `tiled` decodes overlapping tiles of 512 pixels and blends them: a fraction of the memory.
        """
        raw = self._raw(latents.to(self._model.device))
        # Not by the model's switch: previews decode on other threads at the same time.
        large = max(raw.shape[-2:]) > self._model.tile_latent_min_size
        decode = self._model.tiled_decode if tiled and large else self._model.decode
        pixels: Tensor = decode(raw, return_dict=False)[0]
        return pixels.float()

    def decode(self, latents: Tensor, *, tiled: bool = False) -> NDArray[np.uint8]:
        """Normalised latents (1, c, h, w) of one picture -> uint8 (height, width, 3).

        Raises: NotFinite.
        """
        pixels = self.decode_raw(latents, tiled=tiled)  # (1, 3, height, width)
        if not bool(torch.isfinite(pixels).all()):
            message = "NaN or infinity in the decoded pixels: no picture was made"
            raise NotFinite(message)
        unit = (pixels * 0.5 + 0.5).clamp(0, 1)  # (1, 3, height, width)
        array = unit[0].permute(1, 2, 0).cpu().numpy()  # (height, width, 3)
        return (array * 255).round().astype(np.uint8)

    def encode(self, pixels: NDArray[Any], *, tiled: bool = False) -> Tensor:
        """(height, width, 3), uint8 or float32 in 0..1 -> normalised latents (1, c, h, w).

        The mode of the encoded distribution, without noise.
        """
        image = unit_pixels(pixels).permute(2, 0, 1)[None] * 2 - 1  # (1, 3, height, width)
        return self.encode_raw(image, tiled=tiled)

    def encode_raw(self, images: Tensor, *, tiled: bool = False) -> Tensor:
        """Pixels (n, 3, 8h, 8w) float32 in -1..1 -> normalised latents (n, c, h, w) on the CPU."""
        self._model.use_tiling = tiled
        inputs = images.to(self._model.device, self._model.dtype)
        try:
            raw: Tensor = self._model.encode(inputs).latent_dist.mode()  # (n, c, h, w)
        finally:
            self._model.use_tiling = False
        return self._normalised(raw.float()).cpu()

    def _raw(self, latents: Tensor) -> Tensor:
        """What the model decodes, in its precision, from normalised latents."""
        return latents.to(self._model.dtype) / self.scaling + self.shift

    def _normalised(self, raw: Tensor) -> Tensor:
        """What the sampler works on, from what the model encoded to."""
        return (raw - self.shift) * self.scaling


def unit_pixels(pixels: NDArray[Any]) -> Tensor:
    """Pixels as float32 in 0..1, of the same shape; uint8 is divided by 255."""
    whole = pixels.dtype == np.uint8
    return torch.from_numpy(pixels.astype(np.float32) / 255.0 if whole else pixels)


def _blocks(model: Any) -> list[Any]:
    """The residual blocks and attentions of both halves."""
    halves = (model.encoder.down_blocks, model.decoder.up_blocks)
    stages = [stage for half in halves for stage in half]
    stages += [model.encoder.mid_block, model.decoder.mid_block]
    inner = [block for stage in stages for block in stage.resnets]
    return inner + [a for s in stages for a in (getattr(s, "attentions", None) or ()) if a]


def vae_config(plan: LoadPlan, space: LatentSpace) -> dict[str, Any]:
    """Constructor arguments of the VAE from shapes; what a config beside the file says wins.

    Group count, scaling and shift are not in the shapes.  Raises: ModelFileInvalid.
    """
    identity = plan.identity
    tensors = {name.removeprefix(identity.prefix): i for name, i in plan.logical.tensors.items()}
    blocks = int(math.log2(identity.geometry["factor"])) + 1
    ldm = identity.layout == "ldm"
    first = (
        "encoder.down.{}.block.0.conv1.weight"
        if ldm
        else "encoder.down_blocks.{}.resnets.0.conv1.weight"
    )
    if first.format(0) not in tensors:
        message = f"{plan.label} has no encoder: a full VAE is needed"
        raise ModelFileInvalid(message)
    channels = tuple(tensors[first.format(index)].shape[0] for index in range(blocks))
    resnets = "encoder.down.0.block." if ldm else "encoder.down_blocks.0.resnets."
    attention = "mid.attn_1.q.weight" if ldm else "mid_block.attentions.0.to_q.weight"
    config = {
        "block_out_channels": channels,
        "down_block_types": ("DownEncoderBlock2D",) * blocks,
        "up_block_types": ("UpDecoderBlock2D",) * blocks,
        "layers_per_block": count_blocks(tensors, resnets),
        "latent_channels": identity.geometry["latent_channels"],
        "norm_num_groups": math.gcd(NORM_GROUPS, *channels),
        "use_quant_conv": "quant_conv.weight" in tensors,
        "use_post_quant_conv": "post_quant_conv.weight" in tensors,
        "mid_block_add_attention": f"encoder.{attention}" in tensors,
        "scaling_factor": space.scaling,
        "shift_factor": space.shift,
    }
    told = {key: plan.files.config[key] for key in config if plan.files.config.get(key) is not None}
    return {**config, **told}


def load_vae(plan: LoadPlan, space: LatentSpace) -> VaeRuntime:
    """The VAE, ready to decode and encode.  Raises: ModelFileInvalid, RunCancelled."""
    config = vae_config(plan, space)
    with torch.device("meta"):
        model: Any = AutoencoderKL(**config)
    sources = vae_sources(
        plan.logical.tensors, len(config["block_out_channels"]), plan.identity.prefix
    )
    fill(model, sources, plan)
    told = plan.files.config.get("scaling_factor") is not None
    return VaeRuntime(model.eval(), space, told=told)
