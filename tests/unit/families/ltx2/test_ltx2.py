"""LTX-2 against its pipelines: video and sound, from text and from a first frame."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers.pipelines.ltx2.utils import apply_image_conditioning_crf

from inline_core.errors import InvalidParam, ModelFileMissing
from inline_core.families.ltx2.family import SPACE, as_first_frame
from inline_core.loading.component import Role
from inline_core.media.values import Image
from inline_core.nodes.frames import frames
from inline_core.sampling.noise import NoiseSource
from inline_core.sampling.values import Latent
from tests import tiny
from tests.backends.conftest import Bench, BenchNodes, make_bench
from tests.pictures import noise_picture
from tests.tiny_families import ltx2

LATENT = Latent(64, 96, frames=17, fps=25.0)
CALL: dict[str, Any] = {
    "prompt": "a red circle that hums",
    "negative_prompt": "blurry",
    "width": 64,
    "height": 96,
    "num_frames": 17,
    "frame_rate": 25.0,
    "num_inference_steps": 4,
    "guidance_scale": 3.0,
    "audio_guidance_scale": 3.0,
    # Further passes and what goes with them, which only its own pipeline has.
    **dict.fromkeys(("stg_scale", "audio_stg_scale"), 0.0),
    **dict.fromkeys(("modality_scale", "audio_modality_scale"), 1.0),
    **dict.fromkeys(("guidance_rescale", "audio_guidance_rescale"), 0.0),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ltx2")
    ltx2.save_models(folder)
    ltx2.transformer().save_pretrained(folder / "diffusion_models/folder")
    ltx2.vae().save_pretrained(folder / "vae/vae-folder")
    tiny.settle(folder)
    return folder


@pytest.fixture
def bench(models: Path) -> Iterator[Bench]:
    made = make_bench(models)
    yield made
    assert made.close()


def job(bench: Bench, **changes: Any) -> Any:
    values = {"model": "ltx2.safetensors", "latent": LATENT, "cfg": 3.0, "negative": "blurry"}
    return bench.job(CALL["prompt"], family="ltx-2", **(values | changes))


def sampled(bench: Bench, **changes: Any) -> tuple[torch.Tensor, torch.Tensor]:
    wanted = job(bench, **changes)
    rows = bench.sampler.submit(wanted).result(60).latent.samples
    return SPACE.split(rows, wanted.latent)


def reference(**call: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """What the pipeline makes of the same noise: the latents of video and sound, not normalised."""
    shape = SPACE.shape(LATENT.width, LATENT.height, LATENT.frames, LATENT.fps)
    noise = NoiseSource(7, 1, shape, "cpu").draw()
    video, sound = SPACE.split(noise, LATENT)
    pipe = ltx2.pipeline(picture="image" in call)
    given = pipe.audio_vae
    packed = sound.transpose(1, 2) * given.latents_std + given.latents_mean
    if "image" in call:
        call["generator"] = torch.Generator("cpu").manual_seed(7)
    else:
        call["latents"] = raw(video)
    pipe.set_progress_bar_config(disable=True)
    with torch.inference_mode():
        found: tuple[torch.Tensor, torch.Tensor] = pipe(
            **CALL,
            **call,
            audio_latents=packed.unflatten(2, (-1, 16)).transpose(1, 2),
            output_type="latent",
            return_dict=False,
        )
    return found


def raw(video: torch.Tensor) -> torch.Tensor:
    vae = ltx2.vae()
    shape = (1, -1, 1, 1, 1)
    found: torch.Tensor = video * vae.latents_std.view(shape) + vae.latents_mean.view(shape)
    return found


def raw_sound(sound: torch.Tensor) -> torch.Tensor:
    vae = ltx2.audio_vae()
    packed: torch.Tensor = sound.transpose(1, 2) * vae.latents_std + vae.latents_mean
    found: torch.Tensor = packed.reshape(*packed.shape[:2], -1, 16).transpose(1, 2)
    return found


def test_the_latents_are_those_of_the_pipeline(bench: Bench) -> None:
    video, sound = sampled(bench)
    wanted, heard = reference()
    assert video.shape == (1, 128, 3, 3, 2)
    assert sound.shape == (1, 128, 17)
    assert min(float(video.std()), float(sound.std())) > 0.3
    assert (raw(video) - wanted).abs().max() <= 1e-4
    assert (raw_sound(sound) - heard).abs().max() <= 1e-4


def from_picture(bench: Bench, picture: Any) -> Any:
    wanted = job(bench)
    vae = bench.catalog.companion(Role.VAE, wanted.model)
    context: Any = BenchNodes(bench)
    shown = Image(np.asarray(picture))
    positive = frames(context, wanted.positive, vae, LATENT, shown, rest="nothing")
    return replace(wanted, positive=positive, negative=replace(positive, prompt="blurry"))


def test_a_first_frame_is_kept_and_the_rest_is_that_of_the_pipeline(bench: Bench) -> None:
    wanted_job = from_picture(bench, noise_picture(3, (64, 96)))
    rows = bench.sampler.submit(wanted_job).result(60).latent.samples
    video, sound = SPACE.split(rows, LATENT)
    wanted, heard = reference(image=noise_picture(3, (64, 96)), image_crf=0)
    assert (raw(video) - wanted).abs().max() <= 1e-4
    assert (raw_sound(sound) - heard).abs().max() <= 1e-4
    first = wanted_job.positive.references[0].samples
    assert (video[:, :, :1] - first).abs().max() <= 1e-5


def test_both_layouts_are_one_model(bench: Bench) -> None:
    ours = sampled(bench)[0]
    other = sampled(bench, model="folder")[0]
    assert (ours - other).abs().max() <= 1e-5


def test_videos_of_other_sizes_in_one_batch(bench: Bench) -> None:
    turned = replace(LATENT, width=96, height=64)
    alone = [sampled(bench, latent=latent) for latent in (LATENT, turned)]
    jobs = [job(bench, latent=latent) for latent in (LATENT, turned)]
    together = [bench.sampler.submit(one) for one in jobs]
    for (video, _), done, one in zip(alone, together, jobs, strict=True):
        found = SPACE.split(done.result(60).latent.samples, one.latent)[0]
        assert (found - video).abs().max() <= 1e-4


def test_pictures_and_sound_are_those_of_the_parts(bench: Bench) -> None:
    wanted = job(bench)
    rows = bench.sampler.submit(wanted).result(60).latent.samples
    video, sound = SPACE.split(rows, LATENT)
    vae = bench.catalog.companion(Role.VAE, wanted.model)
    modules = bench.modules
    latent = replace(LATENT, samples=video, space="ltx-2")
    pixels, special = bench.device.call(
        lambda: modules.autoencoders.decode(vae, latent, video, lambda: None, tiled=False)
    ).result(60)
    samples, rate = bench.device.call(
        lambda: modules.soundtracks.decode(vae, sound, lambda: None)
    ).result(60)
    with torch.inference_mode():
        decoded = ltx2.vae().decode(raw(video), None, return_dict=False)[0][0]
        heard = ltx2.vocoder()(ltx2.audio_vae().decode(raw_sound(sound), return_dict=False)[0])
    shown = ((decoded.permute(1, 2, 3, 0) * 0.5 + 0.5).clamp(0, 1) * 255).round().numpy()
    assert special == ()
    assert pixels.shape == (17, 96, 64, 3)
    assert np.abs(pixels - shown).max() <= 1
    assert pixels.std() > 5
    assert rate == 24_000
    assert samples.shape[0] == 2
    assert np.abs(samples - heard[0].numpy()).max() <= 1e-4
    assert samples.std() > 1e-3


def test_a_folder_and_a_file_of_the_video_vae_decode_alike(bench: Bench) -> None:
    latent = replace(LATENT, samples=torch.randn(1, 128, 3, 3, 2), space="ltx-2")
    found = []
    for name in ("ltx2-vae.safetensors", "vae-folder"):
        vae = bench.catalog.find(Role.VAE, name)
        assert [part.role for part in vae.others] == [Role.AUDIO_VAE, Role.VOCODER]
        work = functools.partial(
            bench.modules.autoencoders.decode,
            vae,
            latent,
            latent.samples,
            lambda: None,
            tiled=False,
        )
        found.append(bench.device.call(work).result(60)[0])
    assert np.array_equal(found[0], found[1])


def test_without_a_vocoder_or_audio_vae_it_says_so(bench: Bench) -> None:
    vae = replace(bench.catalog.find(Role.VAE, "ltx2-vae.safetensors"), others=())
    with pytest.raises(ModelFileMissing, match="an audio VAE of the same model"):
        bench.modules.soundtracks.decode(vae, torch.zeros(1, 128, 17), lambda: None)


def test_a_first_frame_is_compressed_as_in_training() -> None:
    shown = np.asarray(noise_picture(3, (64, 96)).resize((65, 97)))
    found = as_first_frame(Image(shown)).pixels
    assert np.array_equal(found, apply_image_conditioning_crf(shown, 33))
    assert found.shape == (96, 64, 3)


@pytest.mark.parametrize(
    ("latent", "words"),
    [
        (replace(LATENT, frames=12), r"one more than a multiple of 8, such as 9"),
        (replace(LATENT, mask=np.zeros((96, 64), np.uint8)), "leave the mask out"),
        (replace(LATENT, width=80), "width is 80"),
    ],
)
def test_what_it_cannot_make_is_refused(bench: Bench, latent: Latent, words: str) -> None:
    with pytest.raises(InvalidParam, match=words):
        bench.sampler.submit(job(bench, latent=latent)).result(60)


def test_long_prompts_are_cut_and_told(bench: Bench) -> None:
    done = bench.sampler.submit(
        replace(job(bench), positive=replace(job(bench).positive, prompt="a" * 1100), negative=None)
    ).result(60)
    assert any("76 tokens" in warning or "1024" in warning for warning in done.warnings)


def test_a_part_that_is_not_there_is_called_by_its_name(bench: Bench) -> None:
    told = bench.catalog.nothing_found(Role.VOCODER, "ltx-2").message
    assert told.startswith("No vocoder found in models/vae/ for LTX-2. Add one there.")


def test_a_last_frame_and_how_far_it_is_held_count(bench: Bench) -> None:
    wanted = from_picture(bench, noise_picture(3, (64, 96)))
    mask = np.full((LATENT.frames, 1, 1), 255, np.uint8)
    mask[-1] = 0
    last = replace(wanted.positive.references[0], mask=mask)

    def with_last(strength: float) -> torch.Tensor:
        held = (replace(last, strength=strength),)
        return bench.latents(replace(wanted, positive=replace(wanted.positive, references=held)))

    free = bench.latents(replace(wanted, positive=replace(wanted.positive, references=())))
    made = {strength: with_last(strength) for strength in (1.0, 0.5)}
    assert all(bool(torch.isfinite(one).all()) for one in made.values())
    assert float((made[1.0] - free).abs().max()) > 1e-3
    assert float((made[1.0] - made[0.5]).abs().max()) > 1e-4


def test_a_first_frame_may_be_held_loosely(bench: Bench) -> None:
    wanted = from_picture(bench, noise_picture(3, (64, 96)))
    loose = replace(wanted.positive.references[0], strength=0.6)
    held = bench.latents(wanted)
    made = bench.latents(replace(wanted, positive=replace(wanted.positive, references=(loose,))))
    assert float((made - held).abs().max()) > 1e-4
