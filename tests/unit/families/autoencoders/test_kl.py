from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from diffusers import AutoencoderKL
from diffusers.image_processor import VaeImageProcessor
from diffusers.loaders.single_file_utils import convert_ldm_vae_checkpoint

from inline_core.errors import ModelFileInvalid, NotFinite
from inline_core.families.autoencoders.kl import VaeRuntime, load_vae, vae_config
from inline_core.families.autoencoders.kl_keys import vae_sources
from inline_core.families.autoencoders.kl_spaces import FLUX as FLUX_SPACE
from tests import tiny
from tests.plans import plan_of, plan_of_shapes


def runtime() -> VaeRuntime:
    return VaeRuntime(tiny.vae(), FLUX_SPACE)


@torch.inference_mode()
def test_pixels_are_those_of_diffusers() -> None:
    latents = torch.randn((1, 16, 6, 4), generator=torch.Generator().manual_seed(0))
    model = tiny.vae()
    raw = model.decode(latents / 0.3611 + 0.1159, return_dict=False)[0]
    wanted = VaeImageProcessor(vae_scale_factor=16).postprocess(raw, output_type="pil")[0]
    pixels = runtime().decode(latents)
    assert pixels.shape == (48, 32, 3)
    assert np.array_equal(pixels, np.asarray(wanted))


@torch.inference_mode()
def test_encoding_takes_the_mode() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (32, 48, 3), dtype=np.uint8)
    model = tiny.vae()
    image = VaeImageProcessor(vae_scale_factor=16).preprocess(pixels[None] / np.float32(255))
    wanted = (model.encode(image).latent_dist.mode() - 0.1159) * 0.3611
    latents = runtime().encode(pixels)
    assert latents.shape == (1, 16, 4, 6)
    assert torch.allclose(latents, wanted, atol=1e-6)


@torch.inference_mode()
def test_nan_is_refused() -> None:
    with pytest.raises(NotFinite):
        runtime().decode(torch.full((1, 16, 2, 2), float("nan")))


def test_names_agree_with_the_converter_of_diffusers() -> None:
    model = tiny.vae()
    ldm = tiny.ldm_keys(model.state_dict())
    converted = convert_ldm_vae_checkpoint(dict(ldm), dict(model.config))
    assert converted.keys() == vae_sources(ldm, 4).keys()
    for name, source in vae_sources(ldm, 4).items():
        tensor = ldm[source.name]
        assert torch.equal(converted[name], tensor.flatten(1) if source.flatten else tensor)


def test_the_real_vae_comes_out_of_its_header() -> None:
    real_config = {
        "block_out_channels": (128, 256, 512, 512),
        "down_block_types": ("DownEncoderBlock2D",) * 4,
        "up_block_types": ("UpDecoderBlock2D",) * 4,
        "layers_per_block": 2,
        "latent_channels": 16,
        "norm_num_groups": 32,
        "use_quant_conv": False,
        "use_post_quant_conv": False,
        "mid_block_add_attention": True,
        "scaling_factor": 0.3611,
        "shift_factor": 0.1159,
    }
    with torch.device("meta"):
        state = AutoencoderKL(**real_config).state_dict()
        keys = tiny.ldm_keys(state)
    plan = plan_of_shapes({name: tuple(tensor.shape) for name, tensor in keys.items()})
    assert vae_config(plan, FLUX_SPACE) == real_config


@pytest.mark.parametrize("layout", ["ldm", "ldm-with-config", "folder"])
def test_every_vae_layout_gives_the_same_weights(tmp_path: Path, layout: str) -> None:
    model = tiny.vae()
    if layout == "folder":
        path = tiny.save_vae_folder(tmp_path / "vae", model)
    else:
        told = tiny.vae_metadata(scaling_factor=0.5) if layout == "ldm-with-config" else {}
        path = tiny.save(tiny.ldm_keys(model.state_dict()), tmp_path / "ae.safetensors", told)
    runtime = load_vae(plan_of(path), FLUX_SPACE)
    loaded = runtime._model.state_dict()
    assert all(torch.equal(loaded[name], t) for name, t in model.state_dict().items())
    assert runtime.scaling == (0.5 if layout == "ldm-with-config" else 0.3611)


def test_a_decoder_alone_is_refused(tmp_path: Path) -> None:
    keys = {
        name: tensor
        for name, tensor in tiny.vae().state_dict().items()
        if name.startswith("decoder.")
    }
    with pytest.raises(ModelFileInvalid, match="no encoder"):
        load_vae(plan_of(tiny.save(keys, tmp_path / "d.safetensors")), FLUX_SPACE)


@torch.inference_mode()
def test_tiles_give_the_same_picture_but_for_their_seams() -> None:
    latents = torch.randn((1, 16, 96, 80), generator=torch.Generator().manual_seed(0))
    whole = runtime().decode(latents)
    tiled = runtime().decode(latents, tiled=True)
    assert tiled.shape == whole.shape == (768, 640, 3)
    # Far from every seam a convolution sees the same neighbours; its norms see the tile only.
    difference = np.abs(whole.astype(int) - tiled)
    assert 0 < difference.mean() < 4
    small = latents[:, :, :8, :8]
    assert np.array_equal(runtime().decode(small), runtime().decode(small, tiled=True))


@torch.inference_mode()
def test_encoding_in_tiles_gives_nearly_the_same_latents() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (640, 768, 3), dtype=np.uint8)
    whole, tiled = runtime().encode(pixels), runtime().encode(pixels, tiled=True)
    assert tiled.shape == whole.shape == (1, 16, 80, 96)
    assert 0 < float((whole - tiled).abs().mean()) < 0.1 * float(whole.abs().mean())
