"""Wan against its pipelines: text, first frames, both frames, two experts, the 5B model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from inline_core.errors import InvalidParam
from inline_core.families.autoencoders.wan_keys import wan_vae_sources
from inline_core.loading.component import Role
from inline_core.media.values import Image
from inline_core.nodes.frames import frames
from inline_core.nodes.patches import pair
from inline_core.sampling.values import Conditioning, Latent
from tests import original_layouts, tiny
from tests.backends.conftest import Bench, BenchNodes, make_bench
from tests.pictures import noise_picture
from tests.reference import generator, last_latents
from tests.tiny_families import krea2, wan

FRAMES = 9
SIDE = 64
SIZE: dict[str, Any] = {"width": SIDE, "height": SIDE}
CALL: dict[str, Any] = {
    "prompt": "a red circle",
    "negative_prompt": "blurry",
    **SIZE,
    "num_frames": FRAMES,
    "num_inference_steps": 4,
    "guidance_scale": 5.0,
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of Wan side by side."""
    folder = tmp_path_factory.mktemp("wan")
    wan.save_models(folder)
    wan.save_transformer(folder, "low", seed=60)
    wan.save_transformer(folder, "i2v", wan.I2V)
    wan.save_transformer(folder, "2.2-i2v", wan.I2V_22)
    wan.save_transformer(folder, "5b", wan.TI2V)
    wan.vae_22().save_pretrained(folder / "vae/vae22")
    wan.save_vision(folder)
    tiny.settle(folder)
    return folder


def sampled(bench: Bench, model: str, family: str = "wan", **more: Any) -> torch.Tensor:
    job = made(bench, model, family, **more)
    samples: torch.Tensor = bench.sampler.submit(job).result(60).latent.samples
    return samples


def made(
    bench: Bench,
    model: str,
    family: str,
    first: Any = None,
    last: Any = None,
    second: str = "",
) -> Any:
    latent = Latent(**SIZE, frames=FRAMES, fps=16.0)
    job = bench.job(
        CALL["prompt"], family=family, model=model, latent=latent, cfg=5.0, negative="blurry"
    )
    if second:
        low = bench.catalog.find(Role.DIFFUSION_MODEL, second, family=family)
        context: Any = BenchNodes(bench)
        job = replace(job, model=pair(job.model, low))
    if first is None and last is None:
        return job
    vae = bench.catalog.companion(Role.VAE, job.model)
    shown = [None if one is None else Image(np.asarray(one)) for one in (first, last)]
    rest = "nothing" if family == "wan-5b" else "grey"
    context = BenchNodes(bench)
    positive: Conditioning = frames(context, job.positive, vae, latent, *shown, rest=rest)
    negative = replace(positive, prompt="blurry")
    return replace(job, positive=positive, negative=negative)


@pytest.mark.parametrize(
    ("kind", "model", "family"),
    [
        ("t2v", "wan.safetensors", "wan"),
        ("pair", "wan.safetensors", "wan"),
        ("5b", "5b.safetensors", "wan-5b"),
        ("i2v", "i2v.safetensors", "wan"),
        ("2.2-i2v", "2.2-i2v.safetensors", "wan"),
        ("5b-i2v", "5b.safetensors", "wan-5b"),
    ],
)
def test_the_latents_are_those_of_the_pipeline(
    models: Path, kind: str, model: str, family: str
) -> None:
    bench = make_bench(models)
    first = noise_picture(1, (64, 64)) if kind.endswith("i2v") else None
    second = "low.safetensors" if kind == "pair" else ""
    ours = sampled(bench, model, family, first=first, second=second)
    assert bench.close()
    call = CALL if first is None else {**CALL, "image": first}
    wanted = last_latents(wan.pipeline(kind), **call, generator=generator()).clone()
    if kind == "5b-i2v":
        # What the pipeline puts back after its last step.
        wanted[:, :, 0] = ours[:, :, 0]
    assert wanted.std() > 0.3
    assert (ours - wanted).abs().max() <= 1e-4


def test_frames_it_cannot_have_are_refused(models: Path) -> None:
    bench = make_bench(models)
    job = made(bench, "wan.safetensors", "wan")
    wrong = replace(job, latent=replace(job.latent, frames=10))
    with pytest.raises(InvalidParam, match="one more than a multiple of 4, such as 9"):
        bench.sampler.submit(wrong).result(60)
    assert bench.close()


def test_a_last_frame_too(models: Path) -> None:
    bench = make_bench(models)
    ours = sampled(
        bench,
        "2.2-i2v.safetensors",
        first=noise_picture(1, (64, 64)),
        last=noise_picture(2, (64, 64)),
    )
    assert bench.close()
    wanted = last_latents(
        wan.pipeline("2.2-i2v"),
        **CALL,
        image=noise_picture(1, (64, 64)),
        last_image=noise_picture(2, (64, 64)),
        generator=generator(),
    )
    assert (ours - wanted).abs().max() <= 1e-4


def test_both_experts_are_used(models: Path) -> None:
    bench = make_bench(models)
    both = sampled(bench, "wan.safetensors", second="low.safetensors")
    first, low = (sampled(bench, name) for name in ("wan.safetensors", "low.safetensors"))
    assert bench.close()
    assert (both - first).abs().max() > 0.01
    assert (both - low).abs().max() > 0.01


def test_pixels_are_those_of_the_vae(models: Path) -> None:
    bench = make_bench(models)
    job = made(bench, "wan.safetensors", "wan")
    result = bench.sampler.submit(job).result(60).latent
    vae = bench.catalog.find(Role.VAE, "wan_vae.safetensors", family="wan")
    pixels, special = bench.device.call(
        lambda: bench.modules.autoencoders.decode(
            vae, result, result.samples, lambda: None, tiled=False
        )
    ).result(60)
    assert bench.close()
    assert pixels.shape == (FRAMES, 64, 64, 3)
    assert special == ()
    model = krea2.vae()
    shape = (1, -1, 1, 1, 1)
    mean, deviation = (
        torch.tensor(values).view(shape)
        for values in (model.config.latents_mean, model.config.latents_std)
    )
    with torch.inference_mode():
        video = model.decode(result.samples * deviation + mean).sample[0]  # (3, frames, h, w)
    wanted = ((video.permute(1, 2, 3, 0).numpy() * 0.5 + 0.5) * 255).round()
    assert wanted.std() > 10
    assert np.abs(pixels.astype(float) - wanted).max() <= 1


@pytest.mark.parametrize("kind", ["2.1", "2.2"])
def test_both_layouts_of_the_vaes_have_the_same_weights(kind: str, tmp_path: Path) -> None:
    state = (krea2.vae() if kind == "2.1" else wan.vae_22()).state_dict()
    original = original_layouts.wan_vae(dict(state))
    assert original.keys() != state.keys()
    sources = wan_vae_sources(original, "")
    assert sources.keys() == state.keys()
    assert all(torch.equal(original[sources[name].name], state[name]) for name in state)
    assert wan_vae_sources(state, "").keys() == state.keys()


@pytest.mark.parametrize(
    ("model", "first", "message"),
    [
        ("i2v.safetensors", None, "wire its first frame"),
        ("wan.safetensors", noise_picture(1, (64, 64)), "from text alone"),
    ],
)
def test_frames_that_do_not_fit_the_model(
    models: Path, model: str, first: Any, message: str
) -> None:
    bench = make_bench(models)
    with pytest.raises(InvalidParam, match=message):
        sampled(bench, model, first=first)
    assert bench.close()


def test_pictures_of_another_shape_are_cut_and_told(models: Path) -> None:
    bench = make_bench(models)
    context: Any = BenchNodes(bench)
    vae = bench.catalog.find(Role.VAE, "wan_vae.safetensors", family="wan")
    encoder = bench.job(family="wan", model="wan.safetensors").positive
    latent = Latent(**SIZE, frames=5)
    wide = Image(np.asarray(noise_picture(1, (128, 64))))
    found = frames(context, encoder, vae, latent, wide)
    assert found.references[0].samples.shape == (1, 16, 2, 8, 8)
    assert context.warned == ["the picture of 128x64 was cut to the shape of the video (64x64)."]
    with pytest.raises(InvalidParam, match="wire a first frame"):
        frames(context, encoder, vae, latent)
    assert bench.close()
