from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from inline_core.errors import InvalidParam
from inline_core.loading.component import ComponentRef, Role
from inline_core.sampling.guidance import (
    Pass,
    classifier_free,
    guidance_of,
    most_rows,
    needs_negative,
    normalised,
    rescaled,
    score_rescaled,
    tone_mapped,
)
from inline_core.sampling.job import SampleJob
from inline_core.sampling.patches import (
    GuidanceInterval,
    NormaliseGuidance,
    RescaleGuidance,
    RescaleScore,
    SkipLayers,
    ToneMap,
    with_patch,
)
from inline_core.sampling.sigmas.tables import EpsTable, FlowTable
from inline_core.sampling.values import Conditioning, Latent

MODEL = ComponentRef(Role.DIFFUSION_MODEL, "z-image", "tiny", "m", Path("m"), "stamp")
PROMPT = Conditioning("p", MODEL)
ONE = torch.ones(1, 1, 1, 1)


def job(**changes: Any) -> SampleJob:
    values: dict[str, Any] = {"model": MODEL, "cfg": 3.0, "sampler": "euler", **changes}
    return SampleJob(
        positive=PROMPT,
        latent=Latent(64, 64),
        steps=4,
        scheduler="simple",
        seed=1,
        **values,
    )


def test_only_exactly_one_skips_the_negative() -> None:
    table = FlowTable()
    assert guidance_of(job(cfg=1.0), table).passes(0.5) == (Pass.POSITIVE,)
    for cfg in (0.0, 0.5, 1.001, 7.0):
        assert guidance_of(job(cfg=cfg), table).passes(0.5) == (Pass.POSITIVE, Pass.NEGATIVE)
        assert needs_negative(job(cfg=cfg))
    assert not needs_negative(job(cfg=1.0))
    plus = job(cfg=1.0, sampler="euler_cfg_pp")
    assert needs_negative(plus)
    assert guidance_of(plus, table).passes(0.5) == (Pass.POSITIVE, Pass.NEGATIVE)


def test_classifier_free() -> None:
    assert float(classifier_free(3 * ONE, ONE, 2.0)) == 5.0
    assert float(classifier_free(3 * ONE, ONE, 0.0)) == 1.0


def test_an_interval_has_a_scale_of_its_own() -> None:
    model = with_patch(MODEL, GuidanceInterval(1.0, 0.5, 1.0))
    guidance = guidance_of(job(model=model), FlowTable())
    assert guidance.passes(0.9) == (Pass.POSITIVE, Pass.NEGATIVE)
    assert guidance.passes(0.5) == guidance.passes(0.1) == (Pass.POSITIVE,)
    model = with_patch(model, GuidanceInterval(5.0, 0.8, 0.9))
    guidance = guidance_of(job(model=model, cfg=1.0), FlowTable())
    assert [guidance.scale_at(sigma) for sigma in (0.9, 0.21, 0.19, 0.15, 0.09)] == [1, 1, 5, 5, 1]
    assert needs_negative(job(model=model, cfg=1.0))
    assert most_rows(job(model=model, cfg=1.0)) == 2


def test_an_interval_of_a_noise_scaled_model_is_in_its_sigmas() -> None:
    table = EpsTable()
    model = with_patch(MODEL, GuidanceInterval(1.0, 0.0, 0.25))
    guidance = guidance_of(job(model=model), table)
    assert guidance.scale_at(table.largest) == 1.0
    assert guidance.scale_at(table.sigma_at(0.24)) == 1.0
    assert guidance.scale_at(table.sigma_at(0.26)) == 3.0


def test_two_conditionings() -> None:
    parts = {Pass.POSITIVE: 5 * ONE, Pass.SECOND: 2 * ONE, Pass.NEGATIVE: ONE}
    asked = job(second=PROMPT, second_cfg=4.0)
    regular = guidance_of(asked, FlowTable())
    assert most_rows(asked) == 3
    assert regular.passes(0.5) == (Pass.POSITIVE, Pass.SECOND, Pass.NEGATIVE)
    assert float(regular.combine(parts, ONE, 0.5)) == 1 + 4 * (2 - 1) + 3 * (5 - 2)
    nested = guidance_of(replace(asked, dual_style="nested"), FlowTable())
    assert float(nested.combine(parts, ONE, 0.5)) == 1 + 4 * (2 + 3 * (5 - 2) - 1)
    with pytest.raises(InvalidParam, match="use one of regular, nested"):
        guidance_of(replace(asked, dual_style="odd"), FlowTable())


def test_skipped_layers_push_away_from_the_weaker_model() -> None:
    model = with_patch(MODEL, SkipLayers((1, 2), 2.0, 0.0, 0.5))
    guidance = guidance_of(job(model=model, cfg=1.0), FlowTable())
    assert guidance.passes(0.6) == (Pass.POSITIVE, Pass.SKIPPED)
    assert guidance.passes(0.4) == (Pass.POSITIVE,)
    parts = {Pass.POSITIVE: 5 * ONE, Pass.SKIPPED: 4 * ONE}
    assert float(guidance.combine(parts, ONE, 0.6)) == 7.0


@pytest.mark.parametrize("flow", [True, False])
def test_rescaled_velocity_has_the_spread_of_the_positive_one(flow: bool) -> None:
    x, positive, negative = torch.randn(3, 2, 4, 8, 8, generator=torch.Generator().manual_seed(0))
    guided = classifier_free(positive, negative, 7.0)
    sigma = 0.7 if flow else 5.0
    centre = x if flow else x / (sigma**2 + 1)
    full = rescaled(guided, positive, x, sigma, 1.0, flow=flow)
    axes = (1, 2, 3)
    assert torch.allclose((centre - full).std(axes), (centre - positive).std(axes), rtol=1e-5)
    assert torch.allclose(rescaled(guided, positive, x, sigma, 0.0, flow=flow), guided, atol=1e-5)
    half = rescaled(guided, positive, x, sigma, 0.5, flow=flow)
    assert torch.allclose(half, (full + guided) / 2, atol=1e-5)


def test_normalised_is_never_longer_than_the_positive_one() -> None:
    positive = torch.tensor([3.0, 4.0]).view(1, 2, 1, 1)
    assert normalised(positive * 10, positive, 1.0).flatten().tolist() == pytest.approx([3, 4])
    assert normalised(positive * 0.5, positive, 1.0).flatten().tolist() == pytest.approx([1.5, 2])
    assert normalised(positive * 10, positive, 0.5).norm() == pytest.approx(2.5)


def test_patches_of_guidance_do_nothing_without_guidance() -> None:
    model = with_patch(with_patch(MODEL, RescaleGuidance(1.0)), NormaliseGuidance(0.1))
    guidance = guidance_of(job(model=model, cfg=1.0), FlowTable())
    assert guidance.combine({Pass.POSITIVE: 5 * ONE}, ONE, 0.5) is not None
    assert float(guidance.combine({Pass.POSITIVE: 5 * ONE}, ONE, 0.5)) == 5.0


def test_a_patch_replaces_one_of_its_kind() -> None:
    model = with_patch(with_patch(MODEL, RescaleGuidance(1.0)), RescaleGuidance(0.2))
    assert model.patches == (RescaleGuidance(0.2),)
    model = with_patch(with_patch(model, GuidanceInterval()), GuidanceInterval(2.0))
    assert len(model.patches) == 3


def test_tone_mapping_shortens_the_longest_of_what_guidance_adds() -> None:
    generator = torch.Generator().manual_seed(3)
    vectors = torch.randn((2, 4, 6, 5), generator=generator)
    vectors[0, :, 0, 0] = 50.0
    mapped = tone_mapped(vectors, 1.0)
    for picture, found in zip(vectors, mapped, strict=True):
        length, new = picture.norm(dim=0), found.norm(dim=0)
        top = length.mean() + 3 * length.std()
        assert torch.allclose(new, length / (length / top + 1), atol=1e-5)
        assert torch.allclose(found / new, picture / length, atol=1e-5)  # the direction stays
    assert torch.allclose(tone_mapped(vectors, 1e9), vectors, atol=1e-5)
    positive, negative = vectors[:1], vectors[1:]
    how = guidance_of(job(model=with_patch(MODEL, ToneMap(1.0, 0.0, 0.5))), FlowTable())
    parts = {Pass.POSITIVE: positive, Pass.NEGATIVE: negative}
    wanted = negative + 3.0 * tone_mapped(positive - negative, 1.0)
    assert torch.allclose(how.combine(parts, vectors[:1], 0.9), wanted, atol=1e-5)
    late = how.combine(parts, vectors[:1], 0.01)
    assert torch.allclose(late, negative + 3.0 * (positive - negative), atol=1e-5)


@pytest.mark.parametrize(("flow", "sigma"), [(True, 0.3), (True, 1.0), (False, 4.0)])
def test_a_rescaled_score_is_the_score_times_its_factor(flow: bool, sigma: float) -> None:
    generator = torch.Generator().manual_seed(3)
    estimate, latents = (torch.randn((1, 4, 3, 3), generator=generator) for _ in range(2))
    how = RescaleScore(1.5, 0.8)
    found = score_rescaled(estimate, latents, sigma, how, flow=flow)
    scale = 1.0 - sigma if flow else 1.0
    power = scale**2 / sigma**2 * how.sigma**2
    ratio = (power + 1) / (power / how.k + 1)
    before, after = (scale * one - latents for one in (estimate, found))
    assert torch.allclose(after, ratio * before, atol=1e-5)
    same = score_rescaled(estimate, latents, sigma, RescaleScore(1.0, 0.8), flow=flow)
    assert torch.allclose(same, estimate, atol=1e-6)
