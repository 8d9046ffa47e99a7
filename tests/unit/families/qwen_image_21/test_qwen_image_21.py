"""Qwen-Image 2.1 against its pipeline, with and without pictures to look at."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from inline_core.errors import InvalidParam
from inline_core.families.qwen_image_21.keys import TABLE
from inline_core.families.qwen_image_21.pictures import as_reference
from inline_core.loading.architectures.lora import adapter_kind
from inline_core.loading.component import Role
from inline_core.loading.header import TensorInfo
from inline_core.media.values import Image
from inline_core.sampling.values import Latent
from tests.backends.conftest import Bench, make_bench
from tests.pictures import noise_picture
from tests.reference import generator, last_latents
from tests.tiny_families import qwen_image_21

_FAMILY = "qwen-image-2.1"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("qwen21")
    qwen_image_21.save_models(folder)
    return folder


def unpacked(pipe: Any, latents: Any, width: int, height: int) -> Any:
    return pipe._unpack_latents(latents, height, width, 16)[:, :, 0]


@pytest.mark.parametrize(("prompt", "cfg"), [("a red circle", 1.0), ("", 1.0), ("a dog", 4.0)])
def test_the_latents_are_those_of_the_pipeline(models: Path, prompt: str, cfg: float) -> None:
    bench = make_bench(models)
    job = bench.job(prompt, family=_FAMILY, latent=Latent(128, 96), cfg=cfg, negative="blurry")
    ours = bench.latents(job)
    assert bench.close()
    pipe = qwen_image_21.pipeline()
    wanted = last_latents(
        pipe,
        prompt=prompt,
        negative_prompt="blurry" if cfg > 1 else None,
        width=128,
        height=96,
        num_inference_steps=4,
        true_cfg_scale=cfg,
        generator=generator(),
    )
    wanted = unpacked(pipe, wanted, 128, 96)
    assert wanted.std() > 0.3
    assert (ours - wanted).abs().max() <= 1e-4


def encoded(bench: Bench, picture: Image) -> Latent:
    vae = bench.catalog.find(Role.VAE, "", family=_FAMILY)
    found = bench.device.call(
        lambda: bench.modules.autoencoders.encode(vae, picture.pixels, lambda: None, tiled=False)
    ).result(60)
    return Latent(
        picture.width,
        picture.height,
        samples=found.samples,
        space=found.space,
        normalised=found.normalised,
    )


@pytest.mark.parametrize(("count", "cfg"), [(1, 1.0), (2, 3.0)])
def test_pictures_are_looked_at_as_in_the_pipeline(
    models: Path, count: int, cfg: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    side = 128
    name = "inline_core.families.qwen_image_21.pictures.REFERENCE_PIXELS"
    monkeypatch.setattr(name, side * side)
    pictures = [noise_picture(index, (100 + 60 * index, 70)) for index in range(count)]
    shown = tuple(as_reference(Image(np.asarray(picture))) for picture in pictures)
    bench = make_bench(models)
    job = bench.job("make it red", family=_FAMILY, latent=Latent(96, 64), cfg=cfg, steps=2)
    references = tuple(encoded(bench, one) for one in shown)
    positive = replace(job.positive, references=references, pictures=shown)
    job = replace(job, positive=positive, negative=replace(positive, prompt="no"))
    ours = bench.latents(job)
    assert bench.close()
    pipe = qwen_image_21.pipeline()
    wanted = last_latents(
        pipe,
        image=pictures,
        prompt="make it red",
        negative_prompt="no" if cfg > 1 else None,
        width=96,
        height=64,
        num_inference_steps=2,
        true_cfg_scale=cfg,
        output_resolution=side,
        generator=generator(),
    )
    wanted = unpacked(pipe, wanted, 96, 64)
    assert wanted.std() > 0.3
    assert (ours - wanted).abs().max() <= 1e-4


def test_prompts_of_other_lengths_share_a_pass(models: Path) -> None:
    bench = make_bench(models)
    alone = [bench.latents(bench.job(prompt, family=_FAMILY)) for prompt in ("a dog", "some cats")]
    jobs = [bench.job(prompt, family=_FAMILY) for prompt in ("a dog", "some cats")]
    futures = [bench.sampler.submit(job) for job in jobs]
    together = [future.result(30).latent.samples for future in futures]
    assert bench.close()
    for one, other in zip(alone, together, strict=True):
        assert torch.allclose(one, other, atol=1e-5)


def test_pictures_have_alpha(models: Path) -> None:
    bench = make_bench(models)
    vae = bench.catalog.find(Role.VAE, "", family=_FAMILY)
    picture = Image(np.asarray(noise_picture(3, (64, 32))))
    latent = encoded(bench, picture)
    pixels, _ = bench.device.call(
        lambda: bench.modules.autoencoders.decode(
            vae, latent, latent.samples, lambda: None, tiled=False
        )
    ).result(60)
    assert bench.close()
    theirs = qwen_image_21.vae()
    values = torch.from_numpy(picture.pixels.copy()).permute(2, 0, 1).float() / 127.5 - 1
    opaque = torch.cat([values, torch.ones(1, 32, 64)])[None, :, None]  # (1, 4, 1, H, W)
    with torch.inference_mode():
        raw = theirs.encode(opaque).latent_dist.mode()  # (1, 64, 1, h, w)
        back = theirs.decode(raw).sample[0, :, 0]  # (4, H, W)
    wanted = ((back + 1) * 127.5).permute(1, 2, 0).numpy()
    assert pixels.shape == (32, 64, 4)
    assert np.abs(pixels - wanted).max() <= 1.0


def test_alpha_is_encoded_where_a_picture_has_it(models: Path) -> None:
    bench = make_bench(models)
    colours = np.asarray(noise_picture(3, (64, 32)))
    alpha = np.zeros((32, 64, 1), np.uint8)
    clear = Image(np.concatenate([colours, alpha], axis=-1))
    found, opaque = encoded(bench, clear), encoded(bench, Image(colours))
    assert bench.close()
    assert (found.samples - opaque.samples).abs().max() > 0.01
    values = torch.from_numpy(clear.pixels).permute(2, 0, 1).float() / 127.5 - 1
    theirs = qwen_image_21.vae()
    with torch.inference_mode():
        raw = theirs.encode(values[None, :, None]).latent_dist.mode()  # (1, 64, 1, h, w)
    mean = torch.tensor(theirs.config.latents_mean).view(1, -1, 1, 1)
    deviation = torch.tensor(theirs.config.latents_std).view(1, -1, 1, 1)
    assert torch.allclose(found.samples, (raw[:, :, 0] - mean) / deviation, atol=1e-4)


@pytest.mark.parametrize(
    ("size", "kept", "message"),
    [
        ((96, 64), 0, "as references too"),
        ((96, 64), 2, "the same pictures, in the same sizes"),
        ((80, 64), 1, "multiples of 32, not at 80 x 64"),
    ],
)
def test_pictures_that_do_not_go_with_references_are_refused(
    models: Path, size: tuple[int, int], kept: int, message: str
) -> None:
    bench = make_bench(models)
    picture = Image(np.asarray(noise_picture(5, size)))
    job = bench.job("red", family=_FAMILY, latent=Latent(64, 64))
    references = (encoded(bench, picture),) * kept
    positive = replace(job.positive, pictures=(picture,), references=references)
    with pytest.raises(InvalidParam, match=message):
        bench.latents(replace(job, positive=positive))
    assert bench.close()


def test_adapters_find_both_halves_of_the_fused_matrix() -> None:
    block = "transformer_blocks.0.img_mlp"
    halves = [f"{block}.gate_layer.weight", f"{block}.proj.weight"]
    targets = TABLE.adapter_targets(halves)
    assert [target.parameter for target in targets[f"{block}.gate_up"]] == halves
    assert [target.part for target in targets[f"{block}.gate_up"]] == [0, 1]
    state = {f"diffusion_model.{block}.gate_up.lora_A.weight": torch.zeros(2, 4)}
    tensors = {name: TensorInfo("F32", tuple(t.shape), 0, 32) for name, t in state.items()}
    kind = adapter_kind(tensors, {})
    assert kind is not None
    assert kind.family == _FAMILY
