"""HunyuanVideo 1.5 against its pipelines: text, quoted text, a first frame, several in one pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from inline_core.errors import InvalidParam, ModelFileMissing
from inline_core.families.hunyuan_video15.denoise import HunyuanVideo15Denoiser
from inline_core.families.hunyuan_video15.family import HUNYUAN_VIDEO_15, table
from inline_core.families.hunyuan_video15.network import HunyuanVideo15Network
from inline_core.families.hunyuan_video15.text import MAX_TOKENS, SYSTEM, HunyuanPrompt, quoted
from inline_core.loading.component import Role
from inline_core.media.values import Image
from inline_core.nodes.frames import frames
from inline_core.sampling.family import ScheduleFor
from inline_core.sampling.patches import SkipLayers, StepCache, with_patch
from inline_core.sampling.values import Conditioning, Latent
from tests import tiny
from tests.backends.conftest import Bench, BenchNodes, make_bench
from tests.pictures import noise_picture
from tests.reference import generator
from tests.tiny_families import hunyuan_video15 as hunyuan

FAMILY = hunyuan.NAME
FRAMES = 5
STEPS = 4
SIZE: dict[str, Any] = {"width": 64, "height": 64}
CALL: dict[str, Any] = {
    "prompt": "a red circle",
    "negative_prompt": "blurry",
    "num_frames": FRAMES,
    "num_inference_steps": STEPS,
}
DRAWN = 'a sign that says "hello" and “good bye”'


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hunyuan")
    hunyuan.save_models(folder)
    return folder


@pytest.fixture
def bench(models: Path) -> Iterator[Bench]:
    made = make_bench(models)
    yield made
    assert made.close()


def job(bench: Bench, prompt: str = "a red circle", **more: Any) -> Any:
    latent = Latent(**SIZE, frames=FRAMES, fps=24.0)
    values = {"latent": latent, "cfg": 6.0, "negative": "blurry", "steps": STEPS, **more}
    return bench.job(prompt, family=FAMILY, **values)


def shown(bench: Bench, made: Any, given: Any = None, **more: Any) -> Any:
    """The job with a first frame for both prompts."""
    vae = bench.catalog.companion(Role.VAE, made.model)
    context: Any = BenchNodes(bench)
    first = Image(np.asarray(given or noise_picture(1, (64, 64))))
    more = {"rest": "nothing", **more}
    positive: Conditioning = frames(context, made.positive, vae, made.latent, first, **more)
    return replace(made, positive=positive, negative=replace(positive, prompt="blurry"))


def samples(bench: Bench, made: Any) -> torch.Tensor:
    found: torch.Tensor = bench.sampler.submit(made).result(60).latent.samples
    return found


@pytest.mark.parametrize(("prompt", "negative"), [("a red circle", 'a "b"'), (DRAWN, "")])
def test_the_latents_are_those_of_the_pipeline(bench: Bench, prompt: str, negative: str) -> None:
    ours = samples(bench, job(bench, prompt, negative=negative))
    words = {"prompt": prompt, "negative_prompt": negative}
    wanted = hunyuan.pipeline_latents(
        hunyuan.pipeline(), **{**CALL, **SIZE, **words}, generator=generator()
    )
    assert wanted.shape == (1, 32, 2, 4, 4)
    assert wanted.std() > 0.3
    assert (ours - wanted).abs().max() <= 1e-4


def test_the_latents_with_a_first_frame_are_those_of_the_pipeline(bench: Bench) -> None:
    ours = samples(bench, shown(bench, job(bench, DRAWN)))
    wanted = hunyuan.pipeline_latents(
        hunyuan.pipeline("i2v"),
        **{**CALL, "prompt": DRAWN},
        image=noise_picture(1, (64, 64)),
        generator=generator(),
    )
    assert (ours - wanted).abs().max() <= 1e-4
    assert (ours - samples(bench, job(bench, DRAWN))).abs().max() > 0.01


def test_every_part_of_a_prompt_counts(bench: Bench) -> None:
    plain, drawn, bare = (
        samples(bench, job(bench, prompt, steps=1)) for prompt in ('a "b"', 'a "c"', 'a "b')
    )
    assert (plain - drawn).abs().max() > 1e-3
    assert (plain - bare).abs().max() > 1e-3


def test_jobs_of_all_kinds_in_one_pass_are_as_alone(models: Path) -> None:
    alone, together = make_bench(models, max_batch=1), make_bench(models)
    jobs = [job(alone), job(alone, DRAWN, cfg=1.0, seed=8), job(alone, "a " * 40, cfg=1.0)]
    jobs = [replace(one, steps=2) for one in jobs]
    jobs += [replace(shown(alone, one), cfg=1.0) for one in jobs[:2]]
    wanted = [samples(alone, one) for one in jobs]
    waiting = [together.sampler.submit(one) for one in jobs]
    for one, before in zip(waiting, wanted, strict=True):
        assert (one.result(60).latent.samples - before).abs().max() <= 1e-5
    assert alone.close()
    assert together.close()


def test_rows_with_and_without_a_picture_may_share_a_pass(bench: Bench) -> None:
    """What the batcher keeps apart today; the model's own forward function mixes it up."""

    def both() -> torch.Tensor:
        model = HunyuanVideo15Network(**hunyuan.TRANSFORMER)
        model.load_state_dict(hunyuan.transformer().state_dict())
        denoiser = HunyuanVideo15Denoiser(model.eval())
        draw = torch.Generator().manual_seed(1)
        words, seen = torch.randn((7, 32), generator=draw), torch.randn((4, 64), generator=draw)
        rows = [HunyuanPrompt(words[:4]), HunyuanPrompt(words, seen=seen)]
        latents = torch.randn((2, 32, 2, 4, 4), generator=draw)
        sigmas = torch.tensor([0.9, 0.5])
        made = denoiser.predict(latents, sigmas, rows)
        single = [denoiser.predict(latents[[i]], sigmas[[i]], [row]) for i, row in enumerate(rows)]
        return (made - torch.cat(single)).abs().max()

    assert bench.device.call(both).result(60) <= 1e-5


@pytest.mark.parametrize("patch", [SkipLayers((1,), 3.0), StepCache(0.9)])
def test_blocks_are_left_out_and_reused(bench: Bench, patch: Any) -> None:
    plain = job(bench, steps=4)
    patched = replace(plain, model=with_patch(plain.model, patch))
    assert (samples(bench, plain) - samples(bench, patched)).abs().max() > 1e-3


@pytest.mark.parametrize("tiled", [False, True])
def test_pixels_are_those_of_the_vae(bench: Bench, tiled: bool) -> None:
    made = job(bench, cfg=1.0, negative=None, steps=1)
    result = bench.sampler.submit(made).result(60).latent
    vae = bench.catalog.companion(Role.VAE, made.model)
    pixels, special = bench.device.call(
        lambda: bench.modules.autoencoders.decode(
            vae, result, result.samples, lambda: None, tiled=tiled
        )
    ).result(60)
    assert pixels.shape == (FRAMES, 64, 64, 3)
    assert special == (("tiled",) if tiled else ())
    reference = hunyuan.vae()
    with torch.inference_mode():
        raw = result.samples / reference.config.scaling_factor
        video = reference.decode(raw).sample[0]  # (3, frames, h, w)
    unit = (video.permute(1, 2, 3, 0).numpy() * 0.5 + 0.5).clip(0, 1)
    assert unit.std() > 0.02
    assert np.abs(pixels.astype(float) - (unit * 255).round()).max() <= 1


def test_the_frame_that_is_given_has_the_latents_of_the_vae(bench: Bench) -> None:
    made = shown(bench, job(bench))
    (given,) = made.positive.references
    reference = hunyuan.vae()
    pixels = (
        torch.from_numpy(np.array(noise_picture(1, (64, 64)))).permute(2, 0, 1)[None, :, None]
        / 127.5
        - 1
    )
    with torch.inference_mode():
        wanted = reference.encode(pixels).latent_dist.mode() * reference.config.scaling_factor
    assert given.samples.shape == (1, 32, 1, 4, 4)
    assert (given.samples - wanted).abs().max() <= 1e-4


def test_words_of_the_template_are_those_of_the_pipeline() -> None:
    from diffusers.pipelines.hunyuan_video1_5.pipeline_hunyuan_video1_5 import (
        extract_glyph_texts,
    )

    assert hunyuan.pipeline().system_message == SYSTEM
    for prompt in ("none", DRAWN, '"a" "a" “b”', 'an empty "" one', 'a "b', '"two\nlines"'):
        assert quoted(prompt) == (extract_glyph_texts(prompt) or "")


def test_long_prompts_are_cut_and_told(bench: Bench) -> None:
    made = replace(job(bench, "a" * 1100 + f'"{"b" * 300}"'), cfg=1.0, negative=None, steps=1)
    result = bench.sampler.submit(made).result(60)
    cut, drawn = sorted(result.warnings)
    assert cut.startswith("The prompt is too long")
    assert "bytes were cut" in drawn
    wanted = hunyuan.pipeline_latents(
        hunyuan.pipeline(guidance=1.0, most=MAX_TOKENS),
        **{**CALL, **SIZE, "prompt": made.positive.prompt, "num_inference_steps": 1},
        generator=generator(),
    )
    assert (result.latent.samples - wanted).abs().max() <= 1e-4


def test_without_byt5_and_without_a_tower(models: Path, tmp_path: Path) -> None:
    for name in ("diffusion_models", "vae"):
        (tmp_path / name).symlink_to(models / name)
    (tmp_path / "text_encoders").mkdir()
    (tmp_path / "text_encoders/qwen25vl").symlink_to(models / "text_encoders/qwen25vl")
    bench = make_bench(tmp_path)
    plain = bench.sampler.submit(job(bench)).result(60)
    assert plain.warnings == ()
    drawn = bench.sampler.submit(job(bench, DRAWN)).result(60)
    (warning,) = drawn.warnings
    assert "no ByT5 text encoder was found" in warning
    with pytest.raises(ModelFileMissing):
        samples(bench, shown(bench, job(bench)))
    assert bench.close()


def test_wrong_frames_are_refused(bench: Bench) -> None:
    made = job(bench)
    vae = bench.catalog.companion(Role.VAE, made.model)
    context: Any = BenchNodes(bench)
    last = Image(np.asarray(noise_picture(1, (64, 64))))
    both = frames(context, made.positive, vae, made.latent, last, last)
    with pytest.raises(InvalidParam, match="first frame of a video and at nothing else"):
        samples(bench, replace(made, positive=both))
    with pytest.raises(InvalidParam, match="behind the negative prompt too"):
        samples(bench, replace(shown(bench, made), negative=made.negative))
    with pytest.raises(InvalidParam, match="such as 9"):
        samples(bench, replace(made, latent=replace(made.latent, frames=8)))


def test_pictures_are_seen_as_they_were_cut(bench: Bench) -> None:
    made = shown(bench, job(bench), noise_picture(1, (128, 64)))
    (seen,) = made.positive.pictures
    assert (seen.width, seen.height) == (64, 64)


@pytest.mark.parametrize(
    ("variant", "size", "shift"),
    [
        ("", (848, 480), 5.0),
        ("", (1280, 720), 9.0),
        ("t2v", (480, 848), 5.0),
        ("i2v", (1280, 720), 7.0),
        ("i2v-480p", (1280, 720), 5.0),
        ("t2v-720p-distilled", (848, 480), 9.0),
    ],
)
def test_the_shift_is_that_of_the_variant(
    variant: str, size: tuple[int, int], shift: float
) -> None:
    found = table(ScheduleFor(variant=variant, width=size[0], height=size[1], frames=121))
    assert found.shift == shift


def test_every_variant_that_can_be_told_has_defaults() -> None:
    known = HUNYUAN_VIDEO_15.rules.defaults
    for offer in HUNYUAN_VIDEO_15.offers:
        for name in (offer.assumed, *(told.value for told in offer.told)):
            assert known[name]["frames"] == 121
            assert known[name]["guidance"] == (1.0 if "distilled" in name else 6.0)


def test_kin_that_other_steps_are_made_for_is_refused(models: Path, tmp_path: Path) -> None:
    for name in ("vae", "text_encoders"):
        (tmp_path / name).symlink_to(models / name)
    few = {"use_meanflow": True}
    keys = hunyuan.original_keys(hunyuan.transformer(**few).state_dict())
    tiny.save(keys, tmp_path / "diffusion_models/few.safetensors")
    keys = hunyuan.original_keys(hunyuan.transformer(in_channels=98).state_dict())
    tiny.save(keys, tmp_path / "diffusion_models/large.safetensors")
    bench = make_bench(tmp_path)
    for name, message in (("few", "distilled to few steps"), ("large", "for larger videos")):
        with pytest.raises(InvalidParam, match=message):
            samples(bench, job(bench, model=f"{name}.safetensors"))
    assert bench.close()
