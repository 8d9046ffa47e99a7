"""FLUX.2 klein KV, whose reference images look at themselves only, against diffusers' pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler, Flux2KleinKVPipeline
from PIL import Image as PillowImage
from transformers import Qwen3ForCausalLM

from inline_core.errors import InvalidParam
from inline_core.families.flux2.family import FLUX_2, KLEIN_KV
from inline_core.families.flux2.references import as_reference
from inline_core.media.values import Image
from inline_core.sampling.values import Latent
from tests import tiny_flux2
from tests.backends.conftest import Bench, make_bench
from tests.reference import generator, last_latents

WIDTH, HEIGHT = 64, 96


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    made = make_bench(tiny_flux2.shared_flux2_models())
    yield made
    assert made.close()


def job(
    bench: Bench, prompt: str = "a red circle", *, variant: str = KLEIN_KV, **changes: Any
) -> Any:
    made = bench.job(
        prompt, family="flux-2", latent=Latent(WIDTH, HEIGHT), cfg=1.0, steps=3, **changes
    )
    return replace(made, model=replace(made.model, variant=variant))


def pictures() -> list[np.ndarray[Any, np.dtype[np.uint8]]]:
    draw = np.random.default_rng(3)
    return [draw.integers(0, 255, (*size, 3), dtype=np.uint8) for size in ((70, 100), (64, 64))]


def looking(bench: Bench, made: Any) -> Any:
    """The job with two pictures to look at."""
    vae = bench.catalog.companions(made.model)[0]
    latents = []
    for pixels in pictures():
        shown = as_reference(Image(pixels))
        with torch.inference_mode():
            found = bench.modules.autoencoders.encode(vae, shown.pixels, lambda: None, tiled=False)
        size = (shown.width, shown.height)
        latents.append(
            Latent(*size, samples=found.samples, space=found.space, normalised=found.normalised)
        )
    return replace(made, positive=replace(made.positive, references=tuple(latents)))


def test_the_latents_are_those_of_the_pipeline(bench: Bench) -> None:
    inner = tiny_flux2.text_encoder()
    encoder = Qwen3ForCausalLM(inner.config)
    encoder.model.load_state_dict(inner.state_dict())
    pipe = Flux2KleinKVPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(
            use_dynamic_shifting=True, shift=3.0, base_shift=0.5, max_shift=1.15
        ),
        vae=tiny_flux2.vae(),
        text_encoder=encoder.eval(),
        tokenizer=tiny_flux2.tokenizer(),
        transformer=tiny_flux2.transformer(),
    )
    wanted = last_latents(
        pipe,
        image=[PillowImage.fromarray(pixels) for pixels in pictures()],
        prompt="a red circle",
        width=WIDTH,
        height=HEIGHT,
        num_inference_steps=3,
        generator=generator(),
    )
    wanted = wanted[0].T.reshape(1, 128, HEIGHT // 16, WIDTH // 16)
    found = bench.latents(looking(bench, job(bench)))
    assert wanted.std() > 0.3
    assert (found - wanted).abs().max() <= 1e-4
    # Other variants let their references look at everything.
    usual = bench.latents(looking(bench, job(bench, variant="klein-9b")))
    assert (found - usual).abs().max() > 1e-3


def test_without_pictures_it_is_as_any_klein(bench: Bench) -> None:
    found, usual = (bench.latents(job(bench, variant=name)) for name in (KLEIN_KV, "klein-9b"))
    assert torch.equal(found, usual)


def test_rows_give_what_they_give_alone(bench: Bench) -> None:
    texts = ("a red circle", "long " * 60)
    jobs = [looking(bench, job(bench, text, seed=seed)) for seed, text in enumerate(texts)]
    # Another variant of the same file goes apart from them.
    jobs.append(looking(bench, job(bench, variant="klein-9b")))
    alone = [bench.latents(made) for made in jobs]
    together = [bench.sampler.submit(made) for made in jobs]
    for future, wanted in zip(together, alone, strict=True):
        assert (future.result(60).latent.samples - wanted).abs().max() <= 1e-4


@pytest.mark.parametrize(
    ("is_variant", "picked", "message"),
    [
        ("dev", KLEIN_KV, "is FLUX.2 dev, not klein-9b-kv"),
        ("klein-4b", KLEIN_KV, "is FLUX.2 klein-4b, not klein-9b-kv"),
        ("", "odd", "no variant 'odd' to be told; there are: klein-4b, "),
    ],
)
def test_a_model_is_told_what_it_can_be(
    bench: Bench, is_variant: str, picked: str, message: str
) -> None:
    model = replace(job(bench).model, variant=is_variant)
    with pytest.raises(InvalidParam, match=message):
        FLUX_2.as_variant(model, picked)
    assert FLUX_2.as_variant(replace(model, variant="klein-9b"), KLEIN_KV).variant == KLEIN_KV
