"""LTX-2's latent upscaler against diffusers' pipeline, from files of both kinds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from diffusers.pipelines.ltx2 import LTX2LatentUpsamplePipeline
from diffusers.pipelines.ltx2.latent_upsampler import LTX2LatentUpsamplerModel

from inline_core.errors import InvalidParam, ModelFileInvalid, ModelFileMissing
from inline_core.families.ltx2.family import SPACE
from inline_core.loading.component import Role
from inline_core.sampling.values import Latent
from tests import tiny
from tests.backends.conftest import Bench, make_bench
from tests.tiny_families import ltx2

LATENT = Latent(96, 64, frames=9, fps=24.0, space=SPACE.name)


def upsampler(**changes: Any) -> LTX2LatentUpsamplerModel:
    torch.manual_seed(4)
    model = LTX2LatentUpsamplerModel(
        **{"in_channels": 128, "mid_channels": 32, "num_blocks_per_stage": 2, **changes}
    )
    tiny.randomise(model, 0.05)
    return model.eval()


KINDS: dict[str, dict[str, Any]] = {
    "rational": {},
    "one and a half": {"rational_spatial_scale": 1.5},
    "plain": {"use_rational_resampler": False},
    "flat": {"dims": 2},
}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("ltx2")
    ltx2.save_models(folder)
    for name, changes in KINDS.items():
        state = dict(upsampler(**changes).state_dict())
        tiny.save(state, folder / f"latent_upscale_models/{name}.safetensors")
    slow = upsampler(temporal_upsample=True, spatial_upsample=False)
    tiny.save(dict(slow.state_dict()), folder / "latent_upscale_models/time.safetensors")
    tiny.settle(folder)
    made = make_bench(folder)
    yield made
    assert made.close()


def upscale(bench: Bench, name: str, latent: Latent) -> Latent:
    model = bench.catalog.find(Role.DIFFUSION_MODEL, "", family="ltx-2")
    vae = bench.catalog.companion(Role.VAE, model)
    upscaler = bench.catalog.find(Role.LATENT_UPSCALER, f"{name}.safetensors")
    found: Latent = bench.device.call(
        lambda: bench.modules.latent_upscalers.upscale(upscaler, vae, latent, lambda: None)
    ).result(60)
    return found


def sampled() -> Latent:
    shape = (1, *SPACE.shape(LATENT.width, LATENT.height, LATENT.frames, LATENT.fps))
    rows = torch.randn(shape, generator=torch.Generator().manual_seed(6))  # (1, values)
    return replace(LATENT, samples=rows)


@pytest.mark.parametrize("name", list(KINDS))
def test_it_enlarges_as_the_pipeline_does(bench: Bench, name: str) -> None:
    latent = sampled()
    video, sound = SPACE.split(latent.samples, latent)
    pipe = LTX2LatentUpsamplePipeline(vae=ltx2.vae(), latent_upsampler=upsampler(**KINDS[name]))
    with torch.inference_mode():
        raw = pipe(
            latents=video,
            latents_normalized=True,
            height=64,
            width=96,
            num_frames=9,
            output_type="latent",
            return_dict=False,
        )[0]  # (1, 128, 2, H, W), as the VAE decodes it
    mean, deviation = (
        part.view(1, -1, 1, 1, 1) for part in (pipe.vae.latents_mean, pipe.vae.latents_std)
    )
    wanted = (raw - mean) / deviation
    made = upscale(bench, name, latent)
    # A latent is 32 pixels; one and a half times three of them are five.
    assert (made.width, made.height) == (wanted.shape[-1] * 32, wanted.shape[-2] * 32)
    assert (made.width, made.frames) == (160 if "half" in name else 192, 9)
    larger, kept = SPACE.split(made.samples, made)
    assert torch.equal(kept, sound)
    assert float((larger - wanted).abs().max()) <= 1e-4


def test_what_cannot_be_enlarged_is_refused(bench: Bench) -> None:
    with pytest.raises(InvalidParam, match="an empty latent cannot be enlarged"):
        upscale(bench, "plain", LATENT)
    with pytest.raises(ModelFileInvalid, match="makes more frames"):
        upscale(bench, "time", sampled())
    wrong = replace(sampled(), space="sdxl")
    with pytest.raises(ModelFileInvalid, match="sdxl"):
        upscale(bench, "plain", wrong)


def test_a_file_that_is_not_there_is_named(bench: Bench) -> None:
    with pytest.raises(ModelFileMissing, match=r"nothing\.safetensors"):
        bench.catalog.find(Role.LATENT_UPSCALER, "nothing.safetensors")
