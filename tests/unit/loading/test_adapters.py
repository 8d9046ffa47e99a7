"""LoRA files of every trainer's spelling give one picture; what does not fit is said."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from inline_core.errors import ModelFileInvalid
from inline_core.loading.component import LoraRef
from inline_core.sampling.job import SampleJob
from tests import tiny
from tests.unit.engine.test_render import Context, Studio

RANK = 2
MODULES = {"layers.0.attention.to_q": 64, "layers.1.attention.to_out.0": 64}


def delta(scale: float = 0.5) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(5)
    return {
        name: (
            torch.randn(RANK, width, generator=generator) * scale,
            torch.randn(width, RANK, generator=generator) * scale,
        )
        for name, width in MODULES.items()
    }


def original(name: str) -> str:
    return name.replace("attention.to_out.0", "attention.out")


SPELLINGS: dict[str, Callable[[str], tuple[str, str]]] = {
    "peft": lambda n: (f"transformer.{n}.lora_A.weight", f"transformer.{n}.lora_B.weight"),
    "comfyui": lambda n: (
        f"diffusion_model.{original(n)}.lora_A.weight", f"diffusion_model.{original(n)}.lora_B.weight",
    ),
    "kohya": lambda n: (
        f"lora_unet_{n.replace('.', '_')}.lora_down.weight", f"lora_unet_{n.replace('.', '_')}.lora_up.weight",
    ),
    "default": lambda n: (f"{n}.lora_A.default.weight", f"{n}.lora_B.default.weight"),
    "old diffusers": lambda n: (f"unet.{n}.lora.down.weight", f"unet.{n}.lora.up.weight"),
}  # fmt: skip


def write(path: Path, spelling: str, *, extra: dict[str, torch.Tensor] | None = None) -> Path:
    tensors: dict[str, torch.Tensor] = dict(extra or {})
    for name, (down, up) in delta().items():
        first, second = SPELLINGS[spelling](name)
        tensors[first], tensors[second] = down.contiguous(), up.contiguous()
        if spelling == "kohya":
            tensors[re.sub(r"\.lora_down.*", ".alpha", first)] = torch.tensor(float(RANK))
    save_file(tensors, str(path))
    tiny.settle(path.parent)
    return path


@pytest.fixture(scope="module")
def studio() -> Iterator[Studio]:
    torch.set_num_threads(1)
    made = Studio(tiny.shared_models())
    yield made
    made.render.close()


def with_lora(studio: Studio, path: Path, strength: float = 1.0) -> SampleJob:
    job: SampleJob = studio.job()
    reference = LoraRef(path, path.name, f"{path}-{path.stat().st_mtime_ns}", strength)
    return replace(job, model=replace(job.model, adapters=(reference,)))


def latents(studio: Studio, job: SampleJob) -> Any:
    return studio.render.sample(job, Context()).latent.samples.numpy()


def test_every_spelling_gives_the_same_picture(studio: Studio, tmp_path: Path) -> None:
    base = latents(studio, studio.job())
    results = {
        spelling: latents(
            studio, with_lora(studio, write(tmp_path / f"{number}.v1.0.safetensors", spelling))
        )
        for number, spelling in enumerate(SPELLINGS)
    }
    first = results["peft"]
    assert np.abs(first - base).max() > 1e-3
    for spelling, result in results.items():
        assert np.array_equal(result, first), spelling


def test_strength_scales_and_zero_is_the_base(studio: Studio, tmp_path: Path) -> None:
    path = write(tmp_path / "a.safetensors", "peft")
    base = latents(studio, studio.job())
    assert np.array_equal(latents(studio, with_lora(studio, path, 0.0)), base)
    half = np.abs(latents(studio, with_lora(studio, path, 0.5)) - base).mean()
    whole = np.abs(latents(studio, with_lora(studio, path, 1.0)) - base).mean()
    assert 0 < half < whole
    assert np.array_equal(latents(studio, studio.job()), base), "the base is untouched"


def test_a_fused_module_is_split_by_rows(studio: Studio, tmp_path: Path) -> None:
    down = torch.randn(RANK, 64)
    ups = [torch.randn(64, RANK) for _ in "qkv"]
    stem = "layers.0.attention"
    fused = {
        f"diffusion_model.{stem}.qkv.lora_A.weight": down,
        f"diffusion_model.{stem}.qkv.lora_B.weight": torch.cat(ups),
    }
    single = {}
    for letter, up in zip("qkv", ups, strict=True):
        single[f"transformer.{stem}.to_{letter}.lora_A.weight"] = down.clone()
        single[f"transformer.{stem}.to_{letter}.lora_B.weight"] = up
    for name, tensors in (("fused", fused), ("single", single)):
        save_file(tensors, str(tmp_path / f"{name}.safetensors"))
    tiny.settle(tmp_path)
    one = latents(studio, with_lora(studio, tmp_path / "fused.safetensors"))
    assert np.array_equal(one, latents(studio, with_lora(studio, tmp_path / "single.safetensors")))


def test_a_partial_match_is_a_warning_with_counts(studio: Studio, tmp_path: Path) -> None:
    extra = {
        "transformer.nowhere.lora_A.weight": torch.zeros(2, 4),
        "transformer.nowhere.lora_B.weight": torch.zeros(4, 2),
    }
    path = write(tmp_path / "a.safetensors", "peft", extra=extra)
    result = studio.render.sample(with_lora(studio, path), Context())
    assert any("only 2 of 3 modules" in warning for warning in result.warnings)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"lora_te_x.lora_down.weight": torch.zeros(2, 4)}, "fits nothing"),
        ({"transformer.layers.0.attention.to_q.lokr_w1": torch.zeros(2, 2)}, "LoKr"),
        ({"transformer.layers.0.attention.to_q.dora_scale": torch.zeros(2)}, "DoRA"),
        (
            {
                "transformer.layers.0.attention.to_q.lora_A.weight": torch.zeros(2, 32),
                "transformer.layers.0.attention.to_q.lora_B.weight": torch.zeros(32, 2),
            },
            "made for another model",
        ),
    ],
)
def test_what_does_not_fit_is_refused(
    studio: Studio, tmp_path: Path, tensors: dict[str, torch.Tensor], message: str
) -> None:
    path = tmp_path / "a.safetensors"
    save_file(tensors, str(path))
    tiny.settle(tmp_path)
    with pytest.raises(ModelFileInvalid, match=message):
        latents(studio, with_lora(studio, path))
