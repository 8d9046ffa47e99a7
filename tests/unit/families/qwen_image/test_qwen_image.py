"""Qwen-Image and its edit models against their pipelines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from diffusers.pipelines.qwenimage import pipeline_qwenimage_edit as theirs
from diffusers.pipelines.qwenimage.pipeline_qwenimage import calculate_shift

from inline_core.families.qwen_image.family import QWEN_IMAGE
from inline_core.families.qwen_image.pictures import as_condition, as_reference
from inline_core.loading.component import Role
from inline_core.media.values import Image
from inline_core.sampling.family import ScheduleFor
from inline_core.sampling.patches import KeepLength, with_patch
from inline_core.sampling.sigmas.schedules import sigmas_for
from inline_core.sampling.values import Latent
from tests.backends.conftest import Bench, make_bench
from tests.pictures import noise_picture
from tests.reference import generator, last_latents
from tests.tiny_families import qwen_image


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("qwen")
    qwen_image.save_models(folder)
    return folder


def unpacked(pipe: Any, latents: Any, width: int, height: int) -> Any:
    return pipe._unpack_latents(latents, height, width, 8)


@pytest.mark.parametrize(
    ("prompt", "cfg"), [("a red circle", 1.0), ("a red circle", 4.0), ("long " * 220, 1.0)]
)
def test_the_latents_are_those_of_the_pipeline(models: Path, prompt: str, cfg: float) -> None:
    bench = make_bench(models)
    latent = Latent(96, 64)
    job = bench.job(prompt, family="qwen-image", latent=latent, cfg=cfg, negative="blurry")
    ours = bench.sampler.submit(replace(job, model=with_patch(job.model, KeepLength()))).result(30)
    assert bench.close()
    pipe = qwen_image.pipeline()
    wanted = last_latents(
        pipe,
        prompt=prompt,
        negative_prompt="blurry",
        width=96,
        height=64,
        num_inference_steps=4,
        true_cfg_scale=cfg,
        max_sequence_length=1024,
        generator=generator(),
    )
    wanted = unpacked(pipe, wanted, 96, 64)
    assert wanted.std() > 0.3
    assert (ours.latent.samples - wanted).abs().max() <= 1e-4
    assert bool(ours.warnings) == (len(prompt) > 1024)


def encoded(bench: Bench, picture: Image) -> Latent:
    """A picture in latents; the VAE of the test is too small for a megapixel to take long."""
    vae = bench.catalog.find(Role.VAE, "", family="qwen-image")
    found = bench.device.call(
        lambda: bench.modules.autoencoders.encode(vae, picture.pixels, lambda: None, tiled=False)
    ).result(60)
    return Latent(
        picture.width, picture.height, samples=found.samples, space=found.space, normalised=True
    )


@pytest.mark.parametrize(("kind", "count"), [("edit", 1), ("edit-plus", 2)])
def test_pictures_are_looked_at_as_in_the_pipelines(
    models: Path, kind: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A megapixel is 4096 tokens: the same with a sixteenth of them.
    small = 256 * 256
    for module in (
        "inline_core.families.qwen_image.pictures.REFERENCE_PIXELS",
        "diffusers.pipelines.qwenimage.pipeline_qwenimage_edit_plus.VAE_IMAGE_SIZE",
    ):
        monkeypatch.setattr(module, small)
    if kind == "edit":
        whole = theirs.calculate_dimensions
        monkeypatch.setattr(theirs, "calculate_dimensions", lambda _, ratio: whole(small, ratio))
    pictures = [noise_picture(index, (100 + 60 * index, 70)) for index in range(count)]
    shown = [Image(np.asarray(picture)) for picture in pictures]
    bench = make_bench(models)
    job = bench.job("make it red", family="qwen-image", latent=Latent(96, 64), cfg=4.0, steps=2)
    seen = [as_reference(one) if kind == "edit" else as_condition(one) for one in shown]
    positive = replace(
        job.positive,
        references=tuple(encoded(bench, as_reference(one)) for one in shown),
        pictures=tuple(seen),
        options=(("one_picture", True),) if kind == "edit" else (),
    )
    model = with_patch(job.model, KeepLength())
    job = replace(job, model=model, positive=positive, negative=replace(positive, prompt=" "))
    ours = bench.sampler.submit(job).result(60).latent.samples
    assert bench.close()
    pipe = qwen_image.pipeline(kind)
    wanted = last_latents(
        pipe,
        image=pictures if count > 1 else pictures[0],
        prompt="make it red",
        negative_prompt=" ",
        width=96,
        height=64,
        num_inference_steps=2,
        true_cfg_scale=4.0,
        generator=generator(),
    )
    wanted = unpacked(pipe, wanted, 96, 64)
    assert wanted.std() > 0.3
    assert (ours - wanted).abs().max() <= 1e-4


@pytest.mark.parametrize("steps", [1, 4, 20, 50])
@pytest.mark.parametrize("size", [(256, 256), (1328, 1328), (1664, 928)])
def test_the_simple_schedule_is_that_of_the_pipeline(steps: int, size: tuple[int, int]) -> None:
    ours = sigmas_for("simple", steps, QWEN_IMAGE.table(ScheduleFor("", *size, steps)))
    if steps == 1:
        # The pipeline divides by zero, as its one step would be the first and the last.
        assert ours == (1.0, 0.0)
        return
    scheduler: Any = qwen_image.scheduler()
    tokens = (size[0] // 16) * (size[1] // 16)
    mu = calculate_shift(tokens, 256, 8192, 0.5, 0.9)
    scheduler.set_timesteps(sigmas=np.linspace(1.0, 1 / steps, steps), mu=mu)
    wanted = scheduler.sigmas.tolist()
    assert max(abs(a - b) for a, b in zip(ours, wanted, strict=True)) <= 2e-5
