"""Stable Diffusion 3.5 against its pipeline: with and without T5, both layouts, skipped layers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from inline_core.errors import InvalidParam, ModelFileInvalid
from inline_core.loading.component import Role
from inline_core.sampling.job import SampleJob
from inline_core.sampling.patches import SkipLayers, with_patch
from inline_core.sampling.values import Latent
from tests import tiny, tiny_encoders
from tests.backends.conftest import Bench, make_bench
from tests.reference import generator, last_latents
from tests.tiny_families import sd3

CALL: dict[str, Any] = {
    "negative_prompt": "blurry",
    "width": 96,
    "height": 64,
    "num_inference_steps": 4,
    "guidance_scale": 4.5,
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sd3")
    sd3.save_models(folder)
    return folder


def job(bench: Bench, prompt: str = "a red circle", **changes: Any) -> SampleJob:
    values = {"latent": Latent(96, 64), "cfg": 4.5, "scheduler": "normal", "negative": "blurry"}
    return bench.job(prompt, family="sd3", **{**values, **changes})


@pytest.mark.parametrize("prompt", ["a red circle", "b " * 300])
def test_latents_and_pixels_are_those_of_the_pipeline(models: Path, prompt: str) -> None:
    bench = make_bench(models)
    ours = bench.sampler.submit(job(bench, prompt)).result(30)
    pipe = sd3.pipeline()
    wanted = last_latents(pipe, prompt=prompt, **CALL, generator=generator())
    assert wanted.std() > 0.3
    assert (ours.latent.samples - wanted).abs().max() <= 1e-4
    assert bool(ours.warnings) == (len(prompt) > 256)
    vae = bench.catalog.find(Role.VAE, "", family="sd3")
    pixels = bench.device.call(
        lambda: bench.modules.autoencoders.decode(
            vae, ours.latent, ours.latent.samples, lambda: None, tiled=False
        )
    ).result(30)[0]
    with torch.inference_mode():
        theirs = pipe.vae.decode(wanted / 1.5305 + 0.0609, return_dict=False)[0]
    shown = np.asarray(pipe.image_processor.postprocess(theirs)[0]).astype(int)
    assert shown.std() > 10
    assert np.abs(pixels.astype(int) - shown).max() <= 1
    assert bench.close()


def test_without_t5_both_clips_read_alone_and_say_so(tmp_path: Path) -> None:
    sd3.save_models(tmp_path, with_t5=False)
    bench = make_bench(tmp_path)
    ours = bench.sampler.submit(job(bench)).result(30)
    pipe = sd3.pipeline(text_encoder_3=None, tokenizer_3=None)
    wanted = last_latents(pipe, prompt="a red circle", **CALL, generator=generator())
    assert (ours.latent.samples - wanted).abs().max() <= 1e-4
    assert "No T5" in ours.warnings[0]
    assert bench.close()


def test_a_clip_without_projection_has_the_identity(models: Path, tmp_path: Path) -> None:
    for part in ("vae", "diffusion_models"):
        (tmp_path / part).symlink_to(models / part)
    plain = sd3.clip_l()
    keys = tiny_encoders.clip_keys(plain)
    keys.pop("text_projection.weight")
    encoders = tmp_path / "text_encoders"
    tiny.save(keys, encoders / "clip_l.safetensors")
    tiny_encoders.clip_tokenizer().save_pretrained(encoders / "clip_l.tokenizer")
    tiny_encoders.save_clip_file(encoders / "clip_g.safetensors", sd3.clip_g(), "!")
    torch.nn.init.eye_(plain.text_projection.weight)
    bench = make_bench(tmp_path)
    pipe = sd3.pipeline(text_encoder=plain, text_encoder_3=None, tokenizer_3=None)
    wanted = last_latents(pipe, prompt="a red circle", **CALL, generator=generator())
    assert (bench.latents(job(bench)) - wanted).abs().max() <= 1e-4
    assert bench.close()


def test_both_layouts_give_the_same_latents(models: Path, tmp_path: Path) -> None:
    sd3.transformer().save_pretrained(tmp_path / "diffusion_models/sd3")
    sd3.vae().save_pretrained(tmp_path / "vae/sd3")
    for name, model, words in (
        ("g", sd3.clip_g(), tiny_encoders.clip_tokenizer("!")),
        ("l", sd3.clip_l(), tiny_encoders.clip_tokenizer()),
        ("t5", sd3.t5(), tiny_encoders.t5_tokenizer()),
    ):
        tiny_encoders.save_folder(tmp_path / f"text_encoders/{name}", model, words)
    tiny.settle(tmp_path)
    found = []
    for folder in (models, tmp_path):
        bench = make_bench(folder)
        found.append(bench.latents(job(bench)))
        assert bench.close()
    assert (found[0] - found[1]).abs().max() <= 1e-5


def test_skipped_layers_are_those_of_the_pipeline(models: Path) -> None:
    bench = make_bench(models)
    made = job(bench)
    skip = SkipLayers(layers=(1,), scale=2.8, start_percent=0.0, end_percent=1.0)
    ours = bench.latents(replace(made, model=with_patch(made.model, skip)))
    wanted = last_latents(
        sd3.pipeline(),
        prompt="a red circle",
        **CALL,
        skip_guidance_layers=[1],
        skip_layer_guidance_scale=2.8,
        skip_layer_guidance_start=-1.0,
        skip_layer_guidance_stop=2.0,
        generator=generator(),
    )
    assert (ours - wanted).abs().max() <= 1e-4
    assert (ours - bench.latents(made)).abs().max() > 0.01
    assert bench.close()


def test_prompts_share_a_pass(models: Path) -> None:
    bench = make_bench(models)
    jobs = [job(bench, prompt) for prompt in ("a", "a red circle on a table")]
    alone = [bench.latents(one) for one in jobs]
    together = [bench.sampler.submit(one) for one in jobs]
    for future, wanted in zip(together, alone, strict=True):
        assert (future.result(30).latent.samples - wanted).abs().max() <= 1e-5
    assert bench.sampler.stats()["largestBatch"] == 2
    assert bench.close()


def test_what_does_not_go_together_is_refused(models: Path, tmp_path: Path) -> None:
    bench = make_bench(models)
    with pytest.raises(InvalidParam, match="positions for 192 pixels"):
        bench.latents(job(bench, latent=Latent(208, 64)))
    model = bench.catalog.find(Role.DIFFUSION_MODEL, "", family="sd3")
    encoders = bench.catalog.encoders_for(model)
    assert [item.name for item in encoders.all] == [
        "clip_l.safetensors",
        "clip_g.safetensors",
        "t5xxl.safetensors",
    ]
    assert bench.close()
    for part in ("vae", "diffusion_models"):
        (tmp_path / part).symlink_to(models / part)
    for name, width in (("a", 64), ("b", 64)):
        tiny_encoders.save_clip_file(
            tmp_path / f"text_encoders/{name}.safetensors",
            tiny_encoders.clip(width=width, projected=True),
        )
    bench = make_bench(tmp_path)
    with pytest.raises(ModelFileInvalid, match="do not go together"):
        bench.catalog.encoders_for(model)
    assert bench.close()
