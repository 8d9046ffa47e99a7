from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from diffusers import ZImageTransformer2DModel

from inline_core.devices.placement import Placement
from inline_core.errors import ModelFileInvalid, ModelFileMissing, RunCancelled
from inline_core.families.z_image.components import load_denoiser, transformer_config
from inline_core.families.z_image.keys import transformer_sources
from inline_core.loading.files import open_weights
from inline_core.loading.identify import identify
from inline_core.loading.stream import LoadPlan, TensorReader, TensorSource
from tests import tiny

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FLOAT32 = Placement("cpu", "float32", "none", "test")


def plan_of(path: Path, check: Callable[[], None] = lambda: None) -> LoadPlan:
    files = open_weights(path)
    return LoadPlan(files, identify(files.headers), FLOAT32, path.name, check)


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
        load_denoiser(plan_of(original(tmp_path), check))
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
    path = original(tmp_path)
    reader = TensorReader(plan_of(path))
    first = reader.read(TensorSource("layers.0.feed_forward.w2.weight"))
    again = reader.read(TensorSource("layers.0.feed_forward.w2.weight"))
    assert first.data_ptr() == again.data_ptr()  # both lie in the mapped file
    fused = reader.read(TensorSource("layers.0.attention.qkv.weight", 1, 3))
    whole = reader.read(TensorSource("layers.0.attention.qkv.weight"))
    assert torch.equal(fused, whole[64:128])


def test_names_map_onto_the_module(tmp_path: Path) -> None:
    plan = plan_of(original(tmp_path))
    with torch.device("meta"):
        wanted = dict(
            ZImageTransformer2DModel(**transformer_config(plan.identity)).named_parameters()
        )
    assert wanted.keys() == transformer_sources(plan.files.tensors, "").keys() - {
        "norm_final.weight"
    }
