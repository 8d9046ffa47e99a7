"""T5, UMT5 and ByT5 against transformers' own classes, from the layouts people have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import T5Config, T5Model, UMT5Config, UMT5EncoderModel

from inline_core.devices.placement import Placement
from inline_core.families.text_encoders.t5 import load_text_encoder, load_tokenizer, t5_tokens
from tests import tiny, tiny_encoders
from tests.plans import FLOAT32, plan_of

EMBEDDING = "encoder.embed_tokens.weight"
SHARED = "shared.weight"


def features(model: Any, tokens: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        found: torch.Tensor = model(input_ids=tokens)[0]
    return found


def check(path: Path, model: Any, placement: Placement = FLOAT32, tolerance: float = 1e-6) -> Any:
    """Load and compare what comes out; gives the loaded model."""
    encoder = load_text_encoder(plan_of(path, placement), tiny_encoders.t5_tokenizer())
    tokens, mask, cut = t5_tokens(encoder, "a red circle", 24)
    assert (tokens.shape, int(mask.sum()), cut) == ((1, 24), 14, 0)
    wanted = features(model, tokens)
    found = features(encoder.model, tokens).float()
    assert wanted.std() > 0.1
    assert (found - wanted).abs().max() <= tolerance * wanted.abs().max()
    return encoder.model


@pytest.mark.parametrize("names", [(SHARED,), (EMBEDDING,), (SHARED, EMBEDDING)])
def test_either_name_of_the_embedding_will_do(tmp_path: Path, names: tuple[str, ...]) -> None:
    model = tiny_encoders.t5()
    state = {name: value for name, value in model.state_dict().items() if name != EMBEDDING}
    embedding = state.pop(SHARED)
    state |= dict.fromkeys(names, embedding)
    path = tiny.save(state, tmp_path / "t5.safetensors")
    loaded = check(path, model)
    assert loaded.shared.weight is loaded.encoder.embed_tokens.weight


def test_a_folder_and_its_tokenizer(tmp_path: Path) -> None:
    model = tiny_encoders.t5(layer_norm_epsilon=1e-3)
    path = tiny_encoders.save_folder(tmp_path / "t5", model, tiny_encoders.t5_tokenizer())
    check(path, model)
    tokenizer = load_tokenizer(path, "x")
    assert tokenizer("a b").input_ids == tiny_encoders.t5_tokenizer()("a b").input_ids


def test_a_tokenizer_that_names_no_padding(tmp_path: Path) -> None:
    tiny_encoders.t5_tokenizer().save_pretrained(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": 512}')
    tokenizer = load_tokenizer(tmp_path, "x")
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id) == (0, 1)
    found = tokenizer("a", padding="max_length", max_length=6, truncation=True)
    wanted = tiny_encoders.t5_tokenizer()("a", padding="max_length", max_length=6)
    assert found.input_ids == wanted.input_ids


def test_of_a_whole_model_only_the_encoder_is_read(tmp_path: Path) -> None:
    torch.manual_seed(3)
    config = T5Config(vocab_size=2100, d_model=16, d_kv=8, d_ff=24, num_layers=1, num_heads=2)
    model = T5Model(config)
    tiny.randomise(model, 0.2)
    path = tiny.save({**model.state_dict()}, tmp_path / "whole.safetensors")
    check(path, model.encoder.eval())


def test_umt5_and_byt5(tmp_path: Path) -> None:
    torch.manual_seed(4)
    values: dict[str, Any] = {"vocab_size": 2100, "d_model": 16, "d_kv": 8, "d_ff": 24}
    config = UMT5Config(**values, num_layers=2, num_heads=2, feed_forward_proj="gated-gelu")
    umt5 = UMT5EncoderModel(config).eval()
    tiny.randomise(umt5, 0.2)
    path = tiny.save({**umt5.state_dict()}, tmp_path / "umt5.safetensors")
    check(path, umt5)
    byt5 = tiny_encoders.t5(vocab_size=384)
    path = tiny.save({**byt5.state_dict()}, tmp_path / "byt5.safetensors")
    check(path, byt5)


def test_half_precision_keeps_outputs_that_it_could_not_hold(tmp_path: Path) -> None:
    model = tiny_encoders.t5()
    for block in model.encoder.block:
        block.layer[-1].DenseReluDense.wo.weight.data *= 1e5
    path = tiny.save({**model.state_dict()}, tmp_path / "t5.safetensors")
    loaded = check(path, model, Placement("cpu", "float16"), 2e-2)
    dense = loaded.encoder.block[0].layer[-1].DenseReluDense
    assert (dense.wo.weight.dtype, dense.wi_0.weight.dtype) == (torch.float32, torch.float16)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_fp8_scaled_files_stay_packed(tmp_path: Path, dtype: Any) -> None:
    """As ComfyUI's t5xxl_fp8_e4m3fn_scaled: a scale for each linear, a marker, `scale_input`."""
    model = tiny_encoders.t5(width=64, d_ff=96)
    state: dict[str, torch.Tensor] = {"scaled_fp8": torch.empty(2, dtype=torch.float8_e4m3fn)}
    for name, value in model.state_dict().items():
        state[name] = value
        if ".layer." in name and value.ndim == 2 and "bias" not in name:
            scale = value.abs().max() / 448
            state[name] = (value / scale).to(torch.float8_e4m3fn)
            state[name.replace("weight", "scale_weight")] = scale
            state[name.replace("weight", "scale_input")] = torch.ones(())
            value.copy_(state[name].float() * scale)
    path = tiny.save(state, tmp_path / "t5.safetensors")
    loose = {"float32": 1e-5, "bfloat16": 5e-2, "float16": 2e-2}[dtype]
    loaded = check(path, model, Placement("cpu", dtype, quantization="packed"), loose)
    output = loaded.encoder.block[0].layer[-1].DenseReluDense.wo
    assert not next(output.parameters()).is_floating_point()


def test_int8_keeps_features_close(tmp_path: Path) -> None:
    model = tiny_encoders.t5(width=64, d_ff=96)
    path = tiny.save({**model.state_dict()}, tmp_path / "t5.safetensors")
    check(path, model, Placement("cpu", "float16", quantization="int8"), 0.1)


def test_a_long_prompt_is_cut_before_its_end(tmp_path: Path) -> None:
    path = tiny.save({**tiny_encoders.t5().state_dict()}, tmp_path / "t5.safetensors")
    encoder = load_text_encoder(plan_of(path), tiny_encoders.t5_tokenizer())
    tokens, mask, cut = t5_tokens(encoder, "b" * 20, 12)
    assert (tokens.shape, bool(mask.all()), cut) == ((1, 12), True, 10)
    assert int(tokens[0, -1]) == encoder.tokenizer.eos_token_id
