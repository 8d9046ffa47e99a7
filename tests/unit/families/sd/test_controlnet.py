"""ControlNets against diffusers' pipelines; where they count, and who may share a pass."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import StableDiffusionControlNetPipeline, StableDiffusionXLControlNetPipeline

from inline_core.errors import InvalidParam
from inline_core.loading.component import Role
from inline_core.media.values import Image
from inline_core.sampling.batcher import BatchKey, refusal
from inline_core.sampling.values import Control
from tests import tiny
from tests.backends.conftest import Bench, make_bench
from tests.tiny_families import lumina2, sd15, sdxl
from tests.unit.families.sd.conftest import Benches, job, reference

PIXELS = np.random.default_rng(5).integers(0, 255, (64, 96, 3), dtype=np.uint8)
HINT = torch.from_numpy(PIXELS).permute(2, 0, 1)[None] / 255.0


def controlled(found: Any, bench: Bench, name: str = "canny.safetensors", **changes: Any) -> Any:
    network = bench.catalog.find(Role.CONTROLNET, name)
    control = Control(network, Image(PIXELS), **changes)
    positive, negative = (
        replace(item, controls=(*item.controls, control))
        for item in (found.positive, found.negative)
    )
    return replace(found, positive=positive, negative=negative)


def test_the_latents_are_those_of_the_pipeline(benches: Benches) -> None:
    bench = benches(sd15)
    plain = job(bench, sd15)
    found = bench.latents(controlled(plain, bench, strength=0.7))
    pipe = StableDiffusionControlNetPipeline(**sd15.parts(), controlnet=sd15.controlnet())
    wanted = reference(pipe, image=HINT, controlnet_conditioning_scale=0.7)
    assert (found - wanted).abs().max() <= 1e-4
    assert (found - bench.latents(plain)).abs().max() > 0.05


def test_sdxl_in_the_layout_of_diffusers(folders: dict[str, Path], tmp_path: Path) -> None:
    for part in ("checkpoints", "text_encoders"):
        (tmp_path / part).symlink_to(folders["sdxl"] / part)
    sdxl.controlnet().save_pretrained(tmp_path / "controlnet/depth")
    tiny.settle(tmp_path / "controlnet")
    bench = make_bench(tmp_path)
    found = bench.latents(controlled(job(bench, sdxl), bench, "depth"))
    parts = {**sdxl.parts(), "controlnet": sdxl.controlnet(), "add_watermarker": False}
    wanted = reference(StableDiffusionXLControlNetPipeline(**parts), image=HINT)
    assert (found - wanted).abs().max() <= 1e-4
    assert (found - bench.latents(job(bench, sdxl))).abs().max() > 1e-3
    assert bench.close()


def test_it_counts_only_in_its_share_of_the_sampling(benches: Benches) -> None:
    bench = benches(sd15)
    plain = job(bench, sd15)
    whole, none = bench.latents(controlled(plain, bench)), bench.latents(plain)
    nothing = bench.latents(controlled(plain, bench, start_percent=0.9, end_percent=0.9))
    assert torch.equal(nothing, none)
    assert torch.equal(bench.latents(controlled(plain, bench, strength=0.0)), none)
    half = bench.latents(controlled(plain, bench, end_percent=0.5))
    pipe = StableDiffusionControlNetPipeline(**sd15.parts(), controlnet=sd15.controlnet())
    wanted = reference(pipe, image=HINT, control_guidance_end=0.5)
    assert (half - wanted).abs().max() <= 1e-4
    assert (half - whole).abs().max() > 1e-3
    assert (half - none).abs().max() > 1e-3


def test_several_add_up(benches: Benches) -> None:
    bench = benches(sd15)
    plain = job(bench, sd15)
    once = bench.latents(controlled(plain, bench, strength=1.0))
    twice = controlled(controlled(plain, bench, strength=0.5), bench, strength=0.5)
    assert (bench.latents(twice) - once).abs().max() <= 1e-4


def test_rows_with_and_without_one_give_what_they_give_alone(benches: Benches) -> None:
    bench = benches(sd15)
    # Only the positive prompt has one, and the prompts are of different lengths.
    plain = job(bench, sd15, "long " * 30)
    with_one = controlled(plain, bench)
    found = bench.latents(replace(with_one, negative=plain.negative))
    both = bench.latents(with_one)
    assert torch.isfinite(found).all()
    assert (found - both).abs().max() > 1e-3
    jobs = [controlled(job(bench, sd15, seed=seed), bench) for seed in (7, 8)]
    alone = [bench.latents(made) for made in jobs]
    together = [bench.sampler.submit(made) for made in jobs]
    for future, wanted in zip(together, alone, strict=True):
        assert (future.result(30).latent.samples - wanted).abs().max() <= 1e-4


def test_jobs_with_other_controlnets_share_no_pass(benches: Benches) -> None:
    bench = benches(sd15)
    plain = job(bench, sd15)
    keys = [BatchKey.of(made) for made in (plain, controlled(plain, bench))]

    class Entry:
        pictures, priority, overtaken, refused_for = 1, 0, 0, ""

        def __init__(self, key: BatchKey) -> None:
            self.key = key

    first, second = map(Entry, keys)
    assert refusal(second, [first], 8) == "other_controls"
    assert refusal(second, [second], 8) is None


@pytest.mark.parametrize(("module", "words"), [(lumina2, "takes no ControlNet"), (sdxl, "SD1.5")])
def test_the_wrong_model_is_refused(
    module: ModuleType, words: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    module.save_models(tmp_path)
    (tmp_path / "controlnet").symlink_to(folders["sd15"] / "controlnet")
    bench = make_bench(tmp_path)
    wrong = controlled(job(bench, module), bench)
    error = bench.sampler.submit(wrong).exception(30)
    assert isinstance(error, InvalidParam)
    assert words in error.message
    assert bench.close()
