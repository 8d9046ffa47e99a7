"""FLUX.2 dev and its text encoder against diffusers' pipeline, in the layouts people have."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler, Flux2Pipeline
from PIL import Image as PillowImage

from inline_core.errors import ModelFileInvalid
from inline_core.families.flux2.family import FLUX_2
from inline_core.families.flux2.references import as_reference
from inline_core.families.flux2.text import MAX_TOKENS, encode_prompt
from inline_core.families.text_encoders.mistral import load_text_encoder, load_tokenizer
from inline_core.loading.component import Role
from inline_core.media.values import Image
from inline_core.sampling.job import SampleJob
from inline_core.sampling.values import Conditioning, Latent
from inline_core.settings import Settings
from tests import tiny_flux2
from tests.backends.conftest import Bench, make_bench
from tests.live import LiveServer, live_server
from tests.plans import plan_of
from tests.real_sizes import plans
from tests.reference import generator, last_latents
from tests.unit.server.test_family_runs import content, edge, run

WIDTH, HEIGHT = 64, 96
PROMPTS: Final = ["a red [IMG]circle", "long " * 200]
FILES: Final = ("mistral_flux2.safetensors", "mistral")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_flux2.save_dev_models(tmp_path_factory.mktemp("dev"))


@pytest.fixture(scope="module")
def bench(folder: Path) -> Iterator[Bench]:
    made = make_bench(folder)
    yield made
    assert made.close()


@pytest.fixture(scope="module")
def pipe() -> Any:
    """diffusers' own pipeline; its tokenizer stands in for the processor around it."""
    return Flux2Pipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(
            use_dynamic_shifting=True, shift=3.0, base_shift=0.5, max_shift=1.15
        ),
        vae=tiny_flux2.vae(),
        text_encoder=tiny_flux2.mistral(),
        tokenizer=tiny_flux2.mistral_tokenizer(),
        transformer=tiny_flux2.transformer(guidance_embeds=True),
    )


def job(bench: Bench, prompt: str = "a red circle", encoder: str = "", **changes: Any) -> SampleJob:
    found = bench.catalog.find(Role.DIFFUSION_MODEL, "dev.safetensors", family="flux-2")
    model = replace(found, variant="dev")  # tiny ones do not tell
    given = bench.catalog.find(Role.TEXT_ENCODER, encoder or FILES[0], family="flux-2")
    words = bench.catalog.encoders_for(model, given)
    values: dict[str, Any] = {
        "latent": Latent(WIDTH, HEIGHT),
        "steps": 3,
        "cfg": 1.0,
        "sampler": "euler",
        "scheduler": "simple",
        "seed": 7,
        "positive": Conditioning(prompt, words, guidance=2.5),
    }
    return SampleJob(model=model, **{**values, **changes})


def wanted(pipe: Any, **call: Any) -> torch.Tensor:
    values = {
        "prompt": "a red circle",
        "width": WIDTH,
        "height": HEIGHT,
        "num_inference_steps": 3,
        "guidance_scale": 2.5,
        "generator": generator(),
    }
    found = last_latents(pipe, **{**values, **call})
    return found[0].T.reshape(1, 128, HEIGHT // 16, WIDTH // 16)


@pytest.mark.parametrize("name", FILES)
@torch.inference_mode()
def test_prompts_are_read_as_in_the_pipeline(folder: Path, pipe: Any, name: str) -> None:
    place = folder / "text_encoders" / name
    beside = place if place.is_dir() else folder / "text_encoders/mistral_flux2.tokenizer"
    encoder = load_text_encoder(plan_of(place), load_tokenizer(beside, name))
    assert len(encoder.model.layers) == 30
    for prompt in PROMPTS:
        found = encode_prompt(encoder, prompt)
        theirs = pipe.encode_prompt(prompt, device="cpu")[0][0]
        assert found.features.shape == (MAX_TOKENS, 3 * tiny_flux2.HIDDEN)
        assert theirs.std() > 0.1
        assert (found.features - theirs).abs().max() <= 1e-5
        assert (found.cut_tokens > 0) == (prompt is PROMPTS[1])


def test_a_shallow_encoder_is_refused(tmp_path: Path) -> None:
    tiny_flux2.mistral(layers=12).save_pretrained(tmp_path)
    encoder = load_text_encoder(plan_of(tmp_path), tiny_flux2.mistral_tokenizer())
    with pytest.raises(ModelFileInvalid, match=r"has 12 layers: FLUX\.2 reads layer 30"):
        encode_prompt(encoder, "a")


@pytest.mark.parametrize("prompt", PROMPTS)
def test_the_latents_are_those_of_the_pipeline(bench: Bench, pipe: Any, prompt: str) -> None:
    found, expected = bench.latents(job(bench, prompt)), wanted(pipe, prompt=prompt)
    assert expected.std() > 0.3
    assert (found - expected).abs().max() <= 1e-4
    assert (bench.latents(job(bench, prompt, "mistral")) - found).abs().max() <= 1e-5
    plain = job(bench, prompt)
    other = replace(plain, positive=replace(plain.positive, guidance=6.0))
    assert (bench.latents(other) - found).abs().max() > 1e-3


def test_pictures_are_looked_at_as_in_the_pipeline(bench: Bench, pipe: Any) -> None:
    draw = np.random.default_rng(3)
    shown = [draw.integers(0, 255, (*size, 3), dtype=np.uint8) for size in ((70, 100), (64, 64))]
    plain = job(bench)
    vae = bench.catalog.companions(plain.model)[0]
    latents = []
    for pixels in shown:
        picture = as_reference(Image(pixels))
        encode = bench.modules.autoencoders.encode
        with torch.inference_mode():
            made = encode(vae, picture.pixels, lambda: None, tiled=False)
        latents.append(
            Latent(
                picture.width,
                picture.height,
                samples=made.samples,
                space=made.space,
                normalised=made.normalised,
            )
        )
    looking = replace(plain, positive=replace(plain.positive, references=tuple(latents)))
    pictures = [PillowImage.fromarray(pixels) for pixels in shown]
    found = bench.latents(looking)
    assert (found - wanted(pipe, image=pictures)).abs().max() <= 1e-4
    assert (found - bench.latents(plain)).abs().max() > 1e-3


def test_rows_give_what_they_give_alone(bench: Bench) -> None:
    jobs = [job(bench, prompt, seed=seed) for seed, prompt in enumerate(PROMPTS)]
    alone = [bench.latents(made) for made in jobs]
    together = [bench.sampler.submit(made) for made in jobs]
    for future, expected in zip(together, alone, strict=True):
        assert (future.result(30).latent.samples - expected).abs().max() <= 1e-4


def test_a_text_encoder_of_klein_is_refused(bench: Bench, folder: Path) -> None:
    tiny_flux2.save_text_encoder_folder(folder / "text_encoders/qwen-f2")
    bench.catalog.refresh()
    with pytest.raises(ModelFileInvalid, match=r"needs another text encoder \(mistral3"):
        job(bench, encoder="qwen-f2")
    klein = replace(job(bench).model, variant="klein-4b")
    given = bench.catalog.find(Role.TEXT_ENCODER, "mistral", family="flux-2")
    with pytest.raises(ModelFileInvalid, match=r"needs another text encoder \(qwen3"):
        bench.catalog.encoders_for(klein, given)
    # Without a pick each finds its own.
    assert bench.catalog.encoders_for(klein).name == "qwen-f2"
    assert bench.catalog.encoders_for(job(bench).model).family == "mistral3"


def test_it_is_planned() -> None:
    found = plans(FLUX_2, "flux-2-dev", ("mistral3",), "flux-2")
    assert found.weights // 10**9 == 32
    assert found.rungs == ["wont-fit", "offload", "offload", "resident"]


@pytest.fixture(scope="module")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    data = tmp_path_factory.mktemp("data")
    settings = Settings(data_dir=data, models_dir=folder, demo_model=False, threads=1, walkers=1)
    with live_server(settings) as running:
        yield running


def test_one_click_gives_its_guidance_to_the_model(server: LiveServer, pipe: Any) -> None:
    def made(**params: Any) -> Any:
        values = {"variant": "dev", "width": 256, "height": 256, "steps": 2, "seed": 7, **params}
        wires = {"prompt": edge("p", "text")}
        kind = "black-forest-labs/flux-2"
        nodes = [
            {"id": "p", "type": "input/text", "params": {"text": "a red circle"}},
            {"id": "g", "type": kind, "params": values, "inputs": wires},
        ]
        take = run(server, (nodes, "g"))["takes"][0]
        assert (take["provenance"]["variant"], take["provenance"]["cfg"]) == ("dev", 1.0)
        with PillowImage.open(io.BytesIO(content(server, take))) as picture:
            return np.asarray(picture).astype(int)

    # Of a negative prompt nothing is read: there is no guidance to push away from it.
    usual, said, other = made(), made(guidance=4.0, negative_prompt="red"), made(guidance=1.5)
    assert np.array_equal(usual, said)
    assert not np.array_equal(usual, other)
    theirs = pipe(
        prompt="a red circle",
        width=256,
        height=256,
        num_inference_steps=2,
        guidance_scale=4.0,
        generator=generator(),
    ).images[0]
    assert np.abs(usual - np.asarray(theirs).astype(int)).max() <= 1
