"""Which keys give an architecture away: one row per architecture, checked from top to bottom.

Source: the original and diffusers layouts of each architecture, tried on tiny and real sizes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from inline_core.loading.component import Role

PREFIXES: Final = ("model.diffusion_model.", "diffusion_model.", "transformer.")


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """An architecture whose files hold every key of one of the `layouts`.

    A key that ends in `*` stands for any key that starts so.  `label` is the name for people.
    """

    family: str
    label: str
    role: Role
    layouts: tuple[tuple[str, ...], ...]

    def layout_of(self, keys: Collection[str]) -> int | None:
        """Index of the layout that `keys` show, or None."""
        for index, layout in enumerate(self.layouts):
            if all(_present(key, keys) for key in layout):
                return index
        return None


def _present(key: str, keys: Collection[str]) -> bool:
    if key.endswith("*"):
        start = key[:-1]
        return any(other.startswith(start) for other in keys)
    return key in keys


_MODEL = Role.DIFFUSION_MODEL

DIFFUSION_MODELS: Final = (
    Fingerprint(
        "z-image",
        "Z-Image",
        _MODEL,
        (
            ("cap_embedder.1.weight", "x_pad_token", "x_embedder.weight"),
            ("all_x_embedder.2-1.weight", "x_pad_token"),
        ),
    ),
    Fingerprint(
        "lumina2",
        "Lumina 2",
        _MODEL,
        (("cap_embedder.1.weight",), ("time_caption_embed.caption_embedder.1.weight",)),
    ),
    Fingerprint(
        "krea-2",
        "Krea 2",
        _MODEL,
        (("txtfusion.projector.weight",), ("text_fusion.projector.weight",)),
    ),
    Fingerprint("chroma", "Chroma", _MODEL, (("distilled_guidance_layer.*",),)),
    Fingerprint(
        "flux-2",
        "FLUX.2",
        _MODEL,
        (("single_stream_modulation.lin.weight",), ("single_stream_modulation.linear.weight",)),
    ),
    Fingerprint(
        "flux-1",
        "FLUX.1",
        _MODEL,
        (
            ("double_blocks.0.img_attn.norm.key_norm.scale",),
            (
                "time_text_embed.text_embedder.linear_1.weight",
                "single_transformer_blocks.0.norm.linear.weight",
            ),
        ),
    ),
    Fingerprint(
        "qwen-image",
        "Qwen-Image",
        _MODEL,
        (("txt_norm.weight", "img_in.weight"), ("txt_in.text_norm.weight",)),
    ),
    Fingerprint(
        "wan", "Wan", _MODEL, (("head.modulation",), ("condition_embedder.time_proj.weight",))
    ),
    Fingerprint("ltx-2", "LTX-2", _MODEL, (("av_ca_a2v_gate_adaln_single.*",),)),
    Fingerprint("ltx-video", "LTX-Video", _MODEL, (("adaln_single.*", "patchify_proj.weight"),)),
    Fingerprint("hunyuan-video", "HunyuanVideo", _MODEL, (("txt_in.individual_token_refiner.*",),)),
    Fingerprint(
        "minimax-h3", "MiniMax H3", _MODEL, (("token_refiner.blocks.0.attn.qkv_proj.weight",),)
    ),
    Fingerprint(
        "omnigen2", "OmniGen2", _MODEL, (("time_caption_embed.timestep_embedder.linear_1.bias",),)
    ),
    Fingerprint(
        "sd3",
        "Stable Diffusion 3",
        _MODEL,
        (("joint_blocks.0.context_block.*",), ("joint_blocks.0.x_block.*",)),
    ),
    Fingerprint(
        "sd-unet",
        "Stable Diffusion",
        _MODEL,
        (
            ("input_blocks.0.0.weight",),
            ("down_blocks.0.resnets.0.norm1.weight", "time_embedding.linear_1.weight"),
        ),
    ),
)

OTHER_FILES: Final = (
    Fingerprint(
        "controlnet",
        "a ControlNet",
        Role.CONTROLNET,
        (("control_layers.*",), ("controlnet_*",), ("control_model.*",), ("input_hint_block.*",)),
    ),
    Fingerprint(
        "autoencoder-video",
        "a video VAE",
        Role.VAE,
        (("decoder.middle.0.residual.0.gamma",), ("decoder.mid_block.resnets.0.norm1.gamma",)),
    ),
    Fingerprint(
        "autoencoder-kl",
        "an image VAE",
        Role.VAE,
        (
            ("decoder.conv_in.weight", "decoder.mid.block_1.norm1.weight"),
            ("decoder.conv_in.weight", "decoder.mid_block.resnets.0.norm1.weight"),
        ),
    ),
    Fingerprint(
        "t5",
        "a T5 text encoder",
        Role.TEXT_ENCODER,
        (("encoder.block.0.layer.0.SelfAttention.q.weight",),),
    ),
    Fingerprint(
        "clip-vision",
        "a CLIP vision model",
        Role.CLIP_VISION,
        (("vision_model.embeddings.class_embedding",),),
    ),
    Fingerprint(
        "clip",
        "a CLIP text encoder",
        Role.TEXT_ENCODER,
        (("text_model.embeddings.token_embedding.weight",),),
    ),
    Fingerprint(
        "upscaler",
        "an upscaler",
        Role.UPSCALER,
        (("conv_first.weight", "conv_last.weight"), ("model.0.weight", "model.1.sub.*")),
    ),
)
