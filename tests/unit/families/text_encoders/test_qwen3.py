from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import Qwen3Config, Qwen3Model

from inline_core.families.text_encoders.qwen3 import (
    load_text_encoder,
    load_tokenizer,
    text_encoder_config,
)
from inline_core.families.z_image.text import encode_prompt
from tests import tiny
from tests.plans import plan_of, plan_of_shapes


def test_the_real_text_encoder_comes_out_of_its_header() -> None:
    config = Qwen3Config(
        vocab_size=151936,
        hidden_size=2560,
        intermediate_size=9728,
        num_hidden_layers=36,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
        rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
    )
    with torch.device("meta"):
        state = Qwen3Model(config).state_dict()
    plan = plan_of_shapes({f"model.{name}": tuple(tensor.shape) for name, tensor in state.items()})
    derived = text_encoder_config(plan)
    for key in (
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "rms_norm_eps",
    ):
        assert getattr(derived, key) == getattr(config, key), key
    assert derived.rope_parameters["rope_theta"] == 1_000_000.0


@pytest.mark.parametrize("layout", ["folder", "model.", ""])
def test_every_text_encoder_layout_gives_the_same_features(tmp_path: Path, layout: str) -> None:
    model = tiny.text_encoder()
    if layout == "folder":
        path = tokens = tiny.save_text_encoder_folder(tmp_path / "qwen", model)
    else:
        path = tiny.save_text_encoder_file(tmp_path / "q.safetensors", model, prefix=layout)
        tokens = tmp_path / "q.tokenizer"
    encoder = load_text_encoder(plan_of(path), load_tokenizer(tokens, "x"))
    with torch.inference_mode():
        features = encode_prompt(encoder, "a red circle").features
        ids = tiny.tokenizer()(
            "<|im_start|>user\na red circle<|im_end|>\n<|im_start|>assistant\n", return_tensors="pt"
        ).input_ids
        wanted = model(input_ids=ids, output_hidden_states=True).hidden_states[-2][0]
    assert torch.allclose(features, wanted, atol=1e-6)
