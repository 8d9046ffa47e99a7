from __future__ import annotations

from pathlib import Path

import pytest
import torch

from inline_core.devices.placement import Placement
from inline_core.families.text_encoders.qwen3 import load_text_encoder, load_tokenizer
from inline_core.families.z_image.components import load_denoiser
from inline_core.families.z_image.denoise import ZImageDenoiser
from inline_core.families.z_image.text import EncodedPrompt, encode_prompt
from tests import tiny
from tests.plans import plan_of

SIGMAS = torch.tensor([0.9, 0.4])


def prompts(*lengths: int) -> list[EncodedPrompt]:
    generator = torch.Generator().manual_seed(0)
    return [
        EncodedPrompt(torch.randn((length, tiny.CAP_FEAT_DIM), generator=generator))
        for length in lengths
    ]


def latents() -> torch.Tensor:
    return torch.randn((2, 16, 8, 8), generator=torch.Generator().manual_seed(1))


@torch.inference_mode()
def test_members_do_not_see_each_other() -> None:
    denoiser = ZImageDenoiser(tiny.transformer())
    x, texts = latents(), prompts(5, 70)
    both = denoiser.predict(x, SIGMAS, texts)
    assert both.shape == x.shape
    for index in range(2):
        one = slice(index, index + 1)
        alone = denoiser.predict(x[one], SIGMAS[one], texts[one])
        assert torch.allclose(both[one], alone, atol=1e-5)


@torch.inference_mode()
def test_sigma_and_prompt_matter() -> None:
    denoiser = ZImageDenoiser(tiny.transformer())
    x, texts = latents()[:1], prompts(5, 5)
    base = denoiser.predict(x, SIGMAS[:1], texts[:1])
    assert (denoiser.predict(x, SIGMAS[1:], texts[:1]) - base).abs().max() > 0.05
    assert (denoiser.predict(x, SIGMAS[:1], texts[1:]) - base).abs().max() > 0.05
    assert torch.equal(denoiser.predict(x, torch.zeros(1), texts[:1]), x)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@torch.inference_mode()
def test_a_bf16_file_in_either_precision(tmp_path: Path, dtype: str) -> None:
    folder = tiny.save_models(tmp_path, dtype=torch.bfloat16)
    placement = Placement("cpu", "bfloat16" if dtype == "bfloat16" else "float32")
    denoiser = load_denoiser(plan_of(folder / "diffusion_models/z.safetensors", placement))
    assert denoiser._model.dtype == getattr(torch, dtype)
    words = load_tokenizer(folder / "text_encoders/qwen", "qwen")
    encoder = load_text_encoder(plan_of(folder / "text_encoders/qwen", placement), words)
    prompt = encode_prompt(encoder, "a red circle")
    result = denoiser.predict(latents(), SIGMAS, [prompt, prompt])
    assert result.dtype == torch.float32
    assert result.isfinite().all()
    wanted = ZImageDenoiser(tiny.transformer()).predict(latents(), SIGMAS, [prompt, prompt])
    assert (result - wanted).norm() / wanted.norm() < 0.05
