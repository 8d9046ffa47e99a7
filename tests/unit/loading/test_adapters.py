"""LoRA files of every trainer's spelling give one picture; what does not fit is said."""

from __future__ import annotations

import concurrent.futures
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from inline_core.devices.budget import Demand
from inline_core.devices.ladder import Plan
from inline_core.devices.policy import DevicePolicy
from inline_core.errors import ModelFileInvalid
from inline_core.families.adapted import SharedDenoiser
from inline_core.loading.component import LoraRef
from inline_core.nodes.load import with_adapters
from inline_core.sampling.job import SampleJob
from inline_core.settings import Settings
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
        ({"transformer.layers.0.attention.to_q.lokr_w1": torch.zeros(2, 2)}, "a LoKr"),
        ({"transformer.layers.0.attention.to_q.dora_scale": torch.zeros(2)}, "is a DoRA adapter"),
        ({"lora_unet_x.oft_blocks": torch.zeros(2, 2, 2)}, "is an OFT adapter"),
        (
            {"lora_unet_down_blocks_0_attentions_0_proj_in.lora_down.weight": torch.zeros(2, 4)},
            "made for S.*the model is Z-Image",
        ),
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


def save(path: Path, tensors: dict[str, torch.Tensor]) -> Path:
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, str(path))
    tiny.settle(path.parent)
    return path


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 0.3


def merged(studio: Studio, tmp_path: Path, changes: dict[str, torch.Tensor]) -> Any:
    """The latents of a model whose weights were changed in its file, as a trainer would merge."""
    state = tiny.transformer().state_dict()
    for name, change in changes.items():
        state[name] = state[name] + change
    tiny.save_models(tmp_path)
    tiny.save(tiny.original_keys(state), tmp_path / "diffusion_models/z.safetensors")
    tiny.settle(tmp_path)
    other = Studio(tmp_path)
    try:
        return latents(other, other.job())
    finally:
        other.render.close()


def close(left: Any, right: Any, base: Any) -> bool:
    """Equal within what rounding in another order gives, against what the adapter changes."""
    effect = float(np.abs(right - base).max())
    assert effect > 1e-2
    return float(np.abs(left - right).max()) < 1e-3 * effect


def test_lora_equals_the_merged_weights(studio: Studio, tmp_path: Path) -> None:
    stem = "layers.0.attention.to_q"
    down, up = noise(2, 64), noise(64, 2, seed=1)
    path = save(
        tmp_path / "a.safetensors",
        {
            f"diffusion_model.{stem}.lora_down.weight": down,
            f"diffusion_model.{stem}.lora_up.weight": up,
            f"diffusion_model.{stem}.alpha": torch.tensor(4.0),
        },
    )
    wanted = merged(studio, tmp_path / "m", {f"{stem}.weight": 0.5 * (4 / 2) * (up @ down)})
    got = latents(studio, with_lora(studio, path, 0.5))
    assert close(got, wanted, latents(studio, studio.job()))


def test_loha_equals_the_merged_weights(studio: Studio, tmp_path: Path) -> None:
    stem = "layers.0.attention.to_q"
    parts = [noise(*shape, seed=seed) for seed, shape in enumerate([(64, 2), (2, 64)] * 2)]
    names = ("hada_w1_a", "hada_w1_b", "hada_w2_a", "hada_w2_b")
    tensors = {f"{stem}.{name}": part for name, part in zip(names, parts, strict=True)}
    flat = f"lycoris_{stem.replace('.', '_')}"
    path = save(
        tmp_path / "a.safetensors",
        {name.replace(stem, flat): part for name, part in tensors.items()}
        | {f"{flat}.alpha": torch.tensor(1.0)},
    )
    a1, b1, a2, b2 = parts
    wanted = merged(studio, tmp_path / "m", {f"{stem}.weight": 0.5 * (a1 @ b1) * (a2 @ b2)})
    got = latents(studio, with_lora(studio, path))
    assert close(got, wanted, latents(studio, studio.job()))


@pytest.mark.parametrize("factored", [False, True])
def test_lokr_equals_the_merged_weights(studio: Studio, tmp_path: Path, factored: bool) -> None:
    """On the fused projection: q, k and v take their rows of the product."""
    stem = "layers.0.attention.qkv"
    first = noise(12, 8)
    a, b = noise(16, 2, seed=1), noise(2, 8, seed=2)
    second = {"lokr_w2_a": a, "lokr_w2_b": b} if factored else {"lokr_w2": a @ b}
    tensors = {f"diffusion_model.{stem}.lokr_w1": first}
    tensors |= {f"diffusion_model.{stem}.{name}": part for name, part in second.items()}
    tensors[f"diffusion_model.{stem}.alpha"] = torch.tensor(1.0)
    path = save(tmp_path / "a.safetensors", tensors)
    scale = 0.5 if factored else 1.0  # alpha over the rank, where there is a rank
    whole = torch.kron(first, a @ b) * scale  # (192, 64)
    changes = {
        f"layers.0.attention.to_{letter}.weight": part
        for letter, part in zip("qkv", torch.chunk(whole, 3), strict=True)
    }
    wanted = merged(studio, tmp_path / "m", changes)
    got = latents(studio, with_lora(studio, path))
    assert close(got, wanted, latents(studio, studio.job()))


def with_loras(studio: Studio, *chosen: tuple[Path, float]) -> SampleJob:
    references = [with_lora(studio, path, strength).model.adapters[0] for path, strength in chosen]
    job = studio.job()
    return replace(job, model=with_adapters(job.model, references))


def test_several_add_up_in_any_order_and_a_file_twice_counts_twice(
    studio: Studio, tmp_path: Path
) -> None:
    one = write(tmp_path / "one.safetensors", "peft")
    two = save(
        tmp_path / "two.safetensors",
        {
            "transformer.layers.1.feed_forward.w1.lora_A.weight": noise(2, 64),
            "transformer.layers.1.feed_forward.w1.lora_B.weight": noise(170, 2, seed=3),
        },
    )
    first = latents(studio, with_loras(studio, (one, 0.7), (two, 0.3)))
    assert np.array_equal(first, latents(studio, with_loras(studio, (two, 0.3), (one, 0.7))))
    assert np.abs(first - latents(studio, with_loras(studio, (one, 0.7)))).max() > 1e-3
    assert np.abs(first - latents(studio, with_loras(studio, (two, 0.3)))).max() > 1e-3
    twice = latents(studio, with_loras(studio, (one, 0.5), (one, 0.5)))
    once = latents(studio, with_loras(studio, (one, 1.0)))
    assert np.abs(twice - once).max() < 1e-4 * np.abs(once).max()


def test_adapters_are_switched_without_loading_the_base_again(
    studio: Studio, tmp_path: Path
) -> None:
    one = write(tmp_path / "one.safetensors", "peft")
    base = latents(studio, studio.job())
    weights = studio.render._runtime.result().modules._pool._held.copy()  # type: ignore[union-attr]
    shared = next(held.value for held in weights.values() if isinstance(held.value, SharedDenoiser))
    before = {name: tensor.clone() for name, tensor in shared.denoiser.module.state_dict().items()}
    pool = studio.render.stats()["pool"]
    latents(studio, with_lora(studio, one))
    latents(studio, studio.job())
    latents(studio, with_lora(studio, one, 0.2))
    after = studio.render.stats()["pool"]
    assert after["misses"] - pool["misses"] == 1, "the adapter, once"
    state = shared.denoiser.module.state_dict()
    assert state.keys() == before.keys()
    assert all(torch.equal(tensor, before[name]) for name, tensor in state.items())
    assert np.array_equal(latents(studio, studio.job()), base)


def test_jobs_with_other_adapters_run_at_the_same_time(studio: Studio, tmp_path: Path) -> None:
    one = write(tmp_path / "one.safetensors", "peft")
    jobs = [studio.job(), with_lora(studio, one), with_lora(studio, one, 0.5), studio.job()]
    alone = [latents(studio, job) for job in jobs]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda job: latents(studio, job), jobs))
    for left, right in zip(alone, together, strict=True):
        assert np.abs(left - right).max() < 1e-4


def test_what_is_left_over_can_be_refused(studio: Studio, tmp_path: Path) -> None:
    extra = {
        "lora_te_text_model_x.lora_down.weight": torch.zeros(2, 4),
        "lora_te_text_model_x.lora_up.weight": torch.zeros(4, 2),
        "transformer.layers.0.attention.to_q.diff_b": torch.zeros(64),
    }
    path = write(tmp_path / "a.safetensors", "peft", extra=extra)
    job = with_lora(studio, path)
    result = studio.render.sample(job, Context())
    assert any("only 2 of 4 modules" in text and "diff_b" in text for text in result.warnings)
    assert result.provenance["adapters"][0]["unmatched"] == 2
    strict = replace(job.model.adapters[0], strict=True)
    with pytest.raises(ModelFileInvalid, match="only 2 of 4 modules fit") as caught:
        latents(studio, replace(job, model=replace(job.model, adapters=(strict,))))
    assert len(caught.value.details["unmatched"]) == 2


def test_mostly_left_over_was_made_for_another_model(studio: Studio, tmp_path: Path) -> None:
    extra = {
        f"transformer.single_transformer_blocks.{number}.attn.to_q.lora_{side}.weight": torch.zeros(
            2, 2
        )
        for number in range(3)
        for side in "AB"
    }
    path = write(tmp_path / "a.safetensors", "peft", extra=extra)
    with pytest.raises(ModelFileInvalid, match=r"only 2 of 5 .*made for another model"):
        latents(studio, with_lora(studio, path))


def test_a_damaged_adapter_is_refused(studio: Studio, tmp_path: Path) -> None:
    path = save(
        tmp_path / "a.safetensors",
        {
            "transformer.layers.0.attention.to_q.lora_A.weight": torch.full((2, 64), float("nan")),
            "transformer.layers.0.attention.to_q.lora_B.weight": torch.zeros(64, 2),
        },
    )
    with pytest.raises(ModelFileInvalid, match=r"has NaN or infinity in transformer\.layers\.0"):
        latents(studio, with_lora(studio, path))


class Fixed(DevicePolicy):
    """The real policy, with the diffusion model put where the test wants it."""

    def __init__(self, settings: Settings, **changes: Any) -> None:
        super().__init__(settings)
        self._changes = changes

    def plan(self, demand: Demand) -> Plan:
        plan = super().plan(demand)
        return replace(plan, model=replace(plan.model, **self._changes))


WAYS: dict[str, dict[str, Any]] = {
    "resident": {},
    "int8": {"quantization": "int8"},
    "offload": {"offload": "group"},
    "int8 offload": {"quantization": "int8", "offload": "group"},
}


@pytest.mark.parametrize("way", WAYS)
def test_every_placement_with_none_one_and_two_adapters(
    studio: Studio, tmp_path: Path, way: str
) -> None:
    """Offload changes nothing at all; int8 keeps the effect of an adapter."""
    one = write(tmp_path / "one.safetensors", "peft")
    two = save(
        tmp_path / "two.safetensors",
        {
            "transformer.layers.1.feed_forward.w1.lora_A.weight": noise(2, 64),
            "transformer.layers.1.feed_forward.w1.lora_B.weight": noise(170, 2, seed=3),
        },
    )
    placed = Studio(tiny.shared_models(), Fixed(studio.settings, **WAYS[way]))
    try:
        base: Any = None
        for chosen in ([], [(one, 1.0)], [(one, 1.0), (two, 1.0)]):
            wanted = latents(studio, with_loras(studio, *chosen))
            got = latents(placed, with_loras(placed, *chosen))
            error = np.linalg.norm(got - wanted) / np.linalg.norm(wanted)
            assert error == 0 if "int8" not in way else 0 < error < 0.02, (way, len(chosen))
            if base is None:
                base, plain = got, wanted
                continue
            effect = np.linalg.norm((got - base) - (wanted - plain)) / np.linalg.norm(
                wanted - plain
            )
            assert effect < 0.1
        assert np.array_equal(latents(placed, placed.job()), base), "the base is untouched"
    finally:
        placed.render.close()
