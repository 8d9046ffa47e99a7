"""LTX-2.5 against diffusers' blocks: video and sound, from text and from frames."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers.models.autoencoders.ltx2_diffusion_decoder import _neighborhood_block_mask
from diffusers.modular_pipelines.ltx2 import before_denoise
from diffusers.pipelines.ltx2.pipeline_ltx2_condition import LTX2VideoCondition
from diffusers.pipelines.ltx2.utils import DISTILLED_SIGMA_VALUES

from inline_core.errors import InvalidParam, ModelFileMissing
from inline_core.families.ltx25.family import DISTILLED, FAMILIES, LTX_2_5, SPACE
from inline_core.families.ltx25.windows import windowed
from inline_core.loading.component import ComponentRef, Role
from inline_core.media.values import Image
from inline_core.nodes.frames import keyframes
from inline_core.nodes.generate_offer import node_of
from inline_core.sampling.noise import NoiseSource
from inline_core.sampling.values import Latent
from tests import tiny
from tests.backends.conftest import Bench, BenchNodes, make_bench
from tests.pictures import noise_picture
from tests.tiny_families import ltx2, ltx25

LATENT = Latent(64, 96, frames=17, fps=25.0)
PROMPT = "a red circle that hums"
STEPS = 3
SCALE = 3.0
PIPELINE = functools.cache(ltx25.pipeline)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ltx25")
    ltx25.save_models(folder)
    ltx25.transformer().save_pretrained(folder / "diffusion_models/folder")
    tiny.settle(folder)
    return folder


@pytest.fixture(scope="module")
def bench(models: Path) -> Iterator[Bench]:
    made = make_bench(models)
    yield made
    assert made.close()


def job(bench: Bench, **changes: Any) -> Any:
    values = {"model": "ltx25.safetensors", "latent": LATENT, "cfg": SCALE, "negative": "blurry"}
    return bench.job(PROMPT, family="ltx-2.5", **({"steps": STEPS} | values | changes))


def sampled(bench: Bench, wanted: Any) -> tuple[torch.Tensor, torch.Tensor]:
    rows = bench.sampler.submit(wanted).result(60).latent.samples
    return SPACE.split(rows, wanted.latent)


def as_spectrogram(packed: torch.Tensor) -> torch.Tensor:
    """(1, frames, channels * bins) -> (1, channels, frames, bins)."""
    return packed.reshape(*packed.shape[:2], -1, 16).transpose(1, 2)


def noise(shape: tuple[int, ...], **_: Any) -> torch.Tensor:
    """Our noise in every shape that the blocks draw theirs in."""
    rows = SPACE.shape(LATENT.width, LATENT.height, LATENT.frames, LATENT.fps)
    video, sound = SPACE.split(NoiseSource(7, 1, rows, "cpu").draw(), LATENT)
    packed = sound.transpose(1, 2)  # (1, frames, c)
    if len(shape) == 5:
        return video
    if len(shape) == 4:
        return as_spectrogram(packed)
    if shape == packed.shape:
        return packed
    # What stands for keyframes is given, so that its noise does not count.
    made = torch.zeros(shape)
    tokens = video.flatten(2).transpose(1, 2)
    made[:, : tokens.shape[1]] = tokens
    return made


def reference(
    monkeypatch: pytest.MonkeyPatch, scale: float = SCALE, **call: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """What the blocks make of the same noise: the latents of video and sound, not normalised."""
    monkeypatch.setattr(before_denoise, "randn_tensor", noise)
    values = {"num_inference_steps": STEPS, "negative_prompt": "blurry", **call}
    pipe = PIPELINE(scale, shifted="sigmas" not in call)
    state = pipe(
        prompt=PROMPT,
        width=LATENT.width,
        height=LATENT.height,
        num_frames=LATENT.frames,
        frame_rate=LATENT.fps,
        output_type="latent",
        **values,
    )
    return state.get("videos"), state.get("audio")


def raw(video: torch.Tensor) -> torch.Tensor:
    vae = ltx2.vae()
    shape = (1, -1, 1, 1, 1)
    found: torch.Tensor = video * vae.latents_std.view(shape) + vae.latents_mean.view(shape)
    return found


def raw_sound(sound: torch.Tensor) -> torch.Tensor:
    vae = ltx2.audio_vae()
    packed: torch.Tensor = sound.transpose(1, 2) * vae.latents_std + vae.latents_mean
    return as_spectrogram(packed)


def assert_same(
    found: tuple[torch.Tensor, torch.Tensor], wanted: tuple[torch.Tensor, torch.Tensor]
) -> None:
    assert (raw(found[0]) - wanted[0]).abs().max() <= 1e-4
    assert (raw_sound(found[1]) - wanted[1]).abs().max() <= 1e-4


def test_the_latents_are_those_of_the_blocks(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    found = sampled(bench, job(bench))
    assert found[0].shape == (1, 128, 3, 3, 2)
    assert min(float(part.std()) for part in found) > 0.3
    assert_same(found, reference(monkeypatch))


def test_the_distilled_schedule_is_that_of_the_blocks(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert list(DISTILLED[:-1]) == DISTILLED_SIGMA_VALUES
    wanted = job(bench, cfg=1.0, sigmas=DISTILLED, steps=len(DISTILLED) - 1)
    call = {"sigmas": list(DISTILLED[:-1]), "num_inference_steps": len(DISTILLED) - 1}
    assert_same(sampled(bench, wanted), reference(monkeypatch, 1.0, **call))


def held(bench: Bench, first: Any = None, last: Any = None, **changes: Any) -> Any:
    wanted = job(bench, **changes)
    vae = bench.catalog.companion(Role.VAE, wanted.model)
    context: Any = BenchNodes(bench)
    ends = [None if end is None else Image(np.asarray(end)) for end in (first, last)]
    positive = keyframes(context, wanted.positive, vae, LATENT, *ends)
    return replace(wanted, positive=positive, negative=replace(positive, prompt="blurry"))


def test_a_first_frame_is_kept(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    found = sampled(bench, held(bench, noise_picture(1, (64, 96))))
    assert_same(found, reference(monkeypatch, image=noise_picture(1, (64, 96)), image_crf=0))


@pytest.mark.parametrize("ends", [(1, 2), (None, 2)])
def test_a_last_frame_is_looked_at(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, ends: tuple[int | None, int]
) -> None:
    pictures = [None if seed is None else noise_picture(seed, (64, 96)) for seed in ends]
    found = sampled(bench, held(bench, *pictures))
    conditions = [
        LTX2VideoCondition(frames=shown, index=index, strength=1.0, crf=0)
        for index, shown in zip((0, -1), pictures, strict=True)
        if shown is not None
    ]
    assert_same(found, reference(monkeypatch, conditions=conditions))
    other = sampled(bench, held(bench, pictures[0], noise_picture(3, (64, 96))))
    assert (other[0] - found[0]).abs().max() > 1e-2


def test_both_layouts_are_one_model(bench: Bench) -> None:
    ours, other = (
        sampled(bench, job(bench, cfg=1.0, steps=1, **more)) for more in ({}, {"model": "folder"})
    )
    assert (ours[0] - other[0]).abs().max() <= 1e-5


def decoded(bench: Bench, vae: ComponentRef, video: torch.Tensor, **more: Any) -> Any:
    count = (video.shape[2] - 1) * 8 + 1
    size = [side * 32 for side in video.shape[3:]]
    latent = Latent(size[1], size[0], frames=count, samples=video, space="ltx-2.5")
    work = functools.partial(
        bench.modules.autoencoders.decode, vae, replace(latent, **more), video, lambda: None
    )
    return bench.device.call(functools.partial(work, tiled=False)).result(60)


def whole(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, window: tuple[int, int, int]
) -> torch.Tensor:
    """Attention with the whole mask that diffusers makes, whose own kernel takes seconds to start."""
    frames, height, width = query.shape[1:4]
    places = torch.arange(frames * height * width)
    rule = _neighborhood_block_mask(frames, height, width, window, torch.device("cpu")).mask_mod
    mask = rule(places[:0].sum(), places[:0].sum(), places[:, None], places[None])
    flat = [states.flatten(1, 3).transpose(1, 2) for states in (query, key, value)]
    found = torch.nn.functional.scaled_dot_product_attention(
        flat[0], flat[1], flat[2], attn_mask=mask, scale=1.0
    )
    return found.transpose(1, 2).reshape(query.shape)


class Whole:
    """The attention of the decoder with it."""

    def __call__(self, attn: Any, hidden_states: Any, block_mask: object = None) -> Any:
        assert block_mask is None
        states = attn.project_qkv(hidden_states)
        found = whole(states[0], states[1], states[2], attn.kernel_size)
        return attn.to_out[0](found.flatten(4))


def test_pixels_are_those_of_the_video_decoder(bench: Bench) -> None:
    video = torch.randn(1, 128, 2, 1, 2, generator=torch.Generator().manual_seed(3))
    vae = bench.catalog.companion(Role.VAE, job(bench).model)
    pixels, special = decoded(bench, vae, video)
    with torch.inference_mode():
        generator = torch.Generator().manual_seed(0)
        reference = ltx25.video_decoder()
        reference.set_attn_processor(Whole())
        made = reference.decode(raw(video), generator=generator).sample[0]
    wanted = ((made.permute(1, 2, 3, 0) * 0.5 + 0.5).clamp(0, 1) * 255).round().numpy()
    assert special == ()
    assert pixels.shape == (9, 32, 64, 3)
    assert pixels.std() > 20
    assert np.abs(pixels - wanted).max() <= 1


def test_latents_of_ltx_2_are_decoded_by_the_vae_itself(bench: Bench) -> None:
    video = torch.randn(1, 128, 2, 2, 2, generator=torch.Generator().manual_seed(3))
    vae = bench.catalog.companion(Role.VAE, job(bench).model)
    one, other = (decoded(bench, vae, video, space=name)[0] for name in ("ltx-2", "ltx-2.5"))
    assert one.shape == other.shape
    assert np.abs(one.astype(float) - other).mean() > 5


def test_what_cannot_be_decoded_is_refused(bench: Bench) -> None:
    vae = bench.catalog.companion(Role.VAE, job(bench).model)
    with pytest.raises(InvalidParam, match="needs 32x32 and 9 frames at least"):
        decoded(bench, vae, torch.zeros(1, 128, 1, 1, 1))
    alone = replace(vae, others=vae.others[:-1])
    with pytest.raises(ModelFileMissing, match=r"video decoder of LTX-2\.5 here: put it into"):
        decoded(bench, alone, torch.zeros(1, 128, 2, 1, 1))


@pytest.mark.parametrize("window", [(3, 7, 7), (5, 4, 64), (1, 1, 1)])
def test_windows_are_those_of_a_whole_mask(window: tuple[int, int, int]) -> None:
    draw = torch.Generator().manual_seed(1)
    query, key, value = (torch.randn(2, 6, 9, 21, 1, 4, generator=draw) for _ in range(3))
    found = windowed(query, key, value, window)
    assert (found - whole(query, key, value, window)).abs().max() <= 1e-5


def test_a_single_file_of_gemma_4_is_read_from_its_shapes(
    bench: Bench, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("single")
    ltx25.save_models(folder)
    shutil.rmtree(folder / "text_encoders/ltx25-gemma")
    state = {
        **{f"model.language_model.{k}": v for k, v in ltx25.text_encoder().state_dict().items()},
        "model.vision_embedder.weight": torch.zeros(2, 2),
    }
    tiny.save(state, folder / "text_encoders/gemma.safetensors")
    tiny.tokenizer().save_pretrained(folder / "text_encoders/gemma.tokenizer")
    tiny.settle(folder)
    other = make_bench(folder)
    values = {"cfg": 1.0, "steps": 1}
    found = sampled(other, job(other, **values))
    assert other.close()
    assert (found[0] - sampled(bench, job(bench, **values))[0]).abs().max() <= 1e-5


def test_lengths_are_rounded_up() -> None:
    assert [LTX_2_5.frames_above(wanted) for wanted in (1, 9, 10, 25, 48)] == [1, 9, 17, 25, 49]


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("enhance_prompt", True, "switch off 'enhance_prompt'"),
        ("upscaler", "x2.safetensors", "clear 'upscaler'"),
        ("reference", object(), "unwire 'reference'"),
    ],
)
def test_what_this_release_lacks_is_refused(key: str, value: object, words: str) -> None:
    offer = FAMILIES[0].offers[0]
    context: Any = None
    with pytest.raises(InvalidParam, match=words):
        node_of(FAMILIES[0], offer).run(context, {key: value}, {key: value})


def test_frames_that_it_cannot_have_are_refused(bench: Bench) -> None:
    with pytest.raises(InvalidParam, match=r"LTX-2\.5 needs one more than a multiple of 8"):
        bench.sampler.submit(job(bench, latent=replace(LATENT, frames=12))).result(60)
    wanted = held(bench, noise_picture(1, (64, 96)), noise_picture(2, (64, 96)))
    first, last = wanted.positive.references
    odd = replace(wanted.positive, references=(first, last, last))
    with pytest.raises(InvalidParam, match="LTX-2.5 at a last one too".replace(".", "[.]")):
        bench.sampler.submit(replace(wanted, positive=odd)).result(60)
