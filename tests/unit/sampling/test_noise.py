from __future__ import annotations

import json
from pathlib import Path

import torch

from inline_core.sampling.noise import NoiseSource, picture_seed

SHAPE = (16, 8, 8)


def test_noise_is_that_of_the_seed_everywhere() -> None:
    wanted = json.loads((Path(__file__).parent / "sigmas.json").read_text())["noise_seed42_first8"]
    drawn = NoiseSource(42, 1, (4, 64, 64), "cpu").draw()
    assert drawn.dtype == torch.float32
    assert torch.allclose(drawn.flatten()[:8], torch.tensor(wanted), atol=1e-6)


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
