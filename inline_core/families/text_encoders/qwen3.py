"""Qwen3 as a text encoder: the loaded model with its tokenizer, as several families read it.

Imports torch and transformers, so it is imported on the device thread only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from transformers import AutoTokenizer, Qwen3Config, Qwen3Model
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

from inline_core.errors import ModelFileMissing
from inline_core.loading.interruption import Interruption
from inline_core.loading.offload import offload
from inline_core.loading.stream import LoadPlan, TensorSource, fill

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


@dataclass(frozen=True, slots=True, eq=False)
class Qwen3Encoder:
    """A loaded Qwen3Model and its tokenizer; inputs go to `device`.  One thread at a time.

    `interruption` asks between the layers.
    """

    model: Qwen3Model
    tokenizer: Any
    device: str
    interruption: Interruption


def load_tokenizer(folder: Path, label: str) -> Any:
    """The tokenizer in `folder`, of the encoder `label`.  Raises: ModelFileMissing."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).replace(str(folder), folder.name)
        message = f"the tokenizer of {label} in {folder.name}/ cannot be read: {reason}"
        raise ModelFileMissing(message) from error
    if not tokenizer.chat_template:
        tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def load_text_encoder(plan: LoadPlan, tokenizer: Any) -> Qwen3Encoder:
    """The text encoder with its tokenizer.  Raises: ModelFileInvalid, RunCancelled."""
    config = text_encoder_config(plan)
    with torch.device("meta"):
        model: Any = Qwen3Model(config)
    # Not a weight and not in any file: computed from the config.
    with torch.device(plan.placement.storage):
        model.rotary_emb = Qwen3RotaryEmbedding(config=config)
    sources = text_encoder_sources(plan.logical.tensors, plan.identity.prefix)
    fill(model, sources, plan, ignorable=["lm_head.weight"])
    offload(model, plan.placement)
    interruption = Interruption(model.layers)
    return Qwen3Encoder(model.eval(), tokenizer, plan.placement.device, interruption)


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


def text_encoder_sources(names: Iterable[str], prefix: str) -> dict[str, TensorSource]:
    """Module name -> place in the file; the language head of a full model is left out."""
    return {name[len(prefix) :]: TensorSource(name) for name in names if name.startswith(prefix)}
