from __future__ import annotations

import numpy as np
import pytest
import torch
from diffusers.image_processor import VaeImageProcessor

from inline_core.errors import NotFinite
from inline_core.families.z_image.decode import VaeRuntime
from inline_core.families.z_image.family import FLUX_SPACE
from tests import tiny


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
