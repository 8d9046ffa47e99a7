from __future__ import annotations

import torch

from inline_core.sampling.guidance import combine, is_guided


def test_each_member_has_its_own_scale() -> None:
    positive, negative = torch.full((3, 1, 1, 1), 2.0), torch.full((3, 1, 1, 1), 1.0)
    combined = combine(positive, negative, torch.tensor([0.0, 1.0, 5.0]))
    assert combined.flatten().tolist() == [1.0, 2.0, 6.0]


def test_only_exactly_one_means_none() -> None:
    assert not is_guided(1.0)
    assert is_guided(0.0)
    assert is_guided(1.5)
