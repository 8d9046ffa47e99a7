"""MiniMax H3 against diffusers' blocks: video and soundtrack, from text and from keyframes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers.modular_pipelines.minimax_h3 import MiniMaxH3Blocks
from diffusers.modular_pipelines.minimax_h3.references import MiniMaxH3ImageReference

from inline_core.errors import InvalidParam, ModelFileInvalid
from inline_core.families.minimax_h3 import pictures as shown_as
from inline_core.families.minimax_h3.denoise import LOUDER
from inline_core.families.minimax_h3.family import MINIMAX_H3, SPACE
from inline_core.loading.component import Role
from inline_core.media.values import Image
from inline_core.nodes.frames import keyframes, reference_pictures
from inline_core.sampling.noise import NoiseSource
from inline_core.sampling.values import Latent
from tests import tiny
from tests.backends.conftest import Bench, BenchNodes, make_bench
from tests.pictures import noise_picture
from tests.tiny_families import minimax_h3

LATENT = Latent(64, 96, frames=minimax_h3.FRAMES, fps=24.0)
PROMPT = "a red circle that hums"
STEPS = 4


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("h3")
    minimax_h3.save_models(folder)
    minimax_h3.transformer().save_pretrained(folder / "diffusion_models/folder")
    tiny.save(dict(minimax_h3.vae().state_dict()), folder / "vae/zz-bare.safetensors")
    tiny.settle(folder)
    return folder


@pytest.fixture
def bench(models: Path) -> Iterator[Bench]:
    made = make_bench(models)
    yield made
    assert made.close()


def job(bench: Bench, **changes: Any) -> Any:
    # The pipeline counts the end too.
    values = {"model": "h3.safetensors", "latent": LATENT, "steps": STEPS - 1}
    return bench.job(PROMPT, family="minimax-h3", **(values | changes))


def sampled(bench: Bench, wanted: Any) -> tuple[torch.Tensor, torch.Tensor]:
    rows = bench.sampler.submit(wanted).result(60).latent.samples
    video, loud = SPACE.split(rows, wanted.latent)
    return video, loud.reshape(2, 32, -1) / LOUDER


def reference(**call: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """What the pipeline makes of the same noise: latents of the video and of both channels."""
    shape = SPACE.shape(LATENT.width, LATENT.height, LATENT.frames, LATENT.fps)
    video, sound = SPACE.split(NoiseSource(7, 1, shape, "cpu").draw(), LATENT)
    pipe = minimax_h3.pipeline()
    pipe.update_components(reference_image_short_edge=shown_as.REFERENCE_EDGE)
    pipe.set_progress_bar_config(disable=True)
    state = pipe(
        prompt=PROMPT,
        width=LATENT.width,
        height=LATENT.height,
        num_frames=LATENT.frames,
        num_inference_steps=STEPS,
        latents=video,
        audio_latents=sound.reshape(2, 32, -1),
        generator=torch.Generator("cpu").manual_seed(42),
        **call,
    )
    return state.get("latents"), state.get("audio_latents")


def test_the_latents_are_those_of_the_pipeline(bench: Bench) -> None:
    video, sound = sampled(bench, job(bench))
    wanted, heard = reference()
    assert video.shape == (1, 24, 37, 6, 4)
    assert sound.shape == (2, 32, 207)
    assert min(float(video.std()), float(sound.std())) > 0.2
    assert (video - wanted).abs().max() <= 1e-4
    assert (sound - heard).abs().max() <= 1e-4


def held(bench: Bench, first: Any, last: Any) -> Any:
    wanted = job(bench)
    vae = bench.catalog.companion(Role.VAE, wanted.model)
    context: Any = BenchNodes(bench)
    ends = [None if one is None else Image(np.asarray(one)) for one in (first, last)]
    positive = keyframes(context, wanted.positive, vae, LATENT, *ends)
    return replace(wanted, positive=positive)


@pytest.mark.parametrize("ends", ["last", "both"])
def test_keyframes_are_those_of_the_pipeline(bench: Bench, ends: str) -> None:
    first = None if ends == "last" else noise_picture(1, (70, 90))
    last = noise_picture(2, (100, 90))
    video, sound = sampled(bench, held(bench, first, last))
    named = {"image": first, "last_image": last}
    call = {name: one for name, one in named.items() if one is not None}
    wanted, heard = reference(**call)
    assert (video - wanted).abs().max() <= 1e-4
    assert (sound - heard).abs().max() <= 1e-4


def test_references_are_those_of_the_pipeline(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shown_as, "REFERENCE_EDGE", 64)
    pictures = [noise_picture(1, (70, 90)), noise_picture(2, (200, 90))]
    wanted_job = job(bench)
    vae = bench.catalog.companion(Role.VAE, wanted_job.model)
    shown = [shown_as.as_reference(Image(np.asarray(one))) for one in pictures]
    assert [(one.width, one.height) for one in shown] == [(64, 96), (128, 64)]
    context: Any = BenchNodes(bench)
    images = [Image(np.asarray(one)) for one in pictures]
    positive = reference_pictures(context, wanted_job.positive, vae, images, short_side=64)
    assert all(
        np.array_equal(a.pixels, b.pixels) for a, b in zip(positive.pictures, shown, strict=True)
    )
    video, sound = sampled(bench, replace(wanted_job, positive=positive))
    named = [MiniMaxH3ImageReference(one) for one in pictures]
    wanted, heard = reference(references=named)
    assert (video - wanted).abs().max() <= 1e-4
    assert (sound - heard).abs().max() <= 1e-4


def test_references_have_a_shape_it_was_trained_on() -> None:
    narrow = Image(np.zeros((10, 50, 3), np.uint8))
    with pytest.raises(InvalidParam, match="50x10 is too narrow"):
        shown_as.as_reference(narrow)


def test_both_layouts_are_one_model(bench: Bench) -> None:
    ours = sampled(bench, job(bench))[0]
    other = sampled(bench, job(bench, model="folder"))[0]
    assert (ours - other).abs().max() <= 1e-5


def test_prompts_of_other_lengths_in_one_batch(bench: Bench) -> None:
    short = job(bench, steps=2)
    long = replace(short, positive=replace(short.positive, prompt=PROMPT * 3))
    alone = [sampled(bench, one) for one in (short, long)]
    together = [bench.sampler.submit(one) for one in (short, long)]
    for (video, _), done in zip(alone, together, strict=True):
        found = SPACE.split(done.result(60).latent.samples, LATENT)[0]
        assert (found - video).abs().max() <= 1e-4


def test_pictures_and_sound_are_those_of_the_parts(bench: Bench) -> None:
    vae = bench.catalog.companion(Role.VAE, job(bench).model)
    assert [part.role for part in vae.others] == [Role.AUDIO_VAE]
    modules, generator = bench.modules, torch.Generator().manual_seed(3)
    video = torch.randn(1, 24, 7, 6, 4, generator=generator)
    sound = torch.randn(1, 64, 30, generator=generator)
    latent = replace(LATENT, frames=22, samples=video, space="minimax-h3")
    pixels = bench.device.call(
        lambda: modules.autoencoders.decode(vae, latent, video, lambda: None, tiled=False)
    ).result(60)[0]
    samples, rate = bench.device.call(
        lambda: modules.soundtracks.decode(vae, sound, lambda: None)
    ).result(60)
    decode = MiniMaxH3Blocks().sub_blocks["decode"].init_pipeline()
    decode.update_components(vae=minimax_h3.vae(), audio_vae=minimax_h3.audio_vae())
    heard = sound.reshape(2, 32, -1) / LOUDER
    state = decode(latents=video, audio_latents=heard, output_type="np")
    shown = (state.get("videos")[0] * 255).round()
    assert pixels.shape == (22, 96, 64, 3)
    assert np.abs(pixels - shown).max() <= 1
    assert pixels.std() > 3
    assert rate == state.get("sampling_rate") == 32_000
    assert np.abs(samples - state.get("audio")[0].numpy()).max() <= 1e-5
    assert samples.std() > 1e-4


def test_a_vae_that_does_not_tell_its_statistics_is_refused(bench: Bench) -> None:
    vae = bench.catalog.find(Role.VAE, "zz-bare.safetensors")
    latent = replace(LATENT, frames=5, samples=torch.zeros(1, 24, 2, 6, 4), space="minimax-h3")
    with pytest.raises(ModelFileInvalid, match=r"config\.json"):
        bench.modules.autoencoders.decode(vae, latent, latent.samples, lambda: None, tiled=False)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"latent": replace(LATENT, frames=121)}, r"17 n \+ 5, such as 124"),
        ({"latent": replace(LATENT, frames=22)}, "5 to 15 seconds"),
        ({"latent": replace(LATENT, fps=30.0)}, "24 frames a second"),
        ({"latent": replace(LATENT, mask=np.zeros((96, 64), np.uint8))}, "leave the mask out"),
        ({"cfg": 3.0, "negative": "blurry"}, "guidance inside"),
        ({"latent": replace(LATENT, width=80)}, "width is 80"),
    ],
)
def test_what_it_cannot_make_is_refused(bench: Bench, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidParam, match=words):
        bench.sampler.submit(job(bench, **changes)).result(60)


def test_frames_are_rounded_up_to_what_it_makes() -> None:
    assert [MINIMAX_H3.frames_above(count) for count in (1, 5, 6, 120, 124, 125)] == [
        5,
        5,
        22,
        124,
        124,
        141,
    ]


def test_without_keyframes_the_node_says_so(bench: Bench) -> None:
    with pytest.raises(InvalidParam, match="wire a picture"):
        held(bench, None, None)
