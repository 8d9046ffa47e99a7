from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from inline_core.sampling.masking import KeptPart, latent_mask
from inline_core.sampling.process import end_state, noised, start_state
from inline_core.sampling.sigmas.tables import EpsTable, FlowTable

CLEAN = torch.full((1, 2, 4, 4), 3.0)
NOISE = torch.full((1, 2, 4, 4), 0.5)


def test_flow_mixes_and_eps_adds() -> None:
    assert float(noised(CLEAN, NOISE, 0.25, flow=True)[0, 0, 0, 0]) == 0.75 * 3 + 0.25 * 0.5
    assert float(noised(CLEAN, NOISE, 2.0, flow=False)[0, 0, 0, 0]) == 3 + 2 * 0.5


def test_an_eps_model_starts_with_a_little_more_at_the_top() -> None:
    table = EpsTable()
    top = table.largest
    start = start_state(None, NOISE, top, table)
    assert float(start[0, 0, 0, 0]) == pytest.approx(0.5 * math.sqrt(1 + top**2))
    below = start_state(None, NOISE, top * 0.9, table)
    assert float(below[0, 0, 0, 0]) == pytest.approx(0.5 * top * 0.9)
    both = start_state(CLEAN, NOISE, top, table)
    assert float((both - start)[0, 0, 0, 0]) == pytest.approx(3.0)


def test_leftover_noise_goes_round_unchanged() -> None:
    for table in (FlowTable(3.0), EpsTable()):
        x = start_state(CLEAN, NOISE, 0.6, table)
        handed_over = end_state(x, 0.6, table)
        assert torch.allclose(start_state(handed_over, None, 0.6, table), x)
        assert torch.equal(end_state(x, 0.0, table), x)


def test_nothing_to_start_from_is_a_bug() -> None:
    with pytest.raises(ValueError, match="neither latents nor noise"):
        start_state(None, None, 0.5, FlowTable())


def test_a_mask_is_scaled_to_the_latent() -> None:
    mask = np.zeros((32, 32), np.uint8)
    mask[:, 16:] = 255
    share = latent_mask(mask, CLEAN)
    assert share.shape == (1, 1, 4, 4)
    assert share[0, 0, 0].tolist() == [0, 0, 1, 1]
    assert latent_mask(mask, torch.zeros(1, 2, 5, 4, 4)).shape == (1, 1, 1, 4, 4)


def test_what_is_outside_of_the_mask_is_kept() -> None:
    share = torch.zeros(1, 1, 4, 4)
    share[..., 2:] = 1
    kept = KeptPart(share, CLEAN, NOISE, flow=True)
    before = kept.before(torch.full_like(CLEAN, 9.0), 0.5)
    assert before[0, 0, 0].tolist() == [1.75, 1.75, 9.0, 9.0]
    after = kept.after(torch.full_like(CLEAN, 9.0), 0.5)
    assert after[0, 0, 0].tolist() == [3.0, 3.0, 9.0, 9.0]
