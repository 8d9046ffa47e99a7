"""Wan 2.1 and 2.2: text and image to video, VACE, Animate, Fun."""

from __future__ import annotations

import math
from typing import Final

from inline_core.loading.architectures.architecture import (
    Architecture,
    Config,
    Layouts,
    whole_numbers,
)
from inline_core.loading.architectures.shapes import Shapes
from inline_core.loading.component import Role

HEAD_DIM: Final = 128  # of every published Wan; in no shape, as the norm spans all heads
_CLASS: Final = "WanTransformer3DModel"
_SMALL, _LARGE, _MIDDLE = 1536, 5120, 3072
_IMAGE_CHANNELS: Final = 36  # latent 16 + first frame 16 + mask 4
_LATENT_2_2: Final = 48  # of the Wan 2.2 VAE
_RAYS: Final = 24  # channels of a camera: 6 of a ray, of 4 frames


def _base(shapes: Shapes) -> Config:
    patches = shapes.shape("patch_embedding.weight")
    inner, in_channels, patch_size = patches[0], patches[1], patches[2:]
    head_dim = HEAD_DIM if inner % HEAD_DIM == 0 else inner
    out_rows = shapes.rows("head.head.weight", "proj_out.weight")
    return {
        "patch_size": patch_size,
        "num_attention_heads": inner // head_dim,
        "attention_head_dim": head_dim,
        "in_channels": in_channels,
        "out_channels": out_rows // math.prod(patch_size),
        "text_dim": shapes.columns(
            "text_embedding.0.weight", "condition_embedder.text_embedder.linear_1.weight"
        ),
        "freq_dim": shapes.columns(
            "time_embedding.0.weight", "condition_embedder.time_embedder.linear_1.weight"
        ),
        "ffn_dim": shapes.rows("blocks.0.ffn.0.weight", "blocks.0.ffn.net.0.proj.weight"),
        "num_layers": shapes.count("blocks."),
        "cross_attn_norm": shapes.has("blocks.0.norm3.weight", "blocks.0.norm2.weight"),
        **_image(shapes, inner),
    }


def _image(shapes: Shapes, inner: int) -> Config:
    """Arguments for the picture that image to video is told through CLIP vision."""
    config: Config = {}
    norm = ("img_emb.proj.0.weight", "condition_embedder.image_embedder.norm1.weight")
    positions = ("img_emb.emb_pos", "condition_embedder.image_embedder.pos_embed")
    if shapes.has(*norm):
        config["image_dim"] = shapes.rows(*norm)
    if shapes.has("blocks.0.cross_attn.k_img.weight", "blocks.0.attn2.add_k_proj.weight"):
        config["added_kv_proj_dim"] = inner
    if shapes.has(*positions):  # first and last frame
        config["pos_embed_seq_len"] = shapes.columns(*positions)
    return config


def _variant(shapes: Shapes, config: Config) -> str:
    """Names of the published models; the two experts of 2.2 A14B have the shapes of 2.1 14B."""
    inner = config["num_attention_heads"] * config["attention_head_dim"]
    size = {_SMALL: "1.3b", _LARGE: "14b", _MIDDLE: "5b"}.get(inner, "")
    special = next((name for group, name in _SPECIAL.items() if group in shapes.groups), None)
    if special:
        kind = special
    elif config["in_channels"] // config["out_channels"] > _WITH_FRAMES:
        kind = "control"  # latents of a video to go by, beside those of frames
    elif config["out_channels"] == _LATENT_2_2:
        kind = "2.2-ti2v"
    elif config["in_channels"] == _IMAGE_CHANNELS:
        kind = "i2v" if "image_dim" in config else "2.2-i2v"
    elif config["in_channels"] == config["out_channels"]:
        kind = "t2v"
    else:
        kind = "frames"
    return f"{kind}-{size}" if size else kind


_WITH_FRAMES: Final = 2  # as many channels as latents: those, and those of given frames
_SPECIAL: Final = {
    "vace_blocks": "vace",
    "face_adapter": "animate",
    "casual_audio_encoder": "s2v",
    "audio_proj": "humo",
    "control_adapter": "camera",
}


def _vace(shapes: Shapes) -> Config:
    config = _base(shapes)
    layers, hints = config["num_layers"], shapes.count("vace_blocks.")
    # The places are not in the file; the published models spread them evenly from block 0.
    step = max(layers // max(hints, 1), 1)
    return config | {
        "vace_layers": list(range(0, step * hints, step)),
        "vace_in_channels": shapes.columns("vace_patch_embedding.weight"),
    }


def _animate(shapes: Shapes) -> Config:
    config = _base(shapes)
    width = shapes.rows("face_encoder.conv2.conv.weight", "face_encoder.conv2.weight")
    local = shapes.shape("face_encoder.conv1_local.conv.weight", "face_encoder.conv1_local.weight")
    blocks = shapes.count("motion_encoder.res_blocks.")
    if not blocks:  # convs.0 is the input, the last one the output
        blocks = shapes.count("motion_encoder.enc.net_app.convs.") - 2
    fusers = shapes.count("face_adapter.fuser_blocks.", "face_adapter.")
    last = ("motion_encoder.enc.net_app.convs.8.weight", "motion_encoder.conv_out.weight")
    motion = ("motion_encoder.dec.direction.weight", "motion_encoder.motion_synthesis_weight")
    return config | {
        "latent_channels": shapes.columns("pose_patch_embedding.weight"),
        "motion_encoder_size": 2 ** (blocks + 2),  # one block a halving, down to 4 x 4
        "motion_style_dim": shapes.rows(*last),
        "motion_dim": shapes.columns(*motion),
        "motion_encoder_dim": local[1],
        "face_encoder_hidden_dim": width,
        "face_encoder_num_heads": local[0] // width,
        "inject_face_latents_blocks": config["num_layers"] // max(fusers, 1),
    }


def _fun(shapes: Shapes) -> Config:
    """Tokens of a reference picture, or the path of a camera."""
    config = _base(shapes)
    if shapes.has("ref_conv.weight"):
        config["ref_channels"] = shapes.columns("ref_conv.weight")
    if shapes.has("control_adapter.conv.weight"):
        inputs = shapes.columns("control_adapter.conv.weight")
        config["camera_channels"] = _RAYS
        config["camera_side"] = math.isqrt(inputs // _RAYS)
        config["camera_blocks"] = shapes.count("control_adapter.residual_blocks.")
    return config


def _layouts(original: tuple[str, ...], diffusers: tuple[str, ...]) -> Layouts:
    return (
        ("original", ("head.modulation", *original)),
        ("diffusers", ("condition_embedder.time_proj.weight", *diffusers)),
    )


WAN_VACE: Final = Architecture(
    "wan",
    "Wan VACE",
    Role.DIFFUSION_MODEL,
    _layouts(("vace_patch_embedding.weight",), ("vace_patch_embedding.weight",)),
    class_name="WanVACETransformer3DModel",
    config=_vace,
    variant=_variant,
)
WAN_ANIMATE: Final = Architecture(
    "wan",
    "Wan Animate",
    Role.DIFFUSION_MODEL,
    _layouts(
        ("pose_patch_embedding.weight", "face_adapter.*"),
        ("pose_patch_embedding.weight", "face_adapter.*"),
    ),
    class_name="WanAnimateTransformer3DModel",
    config=_animate,
    variant=_variant,
)
# Kinds with parts that no class of diffusers has.
WAN_OTHERS: Final = tuple(
    Architecture(
        "wan",
        name,
        Role.DIFFUSION_MODEL,
        (("original", ("head.modulation", f"{group}.*")),),
        geometry=lambda shapes, _: whole_numbers(shapes, _base(shapes)),
        variant=lambda shapes, _: _variant(shapes, _base(shapes)),
    )
    for group, name in (
        ("casual_audio_encoder", "Wan S2V"),
        ("audio_proj", "Wan HuMo"),
    )
)
# No class of diffusers has them; those of 5B are of another latent space.
WAN_FUN: Final = tuple(
    Architecture(
        family,
        f"{label} {name}",
        Role.DIFFUSION_MODEL,
        (("original", ("head.modulation", key)),),
        config=_fun,
        variant=_variant,
        condition=condition,
    )
    for name, key in (
        ("Fun Camera", "control_adapter.conv.weight"),
        ("Fun Control", "ref_conv.weight"),
    )
    for family, label, condition in (
        ("wan-5b", "Wan 2.2 5B", lambda shapes: _base(shapes)["out_channels"] == _LATENT_2_2),
        ("wan", "Wan", lambda _: True),
    )
)
# Another VAE and another latent space: a family of its own.
WAN_5B: Final = Architecture(
    "wan-5b",
    "Wan 2.2 5B",
    Role.DIFFUSION_MODEL,
    _layouts((), ()),
    class_name=_CLASS,
    config=_base,
    variant=_variant,
    condition=lambda shapes: _base(shapes)["out_channels"] == _LATENT_2_2,
)
WAN: Final = Architecture(
    "wan",
    "Wan",
    Role.DIFFUSION_MODEL,
    _layouts((), ()),
    class_name=_CLASS,
    config=_base,
    variant=_variant,
)
