from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import Flux2KleinPipeline

from inline_core.devices.placement import Placement
from inline_core.errors import ModelFileInvalid, RunCancelled
from inline_core.families.autoencoders.kl_flux2 import load_vae
from inline_core.families.flux2.family import FLUX_2_SPACE
from tests import tiny, tiny_flux2
from tests.plans import plan_of


def reference(latents: torch.Tensor) -> torch.Tensor:
    """What Flux2KleinPipeline does with the latents that it denoised."""
    model = tiny_flux2.vae()
    mean = model.bn.running_mean.view(1, -1, 1, 1)
    spread = torch.sqrt(model.bn.running_var.view(1, -1, 1, 1) + model.config.batch_norm_eps)
    raw = Flux2KleinPipeline._unpatchify_latents(latents * spread + mean)
    pixels: torch.Tensor = model.decode(raw, return_dict=False)[0]
    return pixels


def saved(folder: Path, layout: str) -> Path:
    model = tiny_flux2.vae()
    if layout == "diffusers":
        model.save_pretrained(folder / "vae")
        tiny.settle(folder)
        return folder / "vae"
    write = tiny_flux2.vae_keys if layout == "ldm" else tiny_flux2.released_vae_keys
    return tiny.save(write(model.state_dict()), folder / "v.safetensors")


@pytest.mark.parametrize("layout", ["ldm", "released", "diffusers"])
@torch.inference_mode()
def test_every_layout_decodes_and_encodes_as_the_pipeline(tmp_path: Path, layout: str) -> None:
    vae = load_vae(plan_of(saved(tmp_path, layout)), FLUX_2_SPACE)
    latents = torch.randn((2, 128, 4, 3), generator=torch.Generator().manual_seed(3))
    assert torch.allclose(vae.decode_raw(latents), reference(latents), atol=1e-5)
    assert vae.decode(latents[:1]).shape == (64, 48, 3)
    pixels = torch.rand((1, 3, 64, 48), generator=torch.Generator().manual_seed(4)) * 2 - 1
    pipe: Any = Flux2KleinPipeline.__new__(Flux2KleinPipeline)
    object.__setattr__(pipe, "vae", tiny_flux2.vae())
    theirs = Flux2KleinPipeline._encode_vae_image(pipe, pixels, None)
    ours = vae.encode_raw(pixels)
    assert ours.shape == (1, 128, 4, 3)
    assert torch.allclose(ours, theirs, atol=1e-5)


@torch.inference_mode()
def test_tiles_and_half_precision_are_close(tmp_path: Path) -> None:
    plan = plan_of(saved(tmp_path, "ldm"))
    vae = load_vae(plan, FLUX_2_SPACE)
    latents = torch.randn((1, 128, 40, 4), generator=torch.Generator().manual_seed(3)) * 0.3
    whole, tiled = vae.decode_raw(latents), vae.decode_raw(latents, tiled=True)
    assert tiled.shape == whole.shape == (1, 3, 640, 64)
    assert not torch.equal(whole, tiled)
    assert (whole - tiled).abs().mean() < 0.2 * whole.std()
    half = load_vae(plan_of(plan.files.path, Placement("cpu", "bfloat16")), FLUX_2_SPACE)
    small = latents[:, :, :4]
    assert (half.decode_raw(small) - vae.decode_raw(small)).abs().mean() < 0.1
    assert half.encode(np.zeros((32, 32, 3), np.uint8)).dtype == torch.float32


def test_a_decode_can_be_stopped(tmp_path: Path) -> None:
    vae = load_vae(plan_of(saved(tmp_path, "ldm")), FLUX_2_SPACE)

    def stop() -> None:
        raise RunCancelled

    with vae.interruption.asking(stop), pytest.raises(RunCancelled):
        vae.decode(torch.zeros((1, 128, 4, 4)))


def test_half_a_vae_is_refused(tmp_path: Path) -> None:
    keys = tiny_flux2.vae_keys(tiny_flux2.vae().state_dict())
    half = {name: tensor for name, tensor in keys.items() if not name.startswith("encoder.")}
    with pytest.raises(ModelFileInvalid, match="has no encoder"):
        load_vae(plan_of(tiny.save(half, tmp_path / "v.safetensors")), FLUX_2_SPACE)
    keys.pop("bn.running_var")
    with pytest.raises(ModelFileInvalid, match="running_var is missing"):
        load_vae(plan_of(tiny.save(keys, tmp_path / "w.safetensors")), FLUX_2_SPACE)
