"""Parts of a model's blocks on several processes."""

from __future__ import annotations

import pytest
import torch

from inline_core.loading.deltas import AdapterSwitch, LoadedAdapter, LoraDelta
from inline_core.loading.stages import AbsentBlock, keep_stage, stage_bounds
from tests.tiny_families import flux1


@pytest.mark.parametrize(
    ("blocks", "stages", "expected"),
    [
        (57, 2, [(0, 29), (29, 57)]),
        (57, 4, [(0, 15), (15, 30), (30, 45), (45, 57)]),
        (4, 2, [(0, 2), (2, 4)]),
        (4, 4, [(0, 1), (1, 2), (2, 3), (3, 4)]),
        (5, 4, [(0, 2), (2, 4), (4, 5), (5, 5)]),
    ],
)
def test_bounds_are_those_of_xdit(
    blocks: int, stages: int, expected: list[tuple[int, int]]
) -> None:
    assert [stage_bounds(blocks, stage, stages) for stage in range(stages)] == expected


def test_every_block_is_on_one_stage() -> None:
    names: list[str] = []
    for stage in range(2):
        model = flux1.transformer()
        dropped = keep_stage(model, stage, 2)
        kept = [
            f"{group}.{index}."
            for group in ("transformer_blocks", "single_transformer_blocks")
            for index, block in enumerate(getattr(model, group))
            if not isinstance(block, AbsentBlock)
        ]
        assert not set(kept) & set(dropped)
        assert not [name for name, _ in model.named_parameters() if name.startswith(dropped)]
        names += kept
    assert sorted(names) == [
        "single_transformer_blocks.0.",
        "single_transformer_blocks.1.",
        "transformer_blocks.0.",
        "transformer_blocks.1.",
    ]


def _lora(layer: str) -> LoadedAdapter:
    up, down = torch.ones(32, 1), torch.ones(1, 32)
    return LoadedAdapter("style", {layer: (LoraDelta(down, up, 1.0),)})


def test_adapters_of_blocks_elsewhere_are_left_out() -> None:
    model = flux1.transformer()
    keep_stage(model, 1, 2)
    AdapterSwitch(model).use([(_lora("transformer_blocks.0.attn.to_q"), 1.0)])


def test_adapters_of_layers_that_are_nowhere_are_an_error() -> None:
    with pytest.raises(KeyError, match="to_z"):
        AdapterSwitch(flux1.transformer()).use([(_lora("transformer_blocks.0.attn.to_z"), 1.0)])
