"""Language models used as text encoders: Qwen3, Qwen3-VL, Qwen2.5-VL, Gemma 2 to 4, Mistral.

Files name the same layers in five ways; `start_of` finds which.  Head sizes without a norm, rope
and special tokens are in no shape: they come from the classes of transformers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from inline_core.loading.architectures.architecture import Architecture, Config, Layouts
from inline_core.loading.architectures.shapes import MissingTensorError, Shapes
from inline_core.loading.component import Role

_EMBEDDING: Final = "embed_tokens.weight"
_BY_LAYER: Final = "embed_tokens_per_layer.weight"
_STARTS: Final = (
    "model.language_model.",
    "language_model.model.",
    "language_model.",
    "model.",
    "",
)
_VISION: Final = ("visual.", "model.visual.", "vision_tower.", "model.vision_tower.")
_HEAD_DIM: Final = 128  # Qwen2.5 and Mistral, where no norm tells
_GEMMA_HEAD_DIM: Final = 256
_MISTRAL_VOCABULARY: Final = 131_072
# Layers of the vision tower whose features Qwen3-VL hands on, by its depth; published configs.
_DEEPSTACK: Final = {27: [8, 16, 24], 24: [5, 11, 17]}

LAYOUTS: Final[Layouts] = tuple((start or "bare", (start + _EMBEDDING,)) for start in _STARTS)


def start_of(shapes: Shapes) -> str:
    """The prefix of the language model's names.  Raises: MissingTensorError."""
    for start in _STARTS:
        if start + _EMBEDDING in shapes:
            return start
    raise MissingTensorError(_EMBEDDING)


def _vision(shapes: Shapes) -> str | None:
    """The prefix of the vision tower, or None."""
    probes = ("patch_embed.proj.weight", "patch_conv.weight", "embeddings.patch_embedding.weight")
    for start in _VISION:
        for inner in ("", "vision_model."):
            if any(f"{start}{inner}{probe}" in shapes for probe in probes):
                return start + inner
    return None


def _language(shapes: Shapes, head_dim: int = 0) -> Config:
    """The arguments that all of them have; `head_dim` where no norm tells."""
    start = start_of(shapes)
    vocabulary, hidden = shapes.shape(start + _EMBEDDING)
    layer = f"{start}layers.0."
    norm = f"{layer}self_attn.q_norm.weight"
    head_dim = shapes.rows(norm) if norm in shapes else head_dim
    return {
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "intermediate_size": shapes.rows(f"{layer}mlp.gate_proj.weight"),
        "num_hidden_layers": shapes.count(f"{start}layers."),
        "num_attention_heads": shapes.rows(f"{layer}self_attn.q_proj.weight") // head_dim,
        "num_key_value_heads": shapes.rows(f"{layer}self_attn.k_proj.weight") // head_dim,
        "head_dim": head_dim,
    }


def _geometry(shapes: Shapes, _: Config) -> dict[str, int]:
    start = start_of(shapes)
    vocabulary, hidden = shapes.shape(start + _EMBEDDING)
    return {
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "n_layers": shapes.count(f"{start}layers."),
    }


def _layer_has(name: str) -> Callable[[Shapes], bool]:
    return lambda shapes: f"{start_of(shapes)}layers.0.{name}" in shapes


_query_norms = _layer_has("self_attn.q_norm.weight")
_query_biases = _layer_has("self_attn.q_proj.bias")
_sandwich_norms = _layer_has("post_feedforward_layernorm.weight")
_scaled_layers = _layer_has("layer_scalar")


def _qwen3_vl(shapes: Shapes) -> Config:
    return {"text_config": _language(shapes), "vision_config": _qwen3_vision(shapes)}


def _qwen3_vision(shapes: Shapes) -> Config:
    start = _vision(shapes) or ""
    patch = shapes.shape(f"{start}patch_embed.proj.weight")
    depth = shapes.count(f"{start}blocks.")
    merged, _ = shapes.shape(f"{start}merger.linear_fc1.weight")
    count = shapes.count(f"{start}deepstack_merger_list.")
    evenly = [(index + 1) * depth // (count + 1) for index in range(count)]
    return {
        "depth": depth,
        "hidden_size": patch[0],
        "in_channels": patch[1],
        "temporal_patch_size": patch[2],
        "patch_size": patch[3],
        "intermediate_size": shapes.rows(f"{start}blocks.0.mlp.linear_fc1.weight"),
        "out_hidden_size": shapes.rows(f"{start}merger.linear_fc2.weight"),
        "spatial_merge_size": round((merged // patch[0]) ** 0.5),
        "num_position_embeddings": shapes.rows(f"{start}pos_embed.weight"),
        "deepstack_visual_indexes": _DEEPSTACK.get(depth, evenly),
    }


def _qwen2_5_vl(shapes: Shapes) -> Config:
    language = _language(shapes, _HEAD_DIM)
    language.pop("head_dim")  # hidden size / heads in this class
    start = _vision(shapes) or ""
    patch = shapes.shape(f"{start}patch_embed.proj.weight")
    out, merged = shapes.shape(f"{start}merger.mlp.2.weight")
    return {
        "text_config": language,
        "vision_config": {
            "depth": shapes.count(f"{start}blocks."),
            "hidden_size": patch[0],
            "in_channels": patch[1],
            "temporal_patch_size": patch[2],
            "patch_size": patch[3],
            "intermediate_size": shapes.rows(f"{start}blocks.0.mlp.gate_proj.weight"),
            "out_hidden_size": out,
            "spatial_merge_size": round((merged // patch[0]) ** 0.5),
        },
    }


def _mistral_3(shapes: Shapes) -> Config:
    language = _language(shapes, _HEAD_DIM)
    start = _vision(shapes)
    if start is None:
        return language
    width, channels, patch, _ = shapes.shape(f"{start}patch_conv.weight")
    layers = f"{start}transformer.layers."
    return {
        "text_config": language,
        "vision_config": {
            "hidden_size": width,
            "num_channels": channels,
            "patch_size": patch,
            "num_hidden_layers": shapes.count(layers),
            "intermediate_size": shapes.rows(f"{layers}0.feed_forward.gate_proj.weight"),
        },
    }


def _gemma_3(shapes: Shapes) -> Config:
    language = _language(shapes)
    start = _vision(shapes)
    if start is None:
        return language
    width, channels, patch, _ = shapes.shape(f"{start}embeddings.patch_embedding.weight")
    positions = shapes.rows(f"{start}embeddings.position_embedding.weight")
    return {
        "text_config": language,
        "vision_config": {
            "hidden_size": width,
            "num_channels": channels,
            "patch_size": patch,
            "image_size": round(positions**0.5) * patch,
            "num_hidden_layers": shapes.count(f"{start}encoder.layers."),
            "intermediate_size": shapes.rows(f"{start}encoder.layers.0.mlp.fc1.weight"),
            "vision_use_head": f"{start}head.probe" in shapes,
        },
    }


def _gemma_4(shapes: Shapes) -> Config:
    """Window, rope and scales are in no shape; layers without windows have heads of their own."""
    start = start_of(shapes)
    language = _language(shapes)
    count = language["num_hidden_layers"]
    attentions = [f"{start}layers.{index}.self_attn." for index in range(count)]
    sizes = [shapes.rows(f"{attention}q_norm.weight") for attention in attentions]
    kinds = {True: "sliding_attention", False: "full_attention"}
    own = [place for place in attentions if f"{place}k_proj.weight" in shapes]
    whole = own[-1] if sizes[0] == sizes[-1] else own[sizes.index(sizes[-1])]
    same = f"{whole}v_proj.weight" not in shapes
    config: Config = {
        **language,
        "global_head_dim": sizes[-1],
        "attention_k_eq_v": same,
        "num_kv_shared_layers": count - len(own),
        "use_double_wide_mlp": shapes.rows(f"{start}layers.{count - 1}.mlp.gate_proj.weight")
        > language["intermediate_size"],
    }
    if same:
        heads = shapes.rows(f"{whole}k_proj.weight") // sizes[-1]
        config["num_global_key_value_heads"] = heads
    if sizes[0] != sizes[-1]:
        config["layer_types"] = [kinds[size == sizes[0]] for size in sizes]
    return config


def _gemma_4_by_layer(shapes: Shapes) -> Config:
    """Those with an embedding for each layer (E2B, E4B)."""
    config = _gemma_4(shapes)
    vocabulary, width = shapes.shape(f"{start_of(shapes)}{_BY_LAYER}")
    return {
        **config,
        "vocab_size_per_layer_input": vocabulary,
        "hidden_size_per_layer_input": width // config["num_hidden_layers"],
    }


def _with_vision(shapes: Shapes) -> bool:
    return _vision(shapes) is not None


def _encoder(
    family: str,
    name: str,
    class_name: str,
    config: Callable[[Shapes], Config],
    condition: Callable[[Shapes], bool],
    evidence: str,
) -> Architecture:
    return Architecture(
        family,
        name,
        Role.TEXT_ENCODER,
        LAYOUTS,
        class_name=class_name,
        config=config,
        geometry=_geometry,
        condition=condition,
        evidence=evidence,
    )


def _is_mistral(shapes: Shapes) -> bool:
    return shapes.rows(start_of(shapes) + _EMBEDDING) == _MISTRAL_VOCABULARY


# From the most telling names to the least: every row may count on the ones above.
DECODERS: Final = (
    _encoder(
        "gemma4",
        "Gemma 4",
        "Gemma4TextModel",
        _gemma_4_by_layer,
        lambda shapes: _scaled_layers(shapes) and start_of(shapes) + _BY_LAYER in shapes,
        "layer_scalar and embed_tokens_per_layer keys",
    ),
    _encoder(
        "gemma4",
        "Gemma 4",
        "Gemma4UnifiedTextModel",
        _gemma_4,
        _scaled_layers,
        "layer_scalar keys",
    ),
    _encoder(
        "gemma3",
        "Gemma 3",
        "Gemma3Model",
        _gemma_3,
        lambda shapes: _sandwich_norms(shapes) and _query_norms(shapes) and _with_vision(shapes),
        "post_feedforward_layernorm and vision keys",
    ),
    _encoder(
        "gemma3",
        "Gemma 3",
        "Gemma3TextModel",
        _gemma_3,
        lambda shapes: _sandwich_norms(shapes) and _query_norms(shapes),
        "post_feedforward_layernorm and q_norm keys",
    ),
    _encoder(
        "gemma2",
        "Gemma 2",
        "Gemma2Model",
        lambda shapes: _language(shapes, _GEMMA_HEAD_DIM),
        _sandwich_norms,
        "post_feedforward_layernorm keys",
    ),
    _encoder(
        "qwen3-vl",
        "Qwen3-VL",
        "Qwen3VLModel",
        _qwen3_vl,
        lambda shapes: _query_norms(shapes) and _with_vision(shapes),
        "visual.* and self_attn.q_norm keys",
    ),
    _encoder(
        "qwen3",
        "Qwen3",
        "Qwen3Model",
        _language,
        _query_norms,
        "embed_tokens and self_attn.q_norm keys",
    ),
    _encoder(
        "qwen2.5-vl",
        "Qwen2.5-VL",
        "Qwen2_5_VLModel",
        _qwen2_5_vl,
        lambda shapes: _query_biases(shapes) and _with_vision(shapes),
        "visual.* and self_attn.q_proj.bias keys",
    ),
    _encoder(
        "qwen2.5",
        "Qwen2.5",
        "Qwen2Model",
        lambda shapes: {
            name: value
            for name, value in _language(shapes, _HEAD_DIM).items()
            if name != "head_dim"
        },
        _query_biases,
        "self_attn.q_proj.bias keys",
    ),
    _encoder(
        "mistral3",
        "Mistral 3",
        "Mistral3Model",
        _mistral_3,
        lambda shapes: _is_mistral(shapes) and _with_vision(shapes),
        "vision_tower.* and embed_tokens keys",
    ),
    _encoder(
        "mistral3",
        "Mistral 3",
        "MistralModel",
        _mistral_3,
        _is_mistral,
        "embed_tokens key with 131072 tokens",
    ),
)
OTHER_DECODER: Final = Architecture(
    "decoder",
    "",
    Role.TEXT_ENCODER,
    LAYOUTS,
    geometry=_geometry,
    evidence="embed_tokens key",
    words="decoder language model of another kind",
)
