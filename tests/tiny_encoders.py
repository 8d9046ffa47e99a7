"""Tiny random CLIP, T5 and Qwen3-VL text encoders, and tokenizers of the real classes made without files."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any, Final

import torch
from tokenizers.pre_tokenizers import ByteLevel
from transformers import (
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTextModelWithProjection,
    CLIPTokenizer,
    Qwen3VLConfig,
    T5Config,
    T5EncoderModel,
    T5Tokenizer,
)

from tests import tiny

# Above the vocabularies that count as ByT5's.
T5_VOCABULARY: Final = 2100
_CLIP_VOCABULARY: Final = 2 * 256 + 2


def clip_tokenizer(pad: str = "<|endoftext|>") -> CLIPTokenizer:
    """One token a character; `pad` fills up to 77."""
    letters = sorted(ByteLevel.alphabet())
    tokens = [*letters, *(f"{letter}</w>" for letter in letters)]
    tokens += ["<|startoftext|>", "<|endoftext|>"]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    return CLIPTokenizer(vocab=vocabulary, merges=[], pad_token=pad, model_max_length=77)


def t5_tokenizer() -> T5Tokenizer:
    """One token a letter; words begin with their own token."""
    letters = [(letter, -2.0) for letter in string.ascii_letters + string.digits + ".,"]
    known = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0), *letters]
    return T5Tokenizer(vocab=known, extra_ids=0, model_max_length=512)


def clip(
    seed: int = 40, width: int = 64, *, projected: bool = False, layers: int = 2, **changes: Any
) -> Any:
    """A CLIP with heads of 64, as all published ones have."""
    torch.manual_seed(seed)
    values: dict[str, Any] = {
        "vocab_size": _CLIP_VOCABULARY,
        "hidden_size": width,
        "intermediate_size": 2 * width,
        "num_hidden_layers": layers,
        "num_attention_heads": width // 64,
        "projection_dim": width,
        "hidden_act": "gelu",
        "bos_token_id": _CLIP_VOCABULARY - 2,
        "eos_token_id": _CLIP_VOCABULARY - 1,
    }
    config = CLIPTextConfig(**{**values, **changes})
    model = (CLIPTextModelWithProjection if projected else CLIPTextModel)(config)
    tiny.randomise(model, 0.2)
    return model.eval()


def t5(seed: int = 41, width: int = 32, **changes: Any) -> T5EncoderModel:
    """A gated T5 1.1 encoder of two layers."""
    torch.manual_seed(seed)
    values: dict[str, Any] = {
        "vocab_size": T5_VOCABULARY,
        "d_model": width,
        "d_kv": 8,
        "d_ff": 48,
        "num_layers": 2,
        "num_heads": 2,
        "feed_forward_proj": "gated-gelu",
    }
    model = T5EncoderModel(T5Config(**{**values, **changes}))
    tiny.randomise(model, 0.2)
    return model.eval()


def qwen3_vl_config(
    width: int, inner: int, layers: int, blocks: int, **token_ids: int
) -> Qwen3VLConfig:
    """A Qwen3-VL with one head of 16; `blocks` are those of its vision tower."""
    return Qwen3VLConfig(
        text_config={
            "vocab_size": 272,
            "hidden_size": width,
            "intermediate_size": inner,
            "num_hidden_layers": layers,
            "num_attention_heads": 1,
            "num_key_value_heads": 1,
            "head_dim": 16,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 5_000_000.0,
                "mrope_section": [4, 2, 2],
                "mrope_interleaved": True,
            },
        },
        vision_config={
            "depth": blocks,
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_heads": 1,
            "out_hidden_size": width,
            "num_position_embeddings": 16,
            "deepstack_visual_indexes": [0],
        },
        **token_ids,
    )


def clip_keys(model: Any) -> dict[str, torch.Tensor]:
    """The names of published files, which have `text_model.` before them."""
    return {
        name if name.startswith(("text_model.", "text_projection")) else f"text_model.{name}": value
        for name, value in model.state_dict().items()
    }


def save_clip_file(path: Path, model: Any, pad: str = "<|endoftext|>") -> Path:
    """A single file as ComfyUI has it, with a tensor that nobody needs, and its tokenizer."""
    extra = {"text_model.embeddings.position_ids": torch.arange(77)[None]}
    tiny.save({**clip_keys(model), **extra}, path)
    clip_tokenizer(pad).save_pretrained(path.parent / f"{path.stem}.tokenizer")
    tiny.settle(path.parent)
    return path


def save_t5_file(path: Path, model: T5EncoderModel) -> Path:
    """A single file as ComfyUI has it: the embedding under both names, and its tokenizer."""
    state = {**model.state_dict()}
    state["encoder.embed_tokens.weight"] = state["shared.weight"]
    tiny.save(state, path)
    t5_tokenizer().save_pretrained(path.parent / f"{path.stem}.tokenizer")
    tiny.settle(path.parent)
    return path


def save_folder(folder: Path, model: Any, tokenizer: Any) -> Path:
    """What save_pretrained of model and tokenizer writes."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    tiny.settle(folder)
    return folder
