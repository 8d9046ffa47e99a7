"""Stable Diffusion against diffusers' pipelines, from all layouts; prompts of every kind."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import StableDiffusionInpaintPipeline

from inline_core.errors import InlineError, InvalidParam, ModelFileInvalid, ModelFileMissing
from inline_core.loading.component import ComponentRef, Role
from inline_core.sampling.values import Conditioning, Latent
from tests import tiny, tiny_encoders
from tests.backends.conftest import make_bench
from tests.tiny_families import sd15, sdxl
from tests.unit.families.sd.conftest import Benches, job, reference

BOTH = pytest.mark.parametrize("module", [sd15, sdxl], ids=["sd15", "sdxl"])


def error_of(made: Any) -> InlineError:
    error = made.exception(30)
    assert isinstance(error, InlineError)
    return error


def with_options(found: Any, **options: Any) -> Any:
    """A job whose prompts have other options."""
    positive, negative = (
        replace(item, options=tuple(sorted((dict(item.options) | options).items())))
        for item in (found.positive, found.negative)
    )
    return replace(found, positive=positive, negative=negative)


@BOTH
def test_the_latents_are_those_of_the_pipeline(module: ModuleType, benches: Benches) -> None:
    bench = benches(module)
    ours = bench.sampler.submit(job(bench, module)).result(30)
    wanted = reference(module.pipeline())
    assert ours.warnings == ()
    assert (ours.latent.samples - wanted).abs().max() <= 1e-4
    other = bench.latents(job(bench, module, "a blue square"))
    assert (other - wanted).abs().max() > 0.05


@BOTH
def test_the_pixels_are_those_of_the_pipeline(module: ModuleType, benches: Benches) -> None:
    bench = benches(module)
    samples = torch.randn((1, 4, 8, 12), generator=torch.Generator().manual_seed(1))
    model = bench.catalog.find(Role.DIFFUSION_MODEL, "", family=module.NAME)
    vae = bench.catalog.companion(Role.VAE, model)
    assert (vae.path, vae.part) == (model.path, "first_stage_model.")
    space = {"sd15": 0.18215, "sdxl": 0.13025}[module.NAME]
    latent = Latent(96, 64, samples=samples, space=module.NAME)
    pixels, _ = bench.device.call(
        lambda: bench.modules.autoencoders.decode(vae, latent, samples, lambda: None, tiled=False)
    ).result(30)
    with torch.inference_mode():
        decoded = module.vae().decode(samples / space).sample  # (1, 3, 64, 96)
    wanted = ((decoded / 2 + 0.5).clamp(0, 1)[0].permute(1, 2, 0) * 255).round().numpy()
    assert np.abs(pixels.astype(np.float32) - wanted).max() <= 1


@BOTH
def test_all_layouts_give_the_same_latents(
    module: ModuleType, benches: Benches, tmp_path: Path
) -> None:
    wanted = benches(module).latents(job(benches(module), module))
    pipe = module.pipeline()
    pipe.save_pretrained(tmp_path / "folder/diffusion_models/whole")
    split = tmp_path / "split"
    tiny.save(sd15.unet_keys(module.unet()), split / "diffusion_models/unet.safetensors")
    tiny.save(tiny.ldm_keys(module.vae().state_dict()), split / "vae/vae.safetensors")
    encoders = {"clip_l": pipe.text_encoder, "clip_z": getattr(pipe, "text_encoder_2", None)}
    for name, model in encoders.items():
        if model is not None:
            tiny_encoders.save_clip_file(split / f"text_encoders/{name}.safetensors", model)
    for folder in (tmp_path / "folder", split):
        tiny.settle(folder)
        bench = make_bench(folder)
        # Weights lie elsewhere in the files, and products are rounded by where they lie.
        assert (bench.latents(job(bench, module)) - wanted).abs().max() <= 1e-4
        assert bench.close()


@BOTH
def test_clip_skip_takes_an_earlier_layer(module: ModuleType, benches: Benches) -> None:
    bench = benches(module)
    # Diffusers counts from the usual layer: the last of SD1.5, the last but one of SDXL.
    ours, theirs = (2, 1) if module is sd15 else (3, 1)
    plain = job(bench, module)
    # It does not for the negative prompt.
    found = bench.latents(replace(with_options(plain, clip_skip=ours), negative=plain.negative))
    pipe = module.pipeline()
    if module is sd15:  # it looks for a name of transformers 4
        object.__setattr__(pipe.text_encoder, "text_model", pipe.text_encoder)
    wanted = reference(pipe, clip_skip=theirs)
    assert (found - bench.latents(plain)).abs().max() > 1e-3
    assert (found - wanted).abs().max() <= 1e-4
    error = error_of(bench.sampler.submit(with_options(job(bench, module), clip_skip=12)))
    assert isinstance(error, InvalidParam)
    assert "3 layers" in error.message


def test_sdxl_is_told_the_sizes_of_the_picture(benches: Benches) -> None:
    bench = benches(sdxl)
    options = {"original_width": 512, "original_height": 256, "crop_x": 3, "crop_y": 5}
    found = bench.latents(with_options(job(bench, sdxl), **options))
    told: dict[str, Any] = {"original_size": (256, 512), "crops_coords_top_left": (5, 3)}
    wanted = reference(sdxl.pipeline(), **told)
    assert (found - wanted).abs().max() <= 1e-4
    assert (found - bench.latents(job(bench, sdxl))).abs().max() > 1e-3


@pytest.mark.parametrize("zero", [False, True])
def test_models_that_predict_v(benches: Benches, zero: bool) -> None:
    bench = benches(sd15)
    plain = job(bench, sd15)
    model = replace(plain.model, variant="v-zsnr" if zero else "v")
    found = bench.latents(replace(plain, model=model))
    pipe = sd15.pipeline()
    pipe.scheduler = sd15.scheduler(prediction_type="v_prediction", rescale_betas_zero_snr=zero)
    wanted = reference(pipe)
    scale = wanted.abs().max() if zero else 1.0  # it starts from noise 4096 times as large
    assert (found - wanted).abs().max() <= 1e-4 * scale
    assert (found - bench.latents(plain)).abs().max() > 0.1


def test_a_file_tells_that_its_model_predicts_v(tmp_path: Path) -> None:
    keys = sd15.checkpoint_keys() | {"v_pred": torch.zeros(0), "ztsnr": torch.zeros(0)}
    tiny.save(keys, tmp_path / "checkpoints/v.safetensors")
    bench = make_bench(tmp_path)
    model = bench.catalog.find(Role.DIFFUSION_MODEL, "v.safetensors")
    assert (model.variant, model.part) == ("v-zsnr", "model.diffusion_model.")
    assert bench.close()


def encoded(bench: Any, prompt: str, **options: Any) -> Any:
    """What a prompt is read as, through the job's own way."""
    made = job(bench, sd15, prompt, steps=1, cfg=1.0)
    prepared = bench.device.call(
        lambda: bench.modules.prepare(with_options(made, **options) if options else made)
    ).result(30)
    prepared.release()
    return prepared


def test_weights_move_tokens_away_from_an_empty_prompt(benches: Benches) -> None:
    bench = benches(sd15)
    plain, empty = (encoded(bench, text).positive.features for text in ("a b", ""))
    double = encoded(bench, "(a b:2)").positive.features
    assert (double[1:3] - (2 * plain - empty)[1:3]).abs().max() <= 1e-5
    assert torch.allclose(double[0], plain[0], atol=1e-6)
    assert torch.allclose(encoded(bench, "(a b:1)").positive.features, plain)
    assert torch.allclose(
        encoded(bench, r"\(a\)").positive.features,
        encoded(bench, "(a) ".replace("(a)", r"\(a\)")).positive.features,
    )
    assert (encoded(bench, "[a] b").positive.features - plain).abs().max() > 1e-3


def test_long_prompts_are_read_in_chunks(benches: Benches) -> None:
    bench = benches(sd15)
    first, second = "a " * 75, "b " * 3
    long = encoded(bench, first + second)
    assert long.positive.features.shape[0] == 2 * 77
    parts = [encoded(bench, text).positive.features for text in (first, second)]
    assert torch.allclose(long.positive.features, torch.cat(parts), atol=1e-6)
    assert long.warnings() == ("The prompt is long: it was read in 2 chunks",)


@BOTH
def test_prompts_of_different_lengths_share_a_pass(module: ModuleType, benches: Benches) -> None:
    bench = benches(module)
    jobs = [job(bench, module, prompt, negative=None) for prompt in ("a", "a red circle " * 12)]
    alone = [bench.latents(made) for made in jobs]
    together = [bench.sampler.submit(made) for made in jobs]
    for future, wanted in zip(together, alone, strict=True):
        assert (future.result(30).latent.samples - wanted).abs().max() <= 1e-4


def test_embeddings_stand_in_for_words(folders: dict[str, Path], tmp_path: Path) -> None:
    for part in ("checkpoints", "text_encoders"):
        (tmp_path / part).symlink_to(folders["sd15"] / part)
    table = sd15.clip().state_dict()["embeddings.token_embedding.weight"]
    ids = sd15.parts()["tokenizer"]("xy", add_special_tokens=False).input_ids
    tiny.save({"emb_params": table[ids]}, tmp_path / "embeddings/style.safetensors")
    tiny.save({"emb_params": torch.ones(1, 7)}, tmp_path / "embeddings/other.safetensors")
    (tmp_path / "embeddings/old.pt").write_bytes(b"PK\x03\x04" + bytes(60))
    tiny.settle(tmp_path)
    bench = make_bench(tmp_path)
    found = encoded(bench, "a embedding:style b").positive.features
    wanted = encoded(bench, "a xy b").positive.features
    assert (found - wanted).abs().max() <= 1e-6
    for name, kind, word in (
        ("missing", ModelFileMissing, "models/embeddings"),
        ("other", ModelFileInvalid, "another model"),
        ("old", ModelFileInvalid, "convert to safetensors"),
    ):
        error = error_of(bench.sampler.submit(job(bench, sd15, f"embedding:{name}")))
        assert isinstance(error, kind)
        assert name in error.message
        assert word in error.message
    assert bench.close()


@pytest.fixture(scope="module")
def fills(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fills")
    keys = sd15.checkpoint_keys(sd15.unet(in_channels=9))
    tiny.save(keys, folder / "checkpoints/inpaint.safetensors")
    tiny_encoders.clip_tokenizer().save_pretrained(folder / "text_encoders/clip_l.tokenizer")
    tiny.settle(folder)
    return folder


def test_inpaint_models_fill_the_masked_part(fills: Path) -> None:
    bench = make_bench(fills)
    model = bench.catalog.find(Role.DIFFUSION_MODEL, "", family="sd15")
    assert model.variant == "inpaint"
    pixels = np.random.default_rng(3).integers(0, 255, (64, 96, 3), dtype=np.uint8)
    mask = np.zeros((64, 96), np.uint8)
    mask[16:48, 32:64] = 255
    shown = pixels.astype(np.float32) / 255
    shown[mask > 0] = 0.5
    vae = bench.catalog.companion(Role.VAE, model)
    raw = bench.device.call(
        lambda: bench.modules.autoencoders.encode(vae, shown, lambda: None, tiled=False)
    ).result(30)
    picture = Latent(
        96, 64, samples=raw.samples, space=raw.space, normalised=raw.normalised, mask=mask
    )
    plain = job(bench, sd15)
    error = error_of(bench.sampler.submit(plain))
    assert "Fill Conditioning" in error.message
    found = bench.latents(replace(plain, positive=replace(plain.positive, references=(picture,))))
    pipe = StableDiffusionInpaintPipeline(**{**sd15.parts(), "unet": sd15.unet(in_channels=9)})
    # The pipeline draws from what the VAE encodes to; here it is taken as it is.
    pipe.vae.encode = _mode_of(pipe.vae.encode)
    image = torch.from_numpy(pixels).permute(2, 0, 1)[None] / 127.5 - 1
    wanted = reference(pipe, image=image, mask_image=torch.from_numpy(mask)[None, None] / 255.0)
    assert (found - wanted).abs().max() <= 1e-4
    assert bench.close()


def _mode_of(encode: Any) -> Any:
    def mode(*args: Any, **kwargs: Any) -> Any:
        output = encode(*args, **kwargs)
        output.latent_dist.std = torch.zeros_like(output.latent_dist.std)
        return output

    return mode


def test_plain_models_refuse_what_is_for_inpaint_models(benches: Benches) -> None:
    bench = benches(sd15)
    plain = job(bench, sd15)
    picture = Latent(96, 64, samples=torch.zeros(1, 4, 8, 12), space="sd15")
    positive = replace(plain.positive, references=(picture,))
    assert (
        "no model for filling"
        in error_of(bench.sampler.submit(replace(plain, positive=positive))).message
    )


def test_without_a_negative_prompt_its_options_are_those_of_the_positive(
    benches: Benches,
) -> None:
    bench = benches(sd15)
    plain = job(bench, sd15, negative=None)
    positive: Conditioning = replace(plain.positive, options=(("clip_skip", 2),))
    model: ComponentRef = plain.model
    given = Conditioning("", positive.encoder, options=positive.options)
    found = [
        bench.latents(replace(plain, model=model, positive=positive, negative=negative))
        for negative in (None, given)
    ]
    assert torch.equal(found[0], found[1])
    assert math.isfinite(float(found[0].abs().max()))
