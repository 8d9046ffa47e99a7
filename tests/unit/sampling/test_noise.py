from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from inline_core.sampling.noise import NoiseSource, picture_seed

SHAPE = (16, 8, 8)


VECTORS: dict[str, Any] = json.loads((Path(__file__).parent / "noise.json").read_text())


def test_noise_is_that_of_the_seed_everywhere() -> None:
    drawn = NoiseSource(42, 1, (4, 64, 64), "cpu").draw()
    assert drawn.dtype == torch.float32
    assert drawn.flatten()[:8].tolist() == VECTORS["seed42_1x4x64x64_first8"]
    moments = [float(drawn.mean()), float(drawn.std())]
    assert moments == pytest.approx(VECTORS["seed42_1x4x64x64_mean_std"], rel=1e-6)
    top = NoiseSource((1 << 64) - 1, 1, (16, 8, 8), "cpu").draw()
    assert top.flatten()[:4].tolist() == VECTORS["seed_u64max_1x16x8x8_first4"]


def test_one_draw_gives_the_batch_consecutive_parts() -> None:
    drawn = NoiseSource(42, 2, (16, 1, 8, 8), "cpu", one_draw=True).draw().flatten()
    wanted = VECTORS["seed42_2x16x1x8x8_first4_last4"]
    assert [*drawn[:4].tolist(), *drawn[-4:].tolist()] == wanted
    first = NoiseSource(42, 1, (16, 1, 8, 8), "cpu").draw()
    assert torch.equal(drawn[: first.numel()], first.flatten())


def test_picture_i_has_the_noise_of_seed_plus_i() -> None:
    batch = NoiseSource(7, 4, SHAPE, "cpu")
    first, second = batch.draw(), batch.draw()
    for index in range(4):
        alone = NoiseSource(7 + index, 1, SHAPE, "cpu")
        assert torch.equal(alone.draw()[0], first[index])
        assert torch.equal(alone.draw()[0], second[index])


def test_seeds_wrap_at_64_bits() -> None:
    top = (1 << 64) - 1
    assert picture_seed(top, 1) == 0
    assert NoiseSource(top, 2, SHAPE, "cpu").draw().shape == (2, *SHAPE)
