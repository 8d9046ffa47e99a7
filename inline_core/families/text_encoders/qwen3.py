"""Qwen3 as a text encoder, as several families read it.

Imports torch and transformers, so it is imported on the device thread only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from transformers import Qwen3Config, Qwen3Model

from inline_core.families.text_encoders import loaded
from inline_core.families.text_encoders.loaded import TextEncoder
from inline_core.loading.stream import LoadPlan

# What the shapes do not tell; from the published configs.
ROPE_THETA: Final = 1_000_000.0
RMS_NORM_EPS: Final = 1e-6
# The user turn of Qwen3's template; some single-file setups lack the file.
CHAT_TEMPLATE: Final = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n"
    "{% endif %}{% endif %}"
)


def load_tokenizer(folder: Path, label: str) -> Any:
    """The tokenizer in `folder`, of the encoder `label`.  Raises: ModelFileMissing."""
    tokenizer = loaded.load_tokenizer(folder, label)
    if not tokenizer.chat_template:
        tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def load_text_encoder(plan: LoadPlan, tokenizer: Any) -> TextEncoder:
    """The text encoder with its tokenizer.  Raises: ModelFileInvalid, RunCancelled."""
    config = text_encoder_config(plan)
    return loaded.load_encoder(
        plan,
        tokenizer,
        lambda: Qwen3Model(config),
        lambda model: model.layers,
        ignorable=["lm_head.weight"],
    )


def text_encoder_config(plan: LoadPlan) -> Qwen3Config:
    """The text encoder's config from shapes; what a config.json beside the file says wins."""
    identity, told = plan.identity, plan.files.config
    if told.get("model_type") == "qwen3":
        return Qwen3Config.from_dict(dict(told))
    tensors = plan.logical.tensors
    layer = f"{identity.prefix}layers.0."
    head = tensors[f"{layer}self_attn.q_norm.weight"].shape[0]
    return Qwen3Config(
        vocab_size=identity.geometry["vocab_size"],
        hidden_size=identity.geometry["hidden_size"],
        intermediate_size=tensors[f"{layer}mlp.gate_proj.weight"].shape[0],
        num_hidden_layers=identity.geometry["n_layers"],
        num_attention_heads=tensors[f"{layer}self_attn.q_proj.weight"].shape[0] // head,
        num_key_value_heads=tensors[f"{layer}self_attn.k_proj.weight"].shape[0] // head,
        head_dim=head,
        rms_norm_eps=RMS_NORM_EPS,
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_THETA},
    )
