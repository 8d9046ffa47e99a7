"""The text connectors of LTX-2: all layers of the text encoder to what the model attends to.

Imports torch and diffusers, so it is imported on the device thread only.
"""

from __future__ import annotations

from typing import Any, Final

from diffusers.pipelines.ltx2 import LTX2TextConnectors

from inline_core.families.ltx2.components import rope_of
from inline_core.families.ltx2.keys import connector_sources
from inline_core.families.text_encoders.loaded import TextEncoder, load_encoder
from inline_core.loading.architectures.shapes import Shapes
from inline_core.loading.stream import LoadPlan, TensorSource

# Of the published configs, by the width of a connector: (heads, size of a head); in no shape.
_HEADS: Final = {3840: (30, 128), 4096: (32, 128), 2048: (32, 64)}
_GEMMA: Final = 3840


def load_text_encoder(plan: LoadPlan, tokenizer: Any) -> TextEncoder:
    """The connectors; they read features, so that they have no tokenizer.

    Raises: ModelFileInvalid, RunCancelled.
    """
    sources = connector_sources(plan.logical.tensors, plan.identity.prefix)
    told = {key: value for key, value in plan.files.config.items() if key in _config(plan, sources)}
    config = {**_config(plan, sources), **told}
    return load_encoder(
        plan,
        tokenizer,
        lambda: LTX2TextConnectors(**config),
        lambda model: [
            *model.video_connector.transformer_blocks,
            *model.audio_connector.transformer_blocks,
        ],
        sources=sources,
    )


def _config(plan: LoadPlan, sources: dict[str, TensorSource]) -> dict[str, Any]:
    """The arguments of the class from shapes, with what is published for the rest."""
    named = {name: plan.logical.tensors[source.name] for name, source in sources.items()}
    shapes = Shapes(named)
    own = "video_text_proj_in.weight" in named
    projected = shapes.columns("video_text_proj_in.weight", "text_proj_in.weight")
    caption = _GEMMA if own else shapes.rows("text_proj_in.weight")
    config: dict[str, Any] = {
        "caption_channels": caption,
        "text_proj_in_factor": projected // caption,
        "per_modality_projections": own,
        "proj_bias": "text_proj_in.bias" in named or "video_text_proj_in.bias" in named,
        "rope_type": rope_of(plan.files),
        "connector_rope_base_seq_len": 4096,
        "rope_theta": 10_000.0,
        "rope_double_precision": True,
        "causal_temporal_positioning": False,
    }
    for side in ("video", "audio"):
        start = f"{side}_connector."
        registers, width = shapes.shape(f"{start}learnable_registers")
        heads, head_dim = _HEADS.get(width, (1, width))
        config |= {
            f"{start[:-1]}_num_attention_heads": heads,
            f"{start[:-1]}_attention_head_dim": head_dim,
            f"{start[:-1]}_num_layers": shapes.count(f"{start}transformer_blocks."),
            f"{start[:-1]}_num_learnable_registers": registers,
            f"{side}_gated_attn": f"{start}transformer_blocks.0.attn1.to_gate_logits.weight"
            in named,
        }
        if own:
            config[f"{side}_hidden_dim"] = width
    return config
