"""Bria FIBO 2 against its pipeline: captions, and edits of pictures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import BriaFibo2Pipeline
from diffusers.pipelines.bria_fibo2.image_processor import BriaFibo2ImageProcessor
from torch.nn import functional

from inline_core.errors import InvalidParam
from inline_core.families.bria_fibo2 import pictures as sizes
from inline_core.families.bria_fibo2.captions import edit_prompt, generation_prompt
from inline_core.loading.component import Role
from inline_core.media.values import Image
from inline_core.nodes.image_size import fibo_size
from inline_core.sampling.values import Latent
from tests.backends.conftest import Bench, make_bench
from tests.pictures import noise_picture
from tests.reference import generator, last_latents
from tests.tiny_families import bria_fibo2

_FAMILY = "bria-fibo-2"
_CAPTION = (
    '{"short_description": "a red bicycle", "objects": [{"description": "a bicycle", '
    '"location": ""}], "lighting": {"conditions": null}, "aesthetics": {"preference_score": "high"},'
    ' "style_medium": "photograph \u00e9"}'
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fibo2")
    bria_fibo2.save_models(folder)
    return folder


def theirs(size: tuple[int, int], **call: Any) -> torch.Tensor:
    """The pipeline's latents from our noise, in the shape of ours."""
    width, height = size
    noise = torch.randn((1, 128, height // 16, width // 16), generator=generator())
    latents = last_latents(
        bria_fibo2.pipeline(),
        width=width,
        height=height,
        latents=functional.pixel_shuffle(noise, 2),
        render_text_images=False,
        **call,
    )
    return functional.pixel_unshuffle(latents, 2)


@pytest.mark.parametrize(
    ("prompt", "cfg"), [("a red circle", 1.0), (_CAPTION, 5.0), ("long " * 90, 1.0)]
)
def test_the_latents_are_those_of_the_pipeline(models: Path, prompt: str, cfg: float) -> None:
    bench = make_bench(models)
    job = bench.job(prompt, family=_FAMILY, latent=Latent(96, 64), cfg=cfg)
    ours = bench.latents(job)
    assert bench.close()
    wanted = theirs((96, 64), prompt=prompt, num_inference_steps=4, guidance_scale=cfg)
    assert wanted.std() > 0.3
    assert (ours - wanted).abs().max() <= 1e-4


def encoded(bench: Bench, picture: Image) -> Latent:
    vae = bench.catalog.find(Role.VAE, "", family=_FAMILY)
    found = bench.device.call(
        lambda: bench.modules.autoencoders.encode(vae, picture.pixels, lambda: None, tiled=False)
    ).result(60)
    return Latent(
        picture.width,
        picture.height,
        samples=found.samples,
        space=found.space,
        normalised=found.normalised,
    )


@pytest.mark.parametrize(("count", "cfg"), [(1, 5.0), (2, 1.0)])
def test_pictures_are_edited_as_in_the_pipeline(
    models: Path, count: int, cfg: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = 128 * 128
    monkeypatch.setattr(sizes, "AREA", small)
    whole = BriaFibo2ImageProcessor.get_image_size
    monkeypatch.setattr(
        BriaFibo2ImageProcessor,
        "get_image_size",
        lambda self, ratio, area: whole(self, ratio, small),
    )
    pictures = [noise_picture(index, (150 + 60 * index, 100)) for index in range(count)]
    plain = [Image(np.asarray(picture)) for picture in pictures]
    size = sizes.trained_size(plain[0].width / plain[0].height)
    bench = make_bench(models)
    job = bench.job("make it red", family=_FAMILY, latent=Latent(*size), cfg=cfg, steps=2)
    positive = replace(
        job.positive,
        references=tuple(encoded(bench, sizes.as_reference(one)) for one in plain),
        pictures=tuple(sizes.as_condition(one) for one in plain),
    )
    ours = bench.latents(replace(job, positive=positive))
    assert bench.close()
    wanted = theirs(
        size, image=pictures, prompt="make it red", num_inference_steps=2, guidance_scale=cfg
    )
    assert wanted.std() > 0.3
    assert (ours - wanted).abs().max() <= 1e-4


def test_prompts_of_other_lengths_share_a_pass(models: Path) -> None:
    bench = make_bench(models)
    jobs = [bench.job(prompt, family=_FAMILY) for prompt in ("a dog", "cats " * 100)]
    alone = [bench.latents(job) for job in jobs]
    futures = [bench.sampler.submit(job) for job in jobs]
    together = [future.result(30).latent.samples for future in futures]
    assert bench.close()
    for one, other in zip(alone, together, strict=True):
        assert torch.allclose(one, other, atol=1e-4)


@pytest.mark.parametrize(
    "prompt",
    [
        "a dog",
        _CAPTION,
        "[1, 2]",
        '{"short_description": "", "text_render": []}',
        '{"structured_caption": "a dog", "edit_instruction": "make it red"}',
        '{"aesthetic_score": 5, "x": NaN, "edit_instruction": "make it red"}',
        '{"structured_caption": {"objects": [{}, "a"]}, "edit_instruction": "red"}',
    ],
)
def test_captions_are_written_as_the_pipeline_does(prompt: str) -> None:
    caption, instruction = BriaFibo2Pipeline._parse_prompt(prompt)
    wanted = caption if isinstance(caption, str) else None
    if wanted is None:
        wanted = json.dumps(caption or {}, separators=(",", ":"), ensure_ascii=False)
    assert generation_prompt(prompt) == wanted
    if instruction is not None or not prompt.startswith("{"):
        for count in (1, 2):
            assert edit_prompt(prompt, count) == BriaFibo2Pipeline._get_edit_prompt(prompt, count)


@pytest.mark.parametrize("ratio", [1.0, 0.3, 1.777, 2.9, 7.0])
def test_sizes_are_those_that_the_model_was_trained_at(ratio: float) -> None:
    assert sizes.trained_size(ratio) == BriaFibo2ImageProcessor().get_image_size(ratio)


def test_the_node_gives_both_sizes_of_a_picture() -> None:
    picture = Image(np.asarray(noise_picture(2, (90, 60))))
    fitting, seen = fibo_size(picture)
    assert (fitting.width, fitting.height) == sizes.trained_size(1.5)
    assert max(seen.width, seen.height) == 768
    asked, same = fibo_size(picture, width=64, height=96)
    wanted = BriaFibo2ImageProcessor()._resize_and_crop(noise_picture(2, (90, 60)), 64, 96)
    assert np.array_equal(asked.pixels, np.asarray(wanted))
    assert (same.width, same.height) == (64, 96)


def test_an_edit_without_an_instruction_is_refused() -> None:
    with pytest.raises(InvalidParam, match="edit_instruction"):
        edit_prompt(_CAPTION, 1)


@pytest.mark.parametrize(("references", "pictures"), [(1, 0), (0, 1), (6, 6)])
def test_pictures_that_do_not_go_with_references_are_refused(
    models: Path, references: int, pictures: int
) -> None:
    bench = make_bench(models)
    picture = Image(np.asarray(noise_picture(5, (64, 64))))
    latent = encoded(bench, picture)
    job = bench.job("red", family=_FAMILY)
    positive = replace(
        job.positive, references=(latent,) * references, pictures=(picture,) * pictures
    )
    with pytest.raises(InvalidParam, match="edits up to 5 pictures"):
        bench.latents(replace(job, positive=positive))
    assert bench.close()
