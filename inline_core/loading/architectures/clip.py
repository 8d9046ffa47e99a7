"""CLIP text encoders (L, G, H), CLIP vision and SigLIP vision."""

from __future__ import annotations

from typing import Final

from inline_core.loading.architectures.architecture import Architecture, Config
from inline_core.loading.architectures.shapes import Shapes
from inline_core.loading.component import Role

_HEAD_DIM: Final = 64  # of the text encoders; in no shape
_TEXT_VARIANTS: Final = {768: "l", 1024: "h", 1280: "g"}
_VISION_VARIANTS: Final = {768: "b", 1024: "l", 1280: "h", 1664: "g"}
# Heads are in no shape; published configs by width (a head of 64 otherwise).
_VISION_HEADS: Final = {1280: 16, 1664: 16, 1152: 16}
_TOKENS: Final = "embeddings.token_embedding.weight"
_PLACES: Final = "embeddings.position_embedding.weight"
_LAYER: Final = "encoder.layers."
_VISION: Final = "vision_model."


def _inner(shapes: Shapes) -> str:
    """What stands before the names: transformers 5 saves CLIPTextModel without it."""
    return "text_model." if f"text_model.{_TOKENS}" in shapes else ""


def _text(shapes: Shapes) -> Config:
    inner = _inner(shapes)
    vocabulary, width = shapes.shape(inner + _TOKENS)
    config: Config = {
        "vocab_size": vocabulary,
        "hidden_size": width,
        "intermediate_size": shapes.rows(f"{inner}{_LAYER}0.mlp.fc1.weight"),
        "num_hidden_layers": shapes.count(inner + _LAYER),
        "num_attention_heads": max(width // _HEAD_DIM, 1),
        "max_position_embeddings": shapes.rows(inner + _PLACES),
        # Only OpenAI's CLIP-L has quick_gelu; in no shape.
        "hidden_act": "quick_gelu" if _TEXT_VARIANTS.get(width) == "l" else "gelu",
    }
    if "text_projection.weight" in shapes:
        config["projection_dim"] = shapes.rows("text_projection.weight")
    return config


def _text_geometry(shapes: Shapes, config: Config) -> dict[str, int]:
    return {
        "vocab_size": config["vocab_size"],
        "hidden_size": config["hidden_size"],
        "n_layers": shapes.count(_inner(shapes) + _LAYER),
    }


def _clip(class_name: str, *, projected: bool) -> Architecture:
    return Architecture(
        "clip",
        "CLIP",
        Role.TEXT_ENCODER,
        (
            ("transformers", (f"text_model.{_TOKENS}",)),
            ("bare", (_TOKENS, _PLACES, f"{_LAYER}0.self_attn.q_proj.weight")),
        ),
        class_name=class_name,
        config=_text,
        geometry=_text_geometry,
        variant=lambda _, config: _TEXT_VARIANTS.get(config["hidden_size"], ""),
        condition=lambda shapes: not projected or "text_projection.weight" in shapes,
        evidence="text_model.* keys",
    )


CLIP_WITH_PROJECTION: Final = _clip("CLIPTextModelWithProjection", projected=True)
CLIP: Final = _clip("CLIPTextModel", projected=False)


def _open_clip(shapes: Shapes) -> Config:
    """The same sizes by the names of OpenCLIP; all of its text encoders have gelu."""
    vocabulary, width = shapes.shape("token_embedding.weight")
    config: Config = {
        "vocab_size": vocabulary,
        "hidden_size": width,
        "intermediate_size": shapes.rows("transformer.resblocks.0.mlp.c_fc.weight"),
        "num_hidden_layers": shapes.count("transformer.resblocks."),
        "num_attention_heads": max(width // _HEAD_DIM, 1),
        "max_position_embeddings": shapes.rows("positional_embedding"),
        "hidden_act": "gelu",
    }
    if "text_projection" in shapes:
        config["projection_dim"] = shapes.columns("text_projection")
    elif "text_projection.weight" in shapes:
        config["projection_dim"] = shapes.rows("text_projection.weight")
    return config


OPEN_CLIP: Final = Architecture(
    "clip",
    "CLIP (OpenCLIP)",
    Role.TEXT_ENCODER,
    (("original", ("transformer.resblocks.0.attn.in_proj_weight", "token_embedding.weight")),),
    class_name="CLIPTextModelWithProjection",
    config=_open_clip,
    geometry=lambda shapes, _: {
        "vocab_size": shapes.rows("token_embedding.weight"),
        "hidden_size": shapes.columns("token_embedding.weight"),
        "n_layers": shapes.count("transformer.resblocks."),
    },
    variant=lambda _, config: _TEXT_VARIANTS.get(config["hidden_size"], ""),
)


def _vision(shapes: Shapes) -> Config:
    start = f"{_VISION}embeddings."
    width, channels, patch, _ = shapes.shape(f"{start}patch_embedding.weight")
    positions = shapes.rows(f"{start}position_embedding.weight")
    positions -= f"{start}class_embedding" in shapes
    layer = f"{_VISION}encoder.layers."
    return {
        "hidden_size": width,
        "num_channels": channels,
        "patch_size": patch,
        "image_size": round(positions**0.5) * patch,
        "intermediate_size": shapes.rows(f"{layer}0.mlp.fc1.weight"),
        "num_hidden_layers": shapes.count(layer),
        "num_attention_heads": _VISION_HEADS.get(width, max(width // _HEAD_DIM, 1)),
    }


def _clip_vision(shapes: Shapes) -> Config:
    config = _vision(shapes)
    config["hidden_act"] = "quick_gelu" if config["hidden_size"] <= 1024 else "gelu"  # noqa: PLR2004 - OpenAI's
    if "visual_projection.weight" in shapes:
        config["projection_dim"] = shapes.rows("visual_projection.weight")
    return config


def _clip_vision_model(class_name: str, *, projected: bool) -> Architecture:
    return Architecture(
        "clip-vision",
        "CLIP",
        Role.CLIP_VISION,
        (("transformers", ("vision_model.embeddings.class_embedding",)),),
        class_name=class_name,
        config=_clip_vision,
        variant=lambda _, config: _VISION_VARIANTS.get(config["hidden_size"], ""),
        condition=lambda shapes: not projected or "visual_projection.weight" in shapes,
        evidence="vision_model.* keys",
    )


CLIP_VISION_WITH_PROJECTION: Final = _clip_vision_model(
    "CLIPVisionModelWithProjection", projected=True
)
CLIP_VISION: Final = _clip_vision_model("CLIPVisionModel", projected=False)
SIGLIP_VISION: Final = Architecture(
    "siglip-vision",
    "SigLIP",
    Role.CLIP_VISION,
    (("transformers", ("vision_model.embeddings.patch_embedding.bias",)),),
    class_name="SiglipVisionModel",
    config=lambda shapes: (
        _vision(shapes) | {"vision_use_head": "vision_model.head.probe" in shapes}
    ),
    evidence="vision_model.* keys",
)
