"""Kandinsky 5 against its pipeline, and the VAE of HunyuanVideo against its class."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers.models.transformers import transformer_kandinsky as theirs

from inline_core.errors import InvalidParam
from inline_core.loading.component import Role
from inline_core.sampling.values import Latent
from tests import tiny
from tests.backends.conftest import Bench, make_bench
from tests.reference import generator, last_latents
from tests.tiny_families import kandinsky5

_FAMILY = "kandinsky-5"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kandinsky5")
    kandinsky5.save_models(folder)
    return folder


class _Exact:
    """torch, but for bfloat16, which is float32."""

    bfloat16 = torch.float32

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


@pytest.fixture(autouse=True)
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the class keep turned queries and keys as they are.

    It rounds them to bfloat16 in any precision, which makes 2e-4 of differences of 1e-7.
    """
    monkeypatch.setattr(theirs, "torch", _Exact())


def compare(
    folder: Path, prompt: str, cfg: float, size: tuple[int, int] = (96, 64), **changes: bool
) -> None:
    pipe = kandinsky5.pipeline(**changes)
    pipe.scheduler.set_timesteps(3)
    sigmas = tuple(pipe.scheduler.sigmas.tolist())
    noise = torch.randn((1, 16, 2, size[1] // 8, size[0] // 8), generator=generator())
    bench = make_bench(folder)
    latent = Latent(*size, frames=5)
    job = bench.job(prompt, family=_FAMILY, latent=latent, cfg=cfg, negative="blurry")
    ours = bench.latents(replace(job, sigmas=sigmas))
    assert bench.close()
    video = noise.permute(0, 2, 3, 4, 1)
    if pipe.transformer.visual_cond:
        video = torch.cat([video, video.new_zeros((*video.shape[:-1], 17))], dim=-1)
    wanted = last_latents(
        pipe,
        prompt=prompt,
        negative_prompt="blurry",
        width=size[0],
        height=size[1],
        num_frames=5,
        num_inference_steps=3,
        guidance_scale=cfg,
        latents=video.contiguous(),
    )[..., :16].permute(0, 4, 1, 2, 3)
    assert wanted.std() > 0.3
    assert (ours - wanted).abs().max() <= 1e-4


@pytest.mark.parametrize(("prompt", "cfg"), [("a red circle", 1.0), ("  a   dog &amp; cat", 5.0)])
def test_the_latents_are_those_of_the_pipeline(models: Path, prompt: str, cfg: float) -> None:
    compare(models, prompt, cfg)


def test_a_trained_size_scales_positions_less(models: Path) -> None:
    compare(models, "a dog", 1.0, (480, 480))


def test_a_model_that_is_given_no_frame(tmp_path: Path) -> None:
    kandinsky5.save_models(tmp_path)
    state = dict(kandinsky5.transformer(visual_cond=False).state_dict())
    tiny.save(state, tmp_path / "diffusion_models/kandinsky.safetensors")
    tiny.settle(tmp_path)
    compare(tmp_path, "a dog", 2.0, visual_cond=False)


def test_videos_are_decoded_and_encoded_as_by_the_class(models: Path, tmp_path: Path) -> None:
    kandinsky5.save_models(tmp_path)
    tiny.save(dict(kandinsky5.vae().state_dict()), tmp_path / "vae/hunyuan_vae.safetensors")
    model = kandinsky5.vae()
    rng = np.random.default_rng(3)
    frames = rng.integers(0, 256, (5, 32, 48, 3), dtype=np.uint8)
    with torch.inference_mode():
        video = torch.from_numpy(frames).permute(3, 0, 1, 2)[None].float() / 127.5 - 1
        wanted = model.encode(video).latent_dist.mode() * model.config.scaling_factor
        back = model.decode(wanted / model.config.scaling_factor).sample[0]  # (3, 5, H, W)
    for folder in (models, tmp_path):
        bench = make_bench(folder)
        vae = bench.catalog.find(Role.VAE, "", family=_FAMILY)
        samples, pixels = _through(bench, vae, frames)
        assert bench.close()
        assert (samples - wanted).abs().max() <= 1e-4
        shown = ((back + 1) * 127.5).clamp(0, 255).permute(1, 2, 3, 0).numpy()
        assert np.abs(pixels - shown).max() <= 1.0


def _through(bench: Bench, vae: object, frames: np.ndarray) -> tuple[torch.Tensor, np.ndarray]:
    coders = bench.modules.autoencoders

    def work() -> tuple[torch.Tensor, np.ndarray]:
        found = coders.encode(vae, frames, lambda: None, tiled=False)  # type: ignore[arg-type]
        latent = Latent(
            48, 32, frames=5, samples=found.samples, space=found.space, normalised=found.normalised
        )
        pixels, _ = coders.decode(vae, latent, found.samples, lambda: None, tiled=False)  # type: ignore[arg-type]
        return found.samples, pixels

    result: tuple[torch.Tensor, np.ndarray] = bench.device.call(work).result(60)
    return result


def test_rows_of_other_lengths_share_a_pass(models: Path) -> None:
    bench = make_bench(models)
    latent = Latent(64, 64, frames=5)
    jobs = [bench.job(p, family=_FAMILY, latent=latent) for p in ("a dog", "some more cats")]
    alone = [bench.latents(job) for job in jobs]
    futures = [bench.sampler.submit(job) for job in jobs]
    together = [future.result(30).latent.samples for future in futures]
    assert bench.close()
    for one, other in zip(alone, together, strict=True):
        assert torch.allclose(one, other, atol=1e-4)


def test_a_video_beyond_its_positions_is_refused(models: Path) -> None:
    bench = make_bench(models)
    job = bench.job("a dog", family=_FAMILY, latent=Latent(64, 64, frames=513))
    with pytest.raises(InvalidParam, match="at most 509 frames"):
        bench.latents(job)
    assert bench.close()
