"""ERNIE-Image against its pipeline."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from inline_core.errors import InvalidParam
from inline_core.families.ernie_image.family import ERNIE_IMAGE
from inline_core.sampling.family import ScheduleFor
from inline_core.sampling.patches import StepCache, with_patch
from inline_core.sampling.sigmas.schedules import sigmas_for
from inline_core.sampling.values import Latent
from tests import tiny
from tests.backends.conftest import make_bench
from tests.reference import generator, last_latents
from tests.tiny_families import ernie_image

_FAMILY = "ernie-image"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ernie")
    ernie_image.save_models(folder)
    return folder


def compare(folder: Path, prompt: str, cfg: float, **changes: int) -> None:
    bench = make_bench(folder)
    job = bench.job(prompt, family=_FAMILY, latent=Latent(96, 64), cfg=cfg, negative="")
    ours = bench.latents(job)
    assert bench.close()
    wanted = last_latents(
        ernie_image.pipeline(**changes),
        prompt=prompt,
        negative_prompt="",
        width=96,
        height=64,
        num_inference_steps=4,
        guidance_scale=cfg,
        generator=generator(),
    )
    assert wanted.std() > 0.3
    assert (ours - wanted).abs().max() <= 1e-4


@pytest.mark.parametrize(("prompt", "cfg"), [("a red circle", 1.0), ("a dog", 4.0), ("", 1.0)])
def test_the_latents_are_those_of_the_pipeline(models: Path, prompt: str, cfg: float) -> None:
    compare(models, prompt, cfg)


def test_words_as_wide_as_the_model_go_in_as_they_are(tmp_path: Path) -> None:
    width = 32
    ernie_image.save_models(tmp_path)
    model, encoder = ernie_image.transformer(text_in_dim=width), ernie_image.text_encoder(width)
    assert model.text_proj is None
    tiny.save(dict(model.state_dict()), tmp_path / "diffusion_models/ernie.safetensors")
    keys = {f"model.{name}": tensor for name, tensor in encoder.state_dict().items()}
    tiny.save(keys, tmp_path / "text_encoders/ministral.safetensors")
    tiny.settle(tmp_path)
    compare(tmp_path, "a red circle", 4.0, text_in_dim=width)


def test_a_folder_of_the_text_encoder_is_read_with_its_config(tmp_path: Path) -> None:
    ernie_image.save_models(tmp_path)
    (tmp_path / "text_encoders/ministral.safetensors").unlink()
    ernie_image.text_encoder().save_pretrained(tmp_path / "text_encoders/ministral")
    tiny.settle(tmp_path)
    compare(tmp_path, "a red circle", 4.0)


def test_prompts_of_other_lengths_share_a_pass(models: Path) -> None:
    bench = make_bench(models)
    jobs = [bench.job(prompt, family=_FAMILY) for prompt in ("a dog", "some more cats")]
    alone = [bench.latents(job) for job in jobs]
    futures = [bench.sampler.submit(job) for job in jobs]
    together = [future.result(30).latent.samples for future in futures]
    assert bench.close()
    for one, other in zip(alone, together, strict=True):
        assert torch.allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("steps", [1, 20, 50])
def test_the_simple_schedule_is_that_of_the_pipeline(steps: int) -> None:
    ours = sigmas_for("simple", steps, ERNIE_IMAGE.table(ScheduleFor(steps=steps)))
    scheduler = ernie_image.pipeline().scheduler
    scheduler.set_timesteps(sigmas=torch.linspace(1.0, 0.0, steps + 1)[:-1])
    wanted = scheduler.sigmas.tolist()
    assert max(abs(a - b) for a, b in zip(ours, wanted, strict=True)) <= 1e-5


def test_a_step_cache_is_refused(models: Path) -> None:
    bench = make_bench(models)
    job = bench.job("a dog", family=_FAMILY)
    job = replace(job, model=with_patch(job.model, StepCache(0.1)))
    with pytest.raises(InvalidParam, match="has no blocks that can be left out or reused"):
        bench.latents(job)
    assert bench.close()
