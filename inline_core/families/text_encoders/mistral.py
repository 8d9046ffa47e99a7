"""Mistral Small 3 as a text encoder: the first layers of its language model, as FLUX.2 reads them.

Imports torch and transformers, so it is imported on the device thread only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import torch
from transformers import MistralConfig, MistralModel

from inline_core.families.text_encoders import loaded
from inline_core.families.text_encoders.loaded import TextEncoder
from inline_core.loading.stream import LoadPlan

# Nobody reads what comes after layer 30 of 40, and the files of ComfyUI end there: the rest stays
# on the disk.
LAYERS_READ: Final = 30
# In no shape; from the published config of Mistral Small 3.1 and 3.2 24B.
_ROPE_THETA: Final = 1_000_000_000.0
_EPS: Final = 1e-5
_SPECIAL: Final = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
# One system and one user turn of the published template; folders may lack its file.
CHAT_TEMPLATE: Final = (
    "{{ bos_token }}{% for message in messages %}"
    "{% set words = message.content if message.content is string else message.content[0].text %}"
    "{% if message.role == 'system' %}[SYSTEM_PROMPT]{{ words }}[/SYSTEM_PROMPT]"
    "{% else %}[INST]{{ words }}[/INST]{% endif %}{% endfor %}"
)


def load_tokenizer(folder: Path, label: str) -> Any:
    """The tokenizer in `folder`, of the encoder `label`.  Raises: ModelFileMissing."""
    tokenizer = loaded.with_special_tokens(loaded.load_tokenizer(folder, label), _SPECIAL)
    if not tokenizer.chat_template:
        tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def load_text_encoder(plan: LoadPlan, tokenizer: Any) -> TextEncoder:
    """The language model with its tokenizer.  Raises: ModelFileInvalid, RunCancelled.

    Its last hidden states are those of the last layer that is read, before any norm.
    """
    config = text_config(plan)
    prefix, names = plan.identity.prefix, plan.logical.tensors
    read = [f"{prefix}embed_tokens."]
    read += [f"{prefix}layers.{layer}." for layer in range(config.num_hidden_layers)]
    # The vision tower, the head, the last layers, and the tokenizer inside ComfyUI's files.
    others = [name for name in names if not name.startswith(tuple(read))]

    def build() -> MistralModel:
        model = MistralModel(config)
        model.norm = torch.nn.Identity()
        return model

    return loaded.load_encoder(plan, tokenizer, build, lambda model: model.layers, ignorable=others)


def text_config(plan: LoadPlan) -> MistralConfig:
    """The config from shapes; what a config.json beside the file says wins."""
    told = plan.files.config
    inner = told.get("text_config") if told.get("model_type") == "mistral3" else None
    if isinstance(inner, dict):
        config = MistralConfig(**inner)
    elif told.get("model_type") == "mistral":
        config = MistralConfig.from_dict(dict(told))
    else:
        found = dict(plan.identity.config)
        config = MistralConfig(
            **found.get("text_config", found),
            rms_norm_eps=_EPS,
            rope_parameters={"rope_type": "default", "rope_theta": _ROPE_THETA},
            sliding_window=None,
        )
    config.num_hidden_layers = min(config.num_hidden_layers, LAYERS_READ)
    return config
