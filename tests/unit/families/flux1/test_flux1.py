"""FLUX.1 against its pipelines: every variant, both layouts, prompts, guidance."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import (
    FluxControlPipeline,
    FluxFillPipeline,
    FluxImg2ImgPipeline,
    FluxKontextPipeline,
    FluxPipeline,
)
from PIL import Image as PillowImage

from inline_core.errors import InvalidParam
from inline_core.loading.component import Role
from inline_core.sampling.job import SampleJob
from inline_core.sampling.patches import SkipLayers, StepCache, with_patch
from inline_core.sampling.values import Latent
from tests import tiny, tiny_encoders
from tests.backends.conftest import Bench, make_bench
from tests.reference import generator, last_latents
from tests.tiny_families import flux1

SIZE = (96, 64)
CALL: dict[str, Any] = {"width": 96, "height": 64, "num_inference_steps": 4}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("flux1")
    flux1.save_models(folder)
    return folder


def job(bench: Bench, file: str = "dev", prompt: str = "a red circle", **changes: Any) -> SampleJob:
    values = {"latent": Latent(*SIZE), **changes}
    guidance, references = values.pop("guidance", None), values.pop("references", ())
    made = bench.job(prompt, family="flux-1", model=f"{file}.safetensors", **values)
    positive = replace(made.positive, guidance=guidance, references=references)
    return replace(made, positive=positive)


def unpacked(latents: torch.Tensor) -> torch.Tensor:
    """What pipelines of FLUX.1 keep, as latents."""
    made: torch.Tensor = FluxPipeline._unpack_latents(latents, SIZE[1], SIZE[0], 8)
    return made


def packed(latents: torch.Tensor) -> torch.Tensor:
    rows, channels, height, width = latents.shape
    made: torch.Tensor = FluxPipeline._pack_latents(latents, rows, channels, height, width)
    return made


def noise() -> torch.Tensor:
    return torch.randn((1, 16, SIZE[1] // 8, SIZE[0] // 8), generator=generator())


def drawn(size: tuple[int, int] = SIZE) -> PillowImage.Image:
    colours = np.random.default_rng(2).integers(0, 255, (5, 5, 3), dtype=np.uint8)
    return PillowImage.fromarray(colours).resize(size)


def encoded(bench: Bench, picture: Any) -> Latent:
    """A picture's latents as the render service gives them."""
    vae = bench.catalog.find(Role.VAE, "", family="flux-1")
    pixels = np.asarray(picture)
    found = bench.device.call(
        lambda: bench.modules.autoencoders.encode(vae, pixels, lambda: None, tiled=False)
    ).result(30)
    height, width = pixels.shape[:2]
    return Latent(
        width, height, samples=found.samples, space=found.space, normalised=found.normalised
    )


def assert_same(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    assert theirs.std() > 0.3
    assert (ours - theirs).abs().max() <= 1e-4


@pytest.mark.parametrize(
    ("prompt", "cfg", "cut"), [("a red circle", 1.0, 0), ("b " * 600, 1.0, 1), ("a dog", 2.5, 0)]
)
def test_dev_is_as_its_pipeline(models: Path, prompt: str, cfg: float, cut: int) -> None:
    bench = make_bench(models)
    found = bench.sampler.submit(
        job(bench, prompt=prompt, cfg=cfg, negative="blurry", guidance=2.0)
    ).result(30)
    pipe = flux1.pipeline()
    call = {**CALL, "prompt": prompt, "guidance_scale": 2.0, "true_cfg_scale": cfg}
    wanted = last_latents(pipe, **call, negative_prompt="blurry", generator=generator())
    assert_same(found.latent.samples, unpacked(wanted))
    assert ("too long" in " ".join(found.warnings)) == bool(cut)
    vae = bench.catalog.find(Role.VAE, "", family="flux-1")
    pixels = bench.device.call(
        lambda: bench.modules.autoencoders.decode(
            vae, found.latent, found.latent.samples, lambda: None, tiled=False
        )
    ).result(30)[0]
    theirs = pipe.vae.decode(unpacked(wanted) / 0.3611 + 0.1159, return_dict=False)[0]
    shown = np.asarray(pipe.image_processor.postprocess(theirs.detach())[0]).astype(int)
    assert shown.std() > 10
    assert np.abs(pixels.astype(int) - shown).max() <= 1
    assert bench.close()


def test_schnell_is_as_its_pipeline(models: Path) -> None:
    bench = make_bench(models)
    pipe = flux1.pipeline(shifted=False, **flux1.VARIANTS["schnell"])
    wanted = last_latents(
        pipe, **CALL, prompt="a cat", max_sequence_length=256, generator=generator()
    )
    assert_same(bench.latents(job(bench, "schnell", "a cat")), unpacked(wanted))
    with pytest.raises(InvalidParam, match="does not take its guidance as an input"):
        bench.latents(job(bench, "schnell", guidance=3.5))
    assert bench.close()


def test_starting_from_a_picture_is_as_its_pipeline(models: Path) -> None:
    bench = make_bench(models)
    start = encoded(bench, drawn())
    ours = bench.latents(job(bench, latent=start, steps=2, denoise=0.5, guidance=3.5))
    pipe = flux1.pipeline(FluxImg2ImgPipeline)
    pipe.scheduler.set_timesteps(
        sigmas=np.linspace(1.0, 0.25, 4), mu=0.5 + (24 - 256) * 0.65 / 3840
    )
    sigma = pipe.scheduler.sigmas[2]
    clean = (start.samples - 0.1159) * 0.3611
    noisy = packed((1 - sigma) * clean + sigma * noise())
    wanted = last_latents(
        pipe,
        **CALL,
        prompt="a red circle",
        image=drawn(),
        strength=0.5,
        guidance_scale=3.5,
        latents=noisy,
    )
    assert_same(ours, unpacked(wanted))
    assert bench.close()


def test_kontext_is_as_its_pipeline(models: Path) -> None:
    bench = make_bench(models)
    shown = drawn((64, 80))
    made = job(bench, references=(encoded(bench, shown),), guidance=2.5, cfg=1.5, negative="dark")
    ours = bench.latents(replace(made, model=replace(made.model, variant="kontext")))
    pipe = flux1.pipeline(FluxKontextPipeline)
    wanted = last_latents(
        pipe,
        **CALL,
        prompt="a red circle",
        negative_prompt="dark",
        true_cfg_scale=1.5,
        image=shown,
        guidance_scale=2.5,
        max_area=SIZE[0] * SIZE[1],
        _auto_resize=False,
        generator=generator(),
    )
    assert_same(ours, unpacked(wanted))
    assert (ours - bench.latents(job(bench, guidance=2.5))).abs().max() > 0.1
    assert bench.close()


def test_fill_is_as_its_pipeline(models: Path) -> None:
    bench = make_bench(models)
    picture = drawn()
    mask = np.zeros((SIZE[1], SIZE[0]), np.uint8)
    mask[10:50, 20:61] = 255
    grey = np.asarray(picture).astype(np.float32) / 255
    grey[mask > 0] = 0.5
    shown = replace(encoded(bench, grey), mask=mask)
    ours = bench.latents(job(bench, "flux-fill", references=(shown,)))
    pipe = flux1.pipeline(FluxFillPipeline, **flux1.VARIANTS["flux-fill"])
    wanted = last_latents(
        pipe,
        **CALL,
        prompt="a red circle",
        image=picture,
        mask_image=PillowImage.fromarray(mask),
        guidance_scale=30.0,
        latents=packed(noise()),
        generator=generator(),
    )
    assert_same(ours, unpacked(wanted))
    assert bench.close()


def test_control_is_as_its_pipeline(models: Path) -> None:
    bench = make_bench(models)
    ours = bench.latents(job(bench, "flux-canny", references=(encoded(bench, drawn()),)))
    pipe = flux1.pipeline(FluxControlPipeline, **flux1.VARIANTS["flux-canny"])
    wanted = last_latents(
        pipe,
        **CALL,
        prompt="a red circle",
        control_image=drawn(),
        guidance_scale=10.0,
        latents=packed(noise()),
    )
    assert_same(ours, unpacked(wanted))
    assert bench.close()


def test_both_layouts_give_the_same_latents(models: Path, tmp_path: Path) -> None:
    for name in ("dev", "flux-fill"):
        folder = tmp_path / f"diffusion_models/{name}.safetensors"  # a folder, whatever its name
        flux1.transformer(**flux1.VARIANTS[name]).save_pretrained(folder)
    flux1.vae().save_pretrained(tmp_path / "vae/ae")
    for name, model, words in (
        ("clip", flux1.clip(), tiny_encoders.clip_tokenizer()),
        ("t5", flux1.t5(), tiny_encoders.t5_tokenizer()),
    ):
        tiny_encoders.save_folder(tmp_path / f"text_encoders/{name}", model, words)
    tiny.settle(tmp_path)
    found = []
    for folder in (models, tmp_path):
        bench = make_bench(folder)
        found.append(bench.latents(job(bench)))
        assert bench.close()
    assert (found[0] - found[1]).abs().max() <= 1e-5


def test_prompts_and_guidance_share_a_pass(models: Path) -> None:
    bench = make_bench(models)
    jobs = [
        job(bench, prompt=prompt, guidance=guidance)
        for prompt, guidance in (("a", None), ("a red circle on a table", 8.0))
    ]
    alone = [bench.latents(one) for one in jobs]
    together = [bench.sampler.submit(one) for one in jobs]
    for future, wanted in zip(together, alone, strict=True):
        assert (future.result(30).latent.samples - wanted).abs().max() <= 1e-5
    assert bench.sampler.stats()["largestBatch"] == 2
    assert bench.close()


def test_steps_and_layers_are_left_out_as_asked(models: Path) -> None:
    bench = make_bench(models)
    made = job(bench, steps=6)
    plain = bench.latents(made)
    for patch, changes in (
        (StepCache(0.0), False),
        (StepCache(0.9), True),
        (SkipLayers((3,), 2.0, 0.0, 1.0), True),
    ):
        found = bench.latents(replace(made, model=with_patch(made.model, patch)))
        assert torch.isfinite(found).all()
        assert ((found - plain).abs().max() > 1e-3) == changes
    with pytest.raises(InvalidParam, match="blocks 0 to 3"):
        bench.latents(replace(made, model=with_patch(made.model, SkipLayers((4,), 2.0, 0.0, 1.0))))
    assert bench.close()


def test_pictures_that_a_variant_cannot_take_are_refused(models: Path) -> None:
    bench = make_bench(models)
    plain = Latent(*SIZE, samples=torch.zeros(1, 16, 8, 12), space="flux")
    masked = replace(plain, mask=np.zeros((64, 96), np.uint8))
    other = replace(plain, height=32)
    for file, references, words in (
        ("flux-fill", (), "Fill Conditioning"),
        ("flux-fill", (plain,), "Fill Conditioning"),
        ("flux-fill", (replace(other, mask=masked.mask),), "96x32 and the latent 96x64"),
        ("flux-canny", (), "follows one picture"),
        ("flux-canny", (other,), "96x32 and the latent 96x64"),
        ("dev", (masked,), "does not fill pictures"),
        ("dev", (plain, plain), "looks at one"),
    ):
        with pytest.raises(InvalidParam, match=words):
            bench.latents(job(bench, file, references=references))
    assert bench.close()
