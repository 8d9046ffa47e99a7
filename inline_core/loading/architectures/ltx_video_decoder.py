"""The video decoder of LTX-2.5, a small diffusion model that stands in for the VAE's decoder."""

from __future__ import annotations

from typing import Final

from inline_core.loading.architectures.architecture import ALL_FRAMES, Architecture, Config
from inline_core.loading.architectures.shapes import Shapes
from inline_core.loading.component import Role

_COLOURS: Final = 3
# Values that one becomes in an upsampling: how it is strided in (frames, rows, columns).
_STRIDES: Final = {2: (2, 1, 1), 4: (1, 2, 2), 8: (2, 2, 2)}


def _config(shapes: Shapes) -> Config:
    """Sizes of the attention windows are in no shape: see the class and the config.json."""
    stages = shapes.count("decoder.det_stages.")
    widths = [
        *(shapes.rows(f"decoder.det_stages.{index}.0.norm1.weight") for index in range(stages)),
        shapes.rows("decoder.norm_out.weight"),
    ]
    strides, reductions = [], []
    for index in range(stages):
        rows = shapes.rows(f"decoder.upsamples.{index}.proj.weight")
        strides.append(_STRIDES.get(rows // widths[index + 1], (1, 1, 1)))
        reductions.append(widths[index] // widths[index + 1])
    return {
        "latent_channels": shapes.columns("decoder.conv_in.weight"),
        "patch_size": round((shapes.rows("decoder.conv_out.weight") / _COLOURS) ** 0.5),
        "decoder_head_dim": shapes.rows("decoder.det_stages.0.0.attn.norm_q.weight"),
        "decoder_stage_channels": tuple(widths),
        "decoder_stage_depths": (
            *(shapes.count(f"decoder.det_stages.{index}.") for index in range(stages)),
            shapes.count("decoder.diff_blocks."),
        ),
        "decoder_upsample_strides": tuple(strides),
        "decoder_upsample_channel_reductions": tuple(reductions),
        "decoder_t_emb_dim": shapes.columns("decoder.shared_adaln.proj.weight"),
    }


def _geometry(_: Shapes, config: Config) -> dict[str, int]:
    return {"latent_channels": config["latent_channels"], ALL_FRAMES: 1}


LTX_2_5_VIDEO_DECODER: Final = Architecture(
    "ltx-2.5",
    "LTX-2.5",
    Role.VIDEO_DECODER,
    (
        (
            "diffusers",
            ("decoder.shared_adaln.proj.weight", "decoder.det_stages.0.0.norm1.weight"),
        ),
    ),
    class_name="LTX2VideoDiffusionDecoderModel",
    config=_config,
    geometry=_geometry,
    evidence="decoder.det_stages and decoder.shared_adaln keys",
)
