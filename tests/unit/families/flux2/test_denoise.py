from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from inline_core.errors import ModelFileInvalid, RunCancelled
from inline_core.families.adapted import AdaptedDenoiser, SharedDenoiser
from inline_core.families.encoded_prompt import EncodedPrompt
from inline_core.families.flux2.denoise import USUAL_GUIDANCE, Flux2Denoiser
from inline_core.families.flux2.text import LAYERS, encode_prompt
from inline_core.families.text_encoders.qwen3 import load_text_encoder, load_tokenizer
from inline_core.sampling.family import Row, StepMemory
from tests import tiny, tiny_flux2
from tests.plans import plan_of

SIGMAS = torch.tensor([0.9, 0.4])


def prompts(count: int = 2) -> list[EncodedPrompt]:
    generator = torch.Generator().manual_seed(0)
    shape = (64, 3 * tiny_flux2.HIDDEN)
    return [EncodedPrompt(torch.randn(shape, generator=generator)) for _ in range(count)]


def latents() -> torch.Tensor:
    return torch.randn((2, 128, 6, 4), generator=torch.Generator().manual_seed(1))


def nothing() -> None:
    pass


@torch.inference_mode()
def test_members_do_not_see_each_other() -> None:
    denoiser = Flux2Denoiser(tiny_flux2.transformer())
    x, texts = latents(), prompts()
    both = denoiser.predict(x, SIGMAS, texts)
    assert both.shape == x.shape
    for index in range(2):
        one = slice(index, index + 1)
        alone = denoiser.predict(x[one], SIGMAS[one], texts[one])
        assert torch.allclose(both[one], alone, atol=1e-5)


@torch.inference_mode()
def test_sigma_prompt_and_place_matter() -> None:
    denoiser = Flux2Denoiser(tiny_flux2.transformer())
    x, texts = latents()[:1], prompts()
    base = denoiser.predict(x, SIGMAS[:1], texts[:1])
    assert (denoiser.predict(x, SIGMAS[1:], texts[:1]) - base).abs().max() > 0.05
    assert (denoiser.predict(x, SIGMAS[:1], texts[1:]) - base).abs().max() > 0.05
    assert torch.equal(denoiser.predict(x, torch.zeros(1), texts[:1]), x)
    turned = denoiser.predict(x.transpose(2, 3), SIGMAS[:1], texts[:1]).transpose(2, 3)
    assert (turned - base).abs().max() > 0.01


@torch.inference_mode()
def test_guidance_is_an_input_where_the_model_has_one() -> None:
    with_input = Flux2Denoiser(tiny_flux2.transformer(guidance_embeds=True))
    x, texts = latents(), prompts()
    usual = with_input.predict(x, SIGMAS, texts)
    assert torch.equal(with_input.predict(x, SIGMAS, texts, [None, USUAL_GUIDANCE]), usual)
    mixed = with_input.predict(x, SIGMAS, texts, [None, 1.0])
    assert torch.allclose(mixed[0], usual[0], atol=1e-5)
    assert (mixed[1] - usual[1]).abs().max() > 1e-3
    without = Flux2Denoiser(tiny_flux2.transformer())
    base = without.predict(x, SIGMAS, texts)
    assert torch.equal(without.predict(x, SIGMAS, texts, [1.0, 9.0]), base)


@torch.inference_mode()
def test_rows_carry_their_guidance_and_control_their_blocks() -> None:
    model = tiny_flux2.transformer(guidance_embeds=True)
    denoiser = AdaptedDenoiser(SharedDenoiser.around(Flux2Denoiser(model)), ())
    x, texts = latents(), prompts()
    plain = denoiser.estimate(x, SIGMAS, [Row(text) for text in texts], nothing)
    guided = [Row(texts[0]), Row(texts[1], guidance=1.0)]
    found = denoiser.estimate(x, SIGMAS, guided, nothing)
    assert torch.allclose(found[0], plain[0], atol=1e-5)
    assert (found[1] - plain[1]).abs().max() > 1e-3
    skipping = [Row(texts[0]), Row(texts[1], skipped_layers=(1,))]
    found = denoiser.estimate(x, SIGMAS, skipping, nothing)
    assert torch.allclose(found[0], plain[0], atol=1e-5)
    assert (found[1] - plain[1]).abs().max() > 1e-3
    memory = StepMemory(1e9)
    cached = [Row(texts[0], memory=memory), Row(texts[1])]
    for reused in (0, 1):
        found = denoiser.estimate(x, SIGMAS, cached, nothing)
        assert memory.reused == reused
        assert torch.allclose(found, plain, atol=1e-5)


@torch.inference_mode()
def test_every_block_asks_whether_to_go_on() -> None:
    asked = 0

    def check() -> None:
        nonlocal asked
        asked += 1
        if asked == 3:
            raise RunCancelled

    denoiser = AdaptedDenoiser(SharedDenoiser.around(Flux2Denoiser(tiny_flux2.transformer())), ())
    with pytest.raises(RunCancelled):
        denoiser.estimate(latents(), SIGMAS, [Row(text) for text in prompts()], check)
    assert asked == 3  # one double block, then the second single one


def encoder_of(folder: Path) -> Any:
    path = tiny_flux2.save_text_encoder_folder(folder / "qwen")
    return load_text_encoder(plan_of(path), load_tokenizer(path, "qwen"))


@torch.inference_mode()
def test_prompts_are_padded_and_counted(tmp_path: Path) -> None:
    encoder = encoder_of(tmp_path)
    short, long = encode_prompt(encoder, "a red circle"), encode_prompt(encoder, "long " * 200)
    for found in (short, long):
        assert found.features.shape == (512, len(LAYERS) * tiny_flux2.HIDDEN)
        assert found.is_finite
    overhead = len(encoder.tokenizer("<|im_start|>user\n<|im_end|>\n").input_ids)
    assert short.cut_tokens == 0
    assert 1000 + overhead - 512 < long.cut_tokens < 1000 + overhead + 64 - 512


def test_a_shallow_encoder_is_refused(tmp_path: Path) -> None:
    path = tiny.save_text_encoder_folder(tmp_path / "qwen")
    encoder = load_text_encoder(plan_of(path), load_tokenizer(path, "qwen"))
    with pytest.raises(ModelFileInvalid, match=r"has 3 layers: FLUX\.2 reads layer 27"):
        encode_prompt(encoder, "a")
