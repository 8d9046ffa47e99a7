"""LongCat-Image and LongCat-Image-Edit against their pipelines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers.pipelines.longcat_image import pipeline_longcat_image_edit as theirs

from inline_core.errors import InvalidParam
from inline_core.families.longcat_image.pictures import as_condition, as_reference
from inline_core.families.longcat_image.text import tokens_of
from inline_core.families.text_encoders.loaded import TextEncoder
from inline_core.loading.component import Role
from inline_core.loading.interruption import Interruption
from inline_core.media.values import Image
from inline_core.sampling.patches import KeepLength, with_patch
from inline_core.sampling.values import Latent
from tests import tiny
from tests.backends.conftest import Bench, make_bench
from tests.pictures import noise_picture
from tests.reference import generator
from tests.tiny_families import longcat_image, qwen_image

_FAMILY = "longcat-image"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("longcat")
    longcat_image.save_models(folder)
    return folder


def latents_of(pipe: Any, size: tuple[int, int], **call: Any) -> torch.Tensor:
    pipe.set_progress_bar_config(disable=True)
    with torch.inference_mode():
        found = pipe(output_type="latent", generator=generator(), **call).images
    latents: torch.Tensor = pipe._unpack_latents(found, size[1], size[0], 8)
    return latents


@pytest.mark.parametrize(
    ("prompt", "cfg"), [("a red circle", 1.0), ('says "hi there" and don\'t', 4.5), ("x" * 600, 1)]
)
def test_the_latents_are_those_of_the_pipeline(models: Path, prompt: str, cfg: float) -> None:
    bench = make_bench(models)
    job = bench.job(prompt, family=_FAMILY, latent=Latent(96, 64), cfg=cfg, negative="blurry")
    model = with_patch(job.model, KeepLength(shorten_only=True))
    ours = bench.sampler.submit(replace(job, model=model)).result(30)
    assert bench.close()
    pipe = longcat_image.pipeline()
    if len(prompt) > 512:
        prompt = prompt[:512]  # the pipeline fails at the warning that it cuts
    wanted = latents_of(
        pipe,
        (96, 64),
        prompt=prompt,
        negative_prompt="blurry",
        width=96,
        height=64,
        num_inference_steps=4,
        guidance_scale=cfg,
        enable_prompt_rewrite=False,
    )
    assert wanted.std() > 0.3
    assert (ours.latent.samples - wanted).abs().max() <= 1e-4
    assert bool(ours.warnings) == (len(prompt) == 512)


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


def test_a_picture_is_looked_at_as_in_the_pipeline(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A megapixel is 4096 tokens: the same with a sixteenth of them.
    small = 256 * 256
    whole = theirs.calculate_dimensions
    monkeypatch.setattr(theirs, "calculate_dimensions", lambda _, ratio: whole(small, ratio))
    monkeypatch.setattr("inline_core.families.longcat_image.pictures.REFERENCE_PIXELS", small)
    picture = noise_picture(1, (150, 70))
    shown = Image(np.asarray(picture))
    reference = as_reference(shown)
    size = (reference.width, reference.height)
    bench = make_bench(models)
    job = bench.job("make it red", family=_FAMILY, latent=Latent(*size), cfg=4.5, steps=2)
    positive = replace(
        job.positive, references=(encoded(bench, reference),), pictures=(as_condition(shown),)
    )
    job = replace(job, positive=positive, negative=replace(positive, prompt=""))
    ours = bench.latents(job)
    guided = replace(positive, guidance=3.5)  # an input that the model does not have
    ignoring = bench.latents(replace(job, positive=guided))
    assert bench.close()
    pipe = longcat_image.pipeline("edit")
    wanted = latents_of(
        pipe, size, image=picture, prompt="make it red", num_inference_steps=2, guidance_scale=4.5
    )
    assert wanted.std() > 0.3
    assert (ours - wanted).abs().max() <= 1e-4
    assert torch.equal(ours, ignoring)


def test_diffusers_names_are_read_too(models: Path, tmp_path: Path) -> None:
    longcat_image.save_models(tmp_path)
    (tmp_path / "diffusion_models/longcat.safetensors").unlink()
    keys = dict(longcat_image.transformer().state_dict())
    tiny.save(keys, tmp_path / "diffusion_models/plain.safetensors")
    found = []
    for folder in (models, tmp_path):
        bench = make_bench(folder)
        found.append(bench.latents(bench.job("a dog", family=_FAMILY)))
        assert bench.close()
    assert torch.allclose(found[0], found[1], atol=1e-5)


@pytest.mark.parametrize(
    "prompt", ["plain", "a 'b c' d", 'x "y" z', "it's 'so' good", "\u201cab\u201d", "don't", ""]
)
def test_quoted_words_are_read_as_the_pipeline_does(prompt: str) -> None:
    words = qwen_image.tokenizer()
    # The tokenizer joins nothing, so only how the text is split shows: by what is read at a time.
    read: list[str] = []

    def tokenizer(text: str, **more: Any) -> Any:
        read.append(text)
        return words(text, **more)

    encoder = TextEncoder(None, tokenizer, "cpu", Interruption([]))
    tokens_of(encoder, prompt)
    wanted: list[str] = []
    for part, quoted in theirs.split_quotation(prompt):
        wanted += list(part) if quoted else [part]
    assert read == wanted


@pytest.mark.parametrize(("references", "pictures"), [(1, 0), (0, 1), (2, 2)])
def test_other_than_one_picture_is_refused(models: Path, references: int, pictures: int) -> None:
    bench = make_bench(models)
    picture = Image(np.asarray(noise_picture(5, (64, 64))))
    latent = encoded(bench, picture)
    job = bench.job("red", family=_FAMILY)
    positive = replace(
        job.positive, references=(latent,) * references, pictures=(picture,) * pictures
    )
    with pytest.raises(InvalidParam, match="looks at one picture"):
        bench.latents(replace(job, positive=positive))
    assert bench.close()
