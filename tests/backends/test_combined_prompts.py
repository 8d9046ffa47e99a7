"""Prompts that are combined, joined, averaged, emptied and placed: what a step makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from inline_core.media.values import Mask
from inline_core.nodes import conditioning_combine as combining
from inline_core.sampling.job import SampleJob
from inline_core.sampling.patches import Differential, NoiseScale, WeakenNegative, with_patch
from inline_core.sampling.sigmas.tables import EpsTable
from inline_core.sampling.values import Conditioning, Latent
from tests.backends.conftest import Bench, make_bench
from tests.tiny_families import sd15

SIZE = (128, 64)  # 16 x 8 latents
CLOSE = 1e-4


@pytest.fixture(scope="module")
def painter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("sd15")
    sd15.save_models(folder)
    made = make_bench(folder)
    yield made
    assert made.close()


def prompt(bench: Bench, text: str) -> Conditioning:
    found: Conditioning = bench.job(text, family="sd15").positive
    return found


def one_step(bench: Bench, positive: Conditioning, **changes: Any) -> torch.Tensor:
    """The estimate of the clean latents at the first sigma, which one step of Euler gives."""
    values = {"steps": 1, "latent": Latent(*SIZE), **changes}
    negative = values.pop("negative", None)
    plain: SampleJob = bench.job("", family="sd15", **values)
    return bench.latents(replace(plain, positive=positive, negative=negative))


def test_two_prompts_are_averaged_by_their_strength(painter: Bench) -> None:
    red, blue = prompt(painter, "a red circle"), prompt(painter, "a blue square")
    alone = [one_step(painter, one) for one in (red, blue)]
    assert float((alone[0] - alone[1]).abs().max()) > 1e-3
    both = one_step(painter, combining.combine(red, blue))
    assert float((both - (alone[0] + alone[1]) / 2).abs().max()) <= CLOSE
    strong = combining.combine(combining.strength(red, strength=3.0), blue)
    weighed = one_step(painter, strong)
    assert float((weighed - (3 * alone[0] + alone[1]) / 4).abs().max()) <= CLOSE
    three = combining.combine(combining.combine(red, blue), red)
    assert float((one_step(painter, three) - (2 * alone[0] + alone[1]) / 3).abs().max()) <= CLOSE


def test_a_negative_of_several_prompts_is_averaged_too(painter: Bench) -> None:
    red, grey, dull = (prompt(painter, text) for text in ("red", "grey", "dull"))
    alone = [one_step(painter, one) for one in (red, grey, dull)]
    wanted = (alone[1] + alone[2]) / 2
    wanted = wanted + 2.0 * (alone[0] - wanted)
    guided = one_step(painter, red, negative=combining.combine(grey, dull), cfg=2.0)
    assert float((guided - wanted).abs().max()) <= CLOSE


def test_a_mask_says_where_a_prompt_counts(painter: Bench) -> None:
    red, blue = prompt(painter, "a red circle"), prompt(painter, "a blue square")
    half = np.zeros((SIZE[1], SIZE[0]), np.uint8)
    half[:, : SIZE[0] // 2] = 255
    left = combining.mask(red, Mask(half))
    right = combining.mask(blue, Mask(255 - half))
    made = one_step(painter, combining.combine(left, right))
    alone = [one_step(painter, one) for one in (red, blue)]
    assert float((made[..., :7] - alone[0][..., :7]).abs().max()) <= CLOSE
    assert float((made[..., 9:] - alone[1][..., 9:]).abs().max()) <= CLOSE


def test_an_area_is_made_as_a_picture_of_its_own(painter: Bench) -> None:
    red, blue = prompt(painter, "a red circle"), prompt(painter, "a blue square")
    whole = one_step(painter, blue)
    placed = combining.area(red, by="pixels", width=64, height=64, x=64, y=0, strength=1.0)
    made = one_step(painter, combining.combine(blue, placed))
    assert float((made[..., :8] - whole[..., :8]).abs().max()) <= CLOSE  # outside of the area
    # The area alone, with the noise that lies there.
    noise = torch.randn((1, 4, 8, 16), generator=torch.Generator("cpu").manual_seed(7))
    part = one_step(
        painter,
        red,
        latent=Latent(64, 64, samples=noise[..., 8:] * start_scale(), space="sd15"),
        add_noise=False,
    )
    fade = torch.ones(8)
    fade[:8] = torch.arange(1, 9) / 8  # its left edge lies inside of the picture
    wanted = (whole[..., 8:] + part * fade) / (1 + fade)
    assert float((made[..., 8:] - wanted).abs().max()) <= 1e-4
    shares = combining.area(red, by="share", width_share=0.5, height_share=1.0, x_share=0.5)
    same = one_step(painter, combining.combine(blue, shares))
    assert float((same - made).abs().max()) <= CLOSE


def start_scale() -> float:
    """How large the noise is that a sampling of an eps model starts from."""
    largest = EpsTable().largest
    return float((1 + largest**2) ** 0.5)


def test_a_span_says_when_a_prompt_counts(painter: Bench) -> None:
    red, blue = prompt(painter, "a red circle"), prompt(painter, "a blue square")
    early = combining.combine(
        combining.span(red, start=0.0, end=0.5), combining.span(blue, start=0.5)
    )
    first = one_step(painter, early)
    assert float((first - one_step(painter, red)).abs().max()) <= CLOSE
    steps = {"steps": 6, "latent": Latent(*SIZE)}
    made, reds, blues = (one_step(painter, one, **steps) for one in (early, red, blue))
    assert float((made - reds).abs().max()) > 1e-3
    assert float((made - blues).abs().max()) > 1e-3


def test_prompts_are_emptied_joined_and_averaged(painter: Bench) -> None:
    red, blue = prompt(painter, "a red circle"), prompt(painter, "a blue square")
    alone = one_step(painter, red)
    nothing = one_step(painter, combining.zero(red))
    assert float((nothing - alone).abs().max()) > 1e-3
    assert torch.equal(nothing, one_step(painter, combining.zero(blue)))
    joined = one_step(painter, combining.concat(red, blue))
    assert float((joined - alone).abs().max()) > 1e-4
    assert not torch.equal(joined, one_step(painter, combining.concat(blue, red)))
    assert torch.equal(one_step(painter, combining.average(red, blue, strength=1.0)), alone)
    other = one_step(painter, combining.average(red, blue, strength=0.0))
    assert float((other - one_step(painter, blue)).abs().max()) <= CLOSE
    mixed = one_step(painter, combining.average(red, blue, strength=0.5))
    assert float((mixed - alone).abs().max()) > 1e-4


def test_combined_prompts_share_passes_with_other_jobs(painter: Bench) -> None:
    red, blue = prompt(painter, "a red circle"), prompt(painter, "a blue square")
    placed = combining.area(red, by="share", width_share=0.5, height_share=0.5)
    jobs = [
        replace(painter.job("", family="sd15", steps=2, latent=Latent(*SIZE)), positive=one)
        for one in (combining.combine(blue, placed), red, blue)
    ]
    alone = [painter.latents(job) for job in jobs]
    together = [future.result(60) for future in [painter.sampler.submit(job) for job in jobs]]
    for made, wanted in zip(together, alone, strict=True):
        assert float((made.latent.samples - wanted).abs().max()) <= 1e-4


def test_the_last_estimate_stands_beside_the_result(painter: Bench) -> None:
    job = painter.job("red", family="sd15", latent=Latent(*SIZE), steps=4, end_step=2,
                      leftover_noise=True)  # fmt: skip
    result = painter.sampler.submit(job).result(60)
    assert result.denoised is not None
    assert float((result.denoised.samples - result.latent.samples).abs().max()) > 0.1
    whole = painter.sampler.submit(replace(job, end_step=None, leftover_noise=False)).result(60)
    assert whole.denoised is not None
    assert float((whole.denoised.samples - whole.latent.samples).abs().max()) <= CLOSE


def test_grey_of_a_mask_says_when_under_differential_diffusion(painter: Bench) -> None:
    clean = torch.randn((1, 4, 8, 16), generator=torch.Generator().manual_seed(5))
    mask = np.full((8, 16), 255, np.uint8)
    mask[:, 5:11], mask[:, 11:] = 128, 0
    latent = Latent(*SIZE, samples=clean, space="sd15", mask=mask)
    job = painter.job("red", family="sd15", latent=latent, steps=6)
    plain = painter.latents(job)
    differing = painter.latents(replace(job, model=with_patch(job.model, Differential(1.0))))
    none = painter.latents(replace(job, model=with_patch(job.model, Differential(0.0))))
    assert torch.equal(none, plain)
    # The kept part stays; grey is neither what it was nor what plain masking makes of it.
    assert float((differing[..., 12:] - clean[..., 12:]).abs().max()) <= CLOSE
    assert float((differing[..., 6:10] - plain[..., 6:10]).abs().max()) > 1e-3
    assert float((differing[..., 6:10] - clean[..., 6:10]).abs().max()) > 1e-3


def test_noise_of_another_size(painter: Bench) -> None:
    job = painter.job("red", family="sd15", latent=Latent(*SIZE), steps=2)
    scaled = painter.latents(replace(job, model=with_patch(job.model, NoiseScale(0.5))))
    noise = torch.randn((1, 4, 8, 16), generator=torch.Generator("cpu").manual_seed(7))
    own = Latent(*SIZE, samples=noise * 0.5 * start_scale(), space="sd15")
    assert (
        float((scaled - painter.latents(replace(job, latent=own, add_noise=False))).abs().max())
        <= 1e-4
    )


def test_blocks_left_out_of_the_negative(bench: Bench) -> None:
    job = bench.job(negative="blurry", cfg=3.0, steps=2)
    plain = bench.latents(job)
    weak = bench.latents(replace(job, model=with_patch(job.model, WeakenNegative((0,)))))
    assert float((weak - plain).abs().max()) > 1e-4
    late = WeakenNegative((0,), 0.99, 1.0)
    assert torch.equal(bench.latents(replace(job, model=with_patch(job.model, late))), plain)


def test_the_region_of_a_prompt_alone_is_the_whole_picture(painter: Bench) -> None:
    red = prompt(painter, "a red circle")
    alone = one_step(painter, red)
    for placed in (
        combining.strength(red, strength=0.3),
        combining.mask(red, Mask(np.full((8, 8), 255, np.uint8))),
    ):
        assert float((one_step(painter, placed) - alone).abs().max()) <= CLOSE
