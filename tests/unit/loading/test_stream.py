from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import ZImageTransformer2DModel

from inline_core.errors import ModelFileInvalid, ModelFileMissing, RunCancelled
from inline_core.families.z_image.components import load_denoiser
from inline_core.families.z_image.keys import transformer_sources
from inline_core.loading.reader import TensorReader
from tests import tiny
from tests.plans import plan_of


def original(folder: Path, **changes: torch.Tensor) -> Path:
    keys = tiny.original_keys(tiny.transformer().state_dict()) | changes
    return tiny.save(keys, folder / "z.safetensors")


def test_every_layout_gives_the_same_weights(tmp_path: Path) -> None:
    state = tiny.transformer().state_dict()
    paths = [
        tiny.save(tiny.original_keys(state), tmp_path / "a.safetensors"),
        tiny.save(tiny.original_keys(state, "model.diffusion_model."), tmp_path / "b.safetensors"),
        tiny.save(state, tmp_path / "c.safetensors"),
    ]
    tiny.transformer().save_pretrained(tmp_path / "d", max_shard_size="500KB")
    for path in (*paths, tmp_path / "d"):
        model: Any = load_denoiser(plan_of(path))._model
        loaded = model.state_dict()
        assert loaded.keys() == state.keys()
        assert all(torch.equal(loaded[name], state[name]) for name in state)


def test_a_renamed_weight_fails_with_counts_and_names(tmp_path: Path) -> None:
    state = dict(tiny.transformer().state_dict())
    state["layers.0.attention.to_q2.weight"] = state.pop("layers.0.attention.to_q.weight")
    with pytest.raises(ModelFileInvalid) as caught:
        load_denoiser(plan_of(tiny.save(state, tmp_path / "z.safetensors")))
    assert caught.value.message == (
        "z.safetensors does not match its architecture: "
        "1 weights missing (layers.0.attention.to_q.weight) and "
        "1 weights unexpected (layers.0.attention.to_q2.weight)"
    )


def test_a_wrong_shape_is_named(tmp_path: Path) -> None:
    path = original(tmp_path, **{"layers.1.feed_forward.w1.weight": torch.ones(3, 64)})
    with pytest.raises(ModelFileInvalid, match=r"feed_forward.w1.weight has shape \(3, 64\)"):
        load_denoiser(plan_of(path))


def test_cancelling_stops_between_tensors(tmp_path: Path) -> None:
    seen: list[int] = []

    def check() -> None:
        seen.append(1)
        if len(seen) == 3:
            raise RunCancelled

    with pytest.raises(RunCancelled):
        load_denoiser(plan_of(original(tmp_path), check=check))
    assert len(seen) == 3


def test_a_file_that_vanishes_or_changes_during_the_load(tmp_path: Path) -> None:
    path = original(tmp_path)
    plan = plan_of(path)
    tiny.settle(tmp_path, age_s=30)
    with pytest.raises(ModelFileInvalid, match="replaced during load"):
        load_denoiser(plan)
    plan = plan_of(path)
    path.unlink()
    with pytest.raises(ModelFileMissing, match="vanished during load"):
        load_denoiser(plan)


def test_weights_of_the_right_precision_are_not_copied(tmp_path: Path) -> None:
    plan = plan_of(original(tmp_path))
    model: Any = load_denoiser(plan)._model
    with TensorReader(plan.files, plan.label) as reader:
        mapped = reader.mapped("layers.0.feed_forward.w2.weight")
        again = reader.mapped("layers.0.feed_forward.w2.weight")
    assert mapped.data_ptr() == again.data_ptr()  # both lie in the mapped file
    weight = model.layers[0].feed_forward.w2.weight
    assert torch.equal(weight, mapped)
    # An address outside of every anonymous mapping: the kernel names the file it belongs to.
    assert str(plan.files.path) in mapping_at(weight.data_ptr())
    q, k = (getattr(model.layers[0].attention, name).weight for name in ("to_q", "to_k"))
    assert k.data_ptr() - q.data_ptr() == q.numel() * 4  # rows of the fused tensor, not copies


def mapping_at(address: int) -> str:
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, end = (int(part, 16) for part in line.split()[0].split("-"))
        if start <= address < end:
            return line
    return ""


def test_a_file_replaced_by_rename_does_not_disturb_what_is_loaded(tmp_path: Path) -> None:
    path = original(tmp_path)
    model: Any = load_denoiser(plan_of(path))._model
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    other = tiny.save(
        tiny.original_keys(tiny.transformer(seed=9).state_dict()), tmp_path / "new.safetensors"
    )
    other.rename(path)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_the_buffer_is_used_again(tmp_path: Path) -> None:
    plan = plan_of(original(tmp_path))
    with TensorReader(plan.files, plan.label) as reader:
        big = reader.buffered("layers.0.attention.qkv.weight")
        whole = big.clone()
        assert torch.equal(big, reader.mapped("layers.0.attention.qkv.weight"))
        middle = reader.buffered("layers.0.attention.qkv.weight", 1, 3)
        assert middle.data_ptr() == big.data_ptr()
        assert torch.equal(middle, whole[64:128])
        assert reader.buffered("x_pad_token").data_ptr() == big.data_ptr()


def test_another_precision_never_shares_the_buffer(tmp_path: Path) -> None:
    path = tiny.save(
        tiny.original_keys(tiny.transformer().state_dict()),
        tmp_path / "z.safetensors",
        dtype=torch.bfloat16,
    )
    model: Any = load_denoiser(plan_of(path))._model
    state = tiny.transformer().state_dict()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, state[name].to(torch.bfloat16).float()), name
    places = {tensor.data_ptr() for tensor in model.state_dict().values()}
    assert len(places) == len(state)


def test_names_map_onto_the_module(tmp_path: Path) -> None:
    plan = plan_of(original(tmp_path))
    with torch.device("meta"):
        wanted = dict(ZImageTransformer2DModel(**plan.identity.config).named_parameters())
    assert wanted.keys() == transformer_sources(plan.files.tensors, "").keys() - {
        "norm_final.weight"
    }
