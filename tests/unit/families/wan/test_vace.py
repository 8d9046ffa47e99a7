"""Wan VACE against its pipeline: a video to go by, a mask, a reference picture, strengths."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import WanVACEPipeline
from diffusers.pipelines.wan import pipeline_wan_vace
from PIL import Image as PillowImage

from inline_core.errors import InvalidParam
from inline_core.loading.component import Role
from inline_core.media.values import Image, Mask
from inline_core.nodes.vace import vace
from inline_core.sampling.values import Latent
from tests import tiny
from tests.backends.conftest import Bench, BenchNodes, make_bench
from tests.pictures import noise_picture
from tests.reference import generator, last_latents
from tests.tiny_families import krea2, wan

FRAMES, SIDE = 9, 64


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("vace")
    wan.save_models(folder)
    wan.save_transformer(folder, "vace", wan.VACE)
    tiny.settle(folder)
    made = make_bench(folder)
    yield made
    assert made.close()


def pictures(count: int = FRAMES) -> list[Any]:
    return [noise_picture(seed, (SIDE, SIDE)) for seed in range(count)]


def hole() -> np.ndarray:
    mask = np.zeros((SIDE, SIDE), np.uint8)
    mask[16:48, 8:40] = 255
    return mask


def shown(bench: Bench, job: Any, **more: Any) -> Any:
    """A job whose prompts carry what VACE is shown, and the node's number of frames to trim."""
    context: Any = BenchNodes(bench)
    strength = more.pop("strength", 1.0)
    vae = bench.catalog.companion(Role.VAE, job.model)
    positive, negative, latent, trim = vace(
        context, job.positive, job.negative, vae, job.latent, more.get("video"), more.get("mask"),
        more.get("image"), strength=strength,
    )  # fmt: skip
    return replace(job, positive=positive, negative=negative, latent=latent), trim


def job_of(bench: Bench, **changes: Any) -> Any:
    latent = Latent(SIDE, SIDE, frames=FRAMES, fps=16.0)
    return bench.job("a red circle", family="wan", model="vace.safetensors", latent=latent,
                     cfg=5.0, negative="blurry", **changes)  # fmt: skip


def reference(**changes: Any) -> torch.Tensor:
    pipe = WanVACEPipeline(
        tokenizer=tiny.tokenizer(),
        text_encoder=wan.text_encoder(),
        vae=krea2.vae(),
        scheduler=wan.EvenSteps(shift=3.0),
        transformer=wan.transformer(wan.VACE),
    )
    # Not installed here; it only mends broken characters.
    pipeline_wan_vace.ftfy = SimpleNamespace(fix_text=str)
    return last_latents(
        pipe, prompt="a red circle", negative_prompt="blurry", width=SIDE, height=SIDE,
        num_frames=FRAMES, num_inference_steps=4, guidance_scale=5.0, generator=generator(),
        **changes,
    )  # fmt: skip


CASES: dict[str, dict[str, Any]] = {
    "a video": {"video": True},
    "a part of a video": {"video": True, "mask": True},
    "a picture": {"image": True},
    "all": {"video": True, "mask": True, "image": True, "strength": 0.6},
}


@pytest.mark.parametrize("case", list(CASES))
def test_the_latents_are_those_of_the_pipeline(bench: Bench, case: str) -> None:
    wanted = CASES[case]
    frames, subject = pictures(), noise_picture(40, (SIDE, SIDE))
    ours: dict[str, Any] = {"strength": wanted.get("strength", 1.0)}
    theirs: dict[str, Any] = {"conditioning_scale": wanted.get("strength", 1.0)}
    if "video" in wanted:
        ours["video"] = [Image(np.asarray(one)) for one in frames]
        theirs["video"] = frames
    if "mask" in wanted:
        ours["mask"] = Mask(hole())
        theirs["mask"] = [PillowImage.fromarray(hole())] * FRAMES
    if "image" in wanted:
        ours["image"] = Image(np.asarray(subject))
        theirs["reference_images"] = [subject]
    job, trim = shown(bench, job_of(bench), **ours)
    made = bench.sampler.submit(job).result(60).latent
    assert trim == ("image" in wanted)
    assert made.frames == FRAMES + 4 * trim
    found = reference(**theirs)
    assert made.samples.shape == found.shape
    assert float((made.samples - found).abs().max()) <= 1e-4


def test_what_it_is_shown_counts_and_strengths_share_passes(bench: Bench) -> None:
    video = [Image(np.asarray(one)) for one in pictures()]
    jobs = [shown(bench, job_of(bench), video=video, strength=by)[0] for by in (1.0, 0.3)]
    alone = [bench.latents(job) for job in jobs]
    assert float((alone[0] - alone[1]).abs().max()) > 1e-3
    together = [future.result(60) for future in [bench.sampler.submit(job) for job in jobs]]
    for made, one in zip(together, alone, strict=True):
        assert float((made.latent.samples - one).abs().max()) <= 1e-4


def test_without_what_it_needs_it_is_refused(bench: Bench) -> None:
    with pytest.raises(InvalidParam, match="through VACE Conditioning"):
        bench.sampler.submit(job_of(bench)).result(60)
    job, _ = shown(bench, job_of(bench), image=Image(np.asarray(noise_picture(1, (SIDE, SIDE)))))
    with pytest.raises(InvalidParam, match="wire its latent"):
        short = replace(job, latent=Latent(SIDE, SIDE, frames=FRAMES, fps=16.0))
        bench.sampler.submit(short).result(60)


def test_a_short_video_goes_on_in_grey_and_a_long_one_is_cut(bench: Bench) -> None:
    context: Any = BenchNodes(bench)
    job = job_of(bench)
    vae = bench.catalog.companion(Role.VAE, job.model)
    video = [Image(np.asarray(one)) for one in pictures(12)]
    short = vace(context, job.positive, job.negative, vae, job.latent, video[:5])[0]
    assert short.references[0].samples.shape == (1, 96, 3, 8, 8)
    assert not context.warned
    vace(context, job.positive, job.negative, vae, job.latent, video)
    assert context.warned == ["Only the first 9 of 12 frames of the video are used."]
