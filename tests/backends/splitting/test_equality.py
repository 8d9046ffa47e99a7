"""A picture made by several processes is the one that this process makes."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from inline_core.devices.split import Split
from inline_core.errors import RunCancelled
from inline_core.loading.component import LoraRef
from inline_core.loading.files import open_weights
from inline_core.sampling.job import SampleJob, SampleResult, StepReport
from tests import loras, tiny
from tests.backends.splitting.conftest import PATIENCE_S, Halves
from tests.backends.splitting.models import FAMILIES

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(PATIENCE_S)]

TOLERANCE = 1e-4
MIB = 1024 * 1024
WITHOUT_RING = tuple(family for family in FAMILIES if family != "krea-2")
WITH_PLAN = tuple(family for family in FAMILIES if family != "krea-2")
# On two ranks first, then on four: a group takes its time to start.
ON_TWO = [
    *(("xdit:ulysses=2", family) for family in FAMILIES),
    *(("diffusers:ulysses=2", family) for family in WITH_PLAN),
    *(("xdit:ring=2", family) for family in WITHOUT_RING),
    *(("xdit:cfg=2", family) for family in ("z-image", "qwen-image", "wan")),
]
ON_FOUR = [
    *(("xdit:ulysses=4", family) for family in FAMILIES),
    *(("diffusers:ulysses=4", family) for family in WITH_PLAN),
    *(("xdit:ulysses=2,ring=2", family) for family in WITHOUT_RING),
]


def difference(result: SampleResult, whole: torch.Tensor) -> float:
    return float((result.latent.samples - whole).abs().max())


def two_jobs(halves: Halves, family: str) -> tuple[SampleJob, SampleJob]:
    """A short one, and one of two pictures with guidance and prompts of other lengths."""
    first = halves.job(family, prompt="a red circle", seed=3, steps=3)
    more: dict[str, Any] = {"cfg": 3.0, "negative": "bad, ugly", "batch": 2}
    return first, halves.job(family, prompt="many blue squares on green", seed=4, steps=2, **more)


@pytest.mark.parametrize(("key", "family"), ON_TWO)
def test_equal_to_this_process(halves: Halves, key: str, family: str) -> None:
    check_equal(halves, key, family)


@pytest.mark.parametrize("key", ["xdit:ulysses=2", "diffusers:ulysses=2"])
def test_tokens_that_cannot_be_divided(halves: Halves, key: str) -> None:
    """15 tokens: xDiT would fill them up unseen, and gloo cannot gather diffusers' parts.

    So each rank computes all of them, and says so.
    """
    latent = replace(halves.job("flux-1").latent, width=80, height=48)
    job = halves.job("flux-1", latent=latent, steps=2)
    (result,), (whole,) = halves.split(key, job), halves.alone(job)
    assert difference(result, whole) < TOLERANCE
    (told,) = result.warnings
    assert "15 tokens of the picture cannot be divided by 2" in told
    # And the next one is divided again.
    (plain,), (other,) = (
        halves.split(key, *two_jobs(halves, "flux-1")[:1]),
        halves.alone(two_jobs(halves, "flux-1")[0]),
    )
    assert plain.warnings == ()
    assert difference(plain, other) < TOLERANCE


@pytest.mark.parametrize("key", ["xdit:ulysses=2", "diffusers:ulysses=2"])
def test_heads_that_cannot_be_divided(halves: Halves, key: str) -> None:
    """Z-Image has 30 of them, for 4 GPUs: xDiT adds some of zeros, diffusers gives unequal parts."""
    job = halves.job("z-image", model="z3.safetensors", steps=3)
    (result,), (whole,) = halves.split(key, job), halves.alone(job)
    assert difference(result, whole) < TOLERANCE
    assert result.warnings == ()


def test_prompts_of_any_length(halves: Halves) -> None:
    """Qwen-Image's prompts are as long as they are: all kinds at once, right with both backends."""
    jobs = [halves.job("qwen-image", prompt="x" * length, steps=2) for length in (1, 2, 5)]
    whole = halves.alone(*jobs)
    for key in ("xdit:ulysses=2", "diffusers:ulysses=2"):
        results = halves.split(key, *jobs)
        worst = max(difference(*pair) for pair in zip(results, whole, strict=True))
        assert worst < TOLERANCE, key


@pytest.mark.parametrize(
    ("key", "family", "layer", "width"),
    [
        ("xdit:ulysses=2", "z-image", "layers.0.attention.to_q", 128),
        ("diffusers:ulysses=2", "flux-1", "transformer_blocks.1.attn.to_k", 64),
        # Of a block that only the second stage has, under a number of its own there.
        ("xdit:pipefusion=2,warmup=8", "flux-1", "single_transformer_blocks.1.attn.to_q", 64),
    ],
)
def test_adapters_are_on_every_rank(
    halves: Halves, tmp_path: Path, key: str, family: str, layer: str, width: int
) -> None:
    path = tmp_path / "style.safetensors"
    loras.save_lora(path, f"transformer.{layer}", (width, width))
    tiny.settle(tmp_path)
    plain = halves.job(family, steps=2)
    adapter = LoraRef(path, path.name, open_weights(path).stamp, 1.0, strict=True)
    job = replace(plain, model=replace(plain.model, adapters=(adapter,)))
    (result,), (whole, without) = halves.split(key, job), halves.alone(job, plain)
    assert difference(result, whole) < TOLERANCE
    assert float((whole - without).abs().max()) > 1e-3


def test_steps_previews_and_a_cancel(halves: Halves) -> None:
    reports: list[StepReport] = []
    cancel, seen = threading.Event(), threading.Event()

    class Cancel:
        def check(self) -> None:
            if cancel.is_set():
                raise RunCancelled

    def on_step(report: StepReport) -> None:
        reports.append(report)
        if report.step == 2:
            seen.set()

    split = Split.of_key("diffusers:ulysses=2")
    job = replace(
        halves.job("z-image", steps=400, size=128), split=split, on_step=on_step, cancel=Cancel()
    )
    future = halves.group.submit(job)
    assert seen.wait(PATIENCE_S)
    show = reports[1].preview
    assert show is not None
    assert show()[:4] in {b"\x89PNG", b"\xff\xd8\xff\xe0", b"RIFF"}
    cancel.set()
    with pytest.raises(RunCancelled):
        future.result(PATIENCE_S)
    assert [report.step for report in reports] == list(range(1, len(reports) + 1))
    assert 2 <= len(reports) < 400
    (result,), (whole,) = (
        halves.split("diffusers:ulysses=2", halves.job("z-image")),
        halves.alone(halves.job("z-image")),
    )
    assert difference(result, whole) < TOLERANCE


def test_pipefusion_is_exact_while_it_warms_up(halves: Halves) -> None:
    check_warm(halves, "xdit:pipefusion=2,warmup=8")


def test_pipefusion_is_close_after_that(halves: Halves) -> None:
    check_close(halves, "xdit:pipefusion=2,warmup=1")


@pytest.mark.parametrize(("key", "family"), ON_FOUR)
def test_equal_on_four(halves: Halves, key: str, family: str) -> None:
    check_equal(halves, key, family)


def test_pipefusion_with_ulysses(halves: Halves) -> None:
    check_warm(halves, "xdit:ulysses=2,pipefusion=2,warmup=8")
    check_close(halves, "xdit:ulysses=2,pipefusion=2,warmup=1")


def check_equal(halves: Halves, key: str, family: str) -> None:
    jobs = two_jobs(halves, family)
    whole = halves.alone(*jobs)
    results = halves.split(key, *jobs)
    for pair in zip(results, whole, strict=True):
        assert difference(*pair) < TOLERANCE
    assert float((whole[0] - whole[1][:1]).abs().max()) > 0.1
    assert results[0].provenance["placement"]["parallel"] == key
    if family != "qwen-image" or key.startswith("diffusers"):
        assert [result.warnings for result in results] == [(), ()]


def check_warm(halves: Halves, key: str) -> None:
    """Steps that are computed whole are exact."""
    jobs = two_jobs(halves, "flux-1")
    whole = halves.alone(*jobs)
    for pair in zip(halves.split(key, *jobs), whole, strict=True):
        assert difference(*pair) < TOLERANCE


def check_close(halves: Halves, key: str) -> None:
    """Stale keys and values change the picture a little; the rest does not."""
    job = halves.job("flux-1", steps=8, seed=5)
    (result,), (whole,) = halves.split(key, job), halves.alone(job)
    relative = float((result.latent.samples - whole).norm() / whole.norm())
    assert 1e-6 < relative < 0.02


def test_memory_of_ranks_stays_flat(halves: Halves) -> None:
    """Runs of changing sizes, batches and prompts, with and without guidance."""

    def some(first: int, count: int) -> None:
        for number in range(first, first + count):
            size = (64, 96, 128)[number % 3]
            more: dict[str, Any] = {"cfg": 3.0, "negative": "bad"} if number % 2 else {}
            prompt = f"number {number} " * (1 + number % 4)
            job = halves.job("z-image", prompt=prompt, size=size, batch=3, steps=2, **more)
            halves.split("xdit:ulysses=4", job)

    def held() -> list[int]:
        return [psutil.Process(pid).memory_info().rss for pid in halves.group.pids[1:]]

    some(0, 6)
    before = held()
    some(6, 12)
    growth = [new - old for new, old in zip(held(), before, strict=True)]
    assert max(growth) < 24 * MIB
