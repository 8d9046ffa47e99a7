"""CLIP against transformers' own classes, from the layouts people have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import CLIPTextConfig, CLIPTextModelWithProjection

from inline_core.families.text_encoders.clip import (
    clip_config,
    clip_tokens,
    load_text_encoder,
    load_tokenizer,
    padding,
    states,
)
from inline_core.families.text_encoders.loaded import TextEncoder
from inline_core.loading.interruption import Interruption
from tests import tiny, tiny_encoders
from tests.plans import plan_of, plan_of_shapes


def loaded(path: Path, tokens: Path) -> TextEncoder:
    return load_text_encoder(plan_of(path), load_tokenizer(tokens, "x"))


def saved(folder: Path, layout: str, model: Any) -> TextEncoder:
    if layout == "folder":
        path = tiny_encoders.save_folder(folder / "clip", model, tiny_encoders.clip_tokenizer())
        return loaded(path, path)
    path = tiny_encoders.save_clip_file(folder / "clip.safetensors", model)
    return loaded(path, folder / "clip.tokenizer")


@pytest.mark.parametrize("layout", ["folder", "file"])
@pytest.mark.parametrize("projected", [False, True])
def test_states_are_those_of_transformers(tmp_path: Path, layout: str, *, projected: bool) -> None:
    model = tiny_encoders.clip(projected=projected)
    encoder = saved(tmp_path, layout, model)
    inputs = tiny_encoders.clip_tokenizer()(
        "A red circle", padding="max_length", max_length=77, truncation=True, return_tensors="pt"
    )
    tokens, cut = clip_tokens(encoder, "A red circle")
    assert (cut, tokens.shape) == (0, (1, 77))
    assert torch.equal(tokens, inputs.input_ids)
    with torch.inference_mode():
        found = states(encoder, tokens)
        wanted = model(input_ids=inputs.input_ids, output_hidden_states=True)
    assert torch.allclose(found.layers[-2], wanted.hidden_states[-2], atol=1e-6)
    assert torch.allclose(found.last, wanted.last_hidden_state, atol=1e-6)
    assert found.last.std() > 0.1
    if projected:
        assert found.projected is not None
        assert torch.allclose(found.projected, wanted.text_embeds, atol=1e-6)
    else:
        assert found.projected is None
        assert torch.allclose(found.pooled, wanted.pooler_output, atol=1e-6)


def test_a_long_prompt_keeps_its_end(tmp_path: Path) -> None:
    encoder = saved(tmp_path, "file", tiny_encoders.clip())
    wanted = tiny_encoders.clip_tokenizer()(
        "b" * 100, padding="max_length", max_length=77, truncation=True, return_tensors="pt"
    )
    tokens, cut = clip_tokens(encoder, "b" * 100)
    assert cut == 25
    assert torch.equal(tokens, wanted.input_ids)


@pytest.mark.parametrize(
    ("width", "pad", "wanted"),
    [
        (64, "!", 0),  # an unknown kind: what its tokenizer says
        (64, "<|endoftext|>", 513),
        (768, "!", 513),  # L beside the tokenizer of G
        (1280, "<|endoftext|>", 0),  # and the other way round
        (1024, "<|endoftext|>", 0),
    ],
)
def test_padding_is_what_the_kind_was_trained_with(width: int, pad: str, wanted: int) -> None:
    with torch.device("meta"):
        model = CLIPTextModelWithProjection(CLIPTextConfig(hidden_size=width, num_hidden_layers=1))
    tokenizer = tiny_encoders.clip_tokenizer(pad)
    assert padding(TextEncoder(model, tokenizer, "cpu", Interruption([]))) == wanted


def test_a_tokenizer_of_vocab_and_merges_will_do(tmp_path: Path) -> None:
    """As the pipelines of FLUX.1 and SD3 have it; G pads with its first token."""
    wanted = tiny_encoders.clip_tokenizer("!")
    (tmp_path / "vocab.json").write_text(json.dumps(wanted.get_vocab()))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    told = {"tokenizer_class": "CLIPTokenizer", "model_max_length": 77, "pad_token": "!"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(told))
    found = load_tokenizer(tmp_path, "x")
    assert found("A cat!").input_ids == wanted("A cat!").input_ids
    assert (found.pad_token_id, found.eos_token_id) == (0, 513)


def test_a_file_without_its_embedding_is_refused(tmp_path: Path) -> None:
    state = tiny_encoders.clip_keys(tiny_encoders.clip())
    del state["text_model.final_layer_norm.weight"]
    path = tiny.save(state, tmp_path / "clip.safetensors")
    with pytest.raises(Exception, match="1 weights missing"):
        load_text_encoder(plan_of(path), tiny_encoders.clip_tokenizer())


def test_the_real_encoders_come_out_of_their_headers() -> None:
    for width, layers, heads, act in ((768, 12, 12, "quick_gelu"), (1280, 32, 20, "gelu")):
        config = CLIPTextConfig(
            hidden_size=width,
            intermediate_size=4 * width,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            projection_dim=width,
            hidden_act=act,
        )
        with torch.device("meta"):
            state = CLIPTextModelWithProjection(config).state_dict()
        derived = clip_config(plan_of_shapes({n: tuple(t.shape) for n, t in state.items()}))
        for key in (
            "hidden_size",
            "intermediate_size",
            "num_hidden_layers",
            "num_attention_heads",
            "projection_dim",
            "hidden_act",
            "vocab_size",
            "max_position_embeddings",
            "layer_norm_eps",
        ):
            assert getattr(derived, key) == getattr(config, key), (width, key)
