"""What Qwen-Image is, without torch: its latent space, its schedule, its variants' defaults."""

from __future__ import annotations

import math
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from inline_core.devices.budget import Workload
from inline_core.devices.split import SplitTraits
from inline_core.families.autoencoders.wan_spaces import WAN_21
from inline_core.families.published import qwen_image_vae, split_file, tokenizer, weights
from inline_core.families.qwen_image.pictures import ONE_PICTURE, as_condition, as_reference
from inline_core.loading.component import Role
from inline_core.loading.rules import EncoderNeed, FamilyRules
from inline_core.sampling.family import ModelFamily, PassSize, ScheduleFor
from inline_core.sampling.footprint import picture_workload
from inline_core.sampling.offer import Offer
from inline_core.sampling.patches import KeepLength
from inline_core.sampling.sigmas.tables import (
    FlowTable,
    mu_of_tokens,
    size_for,
    terminal_stretch,
)

_REPO: Final = "Comfy-Org/Qwen-Image_ComfyUI"
EDIT: Final = "edit"
EDIT_PLUS: Final = "edit-plus"
_DEFAULTS: Final = MappingProxyType({"width": 1328, "height": 1328, "steps": 50, "guidance": 4.0})
_EDIT_DEFAULTS: Final = MappingProxyType({**_DEFAULTS, "width": 1024, "height": 1024})


RULES: Final = FamilyRules(
    name="qwen-image",
    label="Qwen-Image",
    vae_family="autoencoder-kl-wan",
    latent_channels=WAN_21.channels,
    text_encoders=(EncoderNeed("qwen2.5-vl", size_of="joint_attention_dim"),),
    model_channels="",
    defaults=MappingProxyType(
        {"": _DEFAULTS, EDIT: _EDIT_DEFAULTS, EDIT_PLUS: _EDIT_DEFAULTS, "layered": _DEFAULTS}
    ),
    requirements=(
        weights(
            Role.DIFFUSION_MODEL,
            split_file(Role.DIFFUSION_MODEL, _REPO, "qwen_image_fp8_e4m3fn.safetensors"),
            20_430_000_000,
        ),
        qwen_image_vae(_REPO),
        weights(
            Role.TEXT_ENCODER,
            split_file(Role.TEXT_ENCODER, _REPO, "qwen_2.5_vl_7b_fp8_scaled.safetensors"),
            9_380_000_000,
        ),
        tokenizer("Qwen/Qwen2.5-VL-7B-Instruct", "qwen_2.5_vl_7b_fp8_scaled", 7_030_000),
    ),
)

_PATCH_PIXELS: Final = 16  # latent factor 8, patches of 2
_TEXT_TOKENS: Final = 1024
_CONTROL_BLOCKS: Final = 6  # of those of InstantX
_ENCODER_LAYERS: Final = 28  # of Qwen2.5-VL 7B
# Of the published scheduler: mu on a line through (tokens, mu), and the last sigma of a schedule.
_FEW: Final = (256, 0.5)
_MANY: Final = (8192, 0.9)
_TERMINAL: Final = 0.02


def table(wanted: ScheduleFor) -> FlowTable:
    """Qwen-Image's sigmas: the shift grows with the picture, and the last step starts at 0.02."""
    tokens = (wanted.width // _PATCH_PIXELS) * (wanted.height // _PATCH_PIXELS)
    shift = math.exp(mu_of_tokens(tokens, _FEW, _MANY))
    size = size_for(wanted.steps)
    return FlowTable(shift, size=size, stretch=terminal_stretch(shift, wanted.steps, _TERMINAL))


def workload(size: PassSize) -> Workload:
    """Picture and text go through the same blocks as two streams; the feed-forward is 4 wide."""
    tokens = math.prod(side // _PATCH_PIXELS for side in (size.width, size.height)) + _TEXT_TOKENS
    tokens += size.reference_pixels // _PATCH_PIXELS**2
    geometry = size.geometry
    width = geometry["num_attention_heads"] * geometry["attention_head_dim"]
    work = picture_workload(
        tokens=tokens * size.members,
        width=width,
        ffn_width=4 * width,
        text=(_TEXT_TOKENS, geometry["joint_attention_dim"], _ENCODER_LAYERS),
        size=(size.width, size.height),
        channels=size.decoder_channels,
    )
    if not size.controls:
        return work
    # What ControlNets add, a part for each of their blocks, held as it is made and as a sum.
    added = (size.controls + 1) * tokens * size.members * width * _CONTROL_BLOCKS
    return replace(work, denoise_values=work.denoise_values + added)


_GUIDED: Final = (KeepLength(),)
QWEN_IMAGE: Final = ModelFamily(
    rules=RULES,
    space=WAN_21,
    table=table,
    size_multiple=16,
    runtime="inline_core.families.qwen_image.components",
    workload=workload,
    looks_at_references=True,
    reads_pictures=True,
    controlled=True,
    control_latents=True,
    # xDiT pads prompts, which have any length here, and leaves out the mask of what it padded.
    splits=SplitTraits(
        xdit=frozenset({"ulysses", "ring", "cfg"}),
        diffusers=frozenset({"ulysses", "ring"}),
        prefers="diffusers",
    ),
    offers=(
        Offer("qwen/qwen-image", "Qwen-Image", takes=("image", "mask"), guided=_GUIDED),
        Offer(
            "qwen/qwen-image-edit",
            "Qwen-Image Edit",
            takes=("references",),
            assumed=EDIT,
            references=1,
            reference=as_reference,
            picture=as_reference,
            guided=_GUIDED,
            options={ONE_PICTURE: True},
        ),
        Offer(
            "qwen/qwen-image-edit-plus",
            "Qwen-Image Edit Plus",
            takes=("references",),
            assumed=EDIT_PLUS,
            references=3,
            reference=as_reference,
            picture=as_condition,
            guided=_GUIDED,
        ),
    ),
)
FAMILIES: Final = (QWEN_IMAGE,)
