from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn

from inline_core.families.blocks import BlockControl
from inline_core.sampling.family import Row, StepMemory

WIDTH = 4


class Block(nn.Module):
    """Adds a different amount to each token, and counts the rows that it was run on."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.rows: list[int] = []
        self._amount = float(10**index)

    def forward(
        self, hidden: Tensor, mask: Tensor | None = None, gain: Tensor | None = None
    ) -> Tensor:
        self.rows.append(hidden.shape[0])
        scale = 1.0 if gain is None else gain.view(-1, 1, 1)
        shown = hidden + self._amount * scale
        return shown if mask is None else torch.where(mask[..., None], shown, hidden)


def network(count: int = 3) -> tuple[list[Block], BlockControl]:
    blocks = [Block(index) for index in range(count)]
    return blocks, BlockControl(blocks)


def run(
    blocks: Sequence[Block],
    control: BlockControl,
    rows: Sequence[Row],
    between: float = 0.0,
    **extra: Tensor | None,
) -> Tensor:
    """`between` is added after each block, as ControlNets do it."""
    hidden = torch.zeros(len(rows), 2, WIDTH)
    with control.passing(rows, nothing):
        for block in blocks:
            hidden = block(hidden, extra.get("mask"), gain=extra.get("gain")) + between
    return hidden


def nothing() -> None:
    pass


def test_without_wishes_blocks_run_as_they_are() -> None:
    blocks, control = network()
    assert float(run(blocks, control, [Row(None)] * 2)[0, 0, 0]) == 111
    assert [block.rows for block in blocks] == [[2], [2], [2]]
    assert float(blocks[0](torch.zeros(1, 1, WIDTH))[0, 0, 0]) == 1  # also outside of a pass


def test_rows_leave_out_different_blocks() -> None:
    blocks, control = network()
    rows = [Row(None), Row(None, skipped_layers=(1,)), Row(None, skipped_layers=(0, 1, 2))]
    gain = torch.tensor([1.0, 2.0, 3.0])
    result = run(blocks, control, rows, gain=gain)[:, 0, 0].tolist()
    assert result == [111.0, 202.0, 0.0]
    assert [block.rows for block in blocks] == [[2], [1], [2]]


def test_a_step_that_changes_little_reuses_the_other_blocks() -> None:
    blocks, control = network()
    memory = StepMemory(0.15)
    rows = [Row(None, memory=memory), Row(None)]
    for gain, wanted, reused in ((1.0, 111.0, 0), (1.1, 111.1, 1), (1.2, 133.2, 1)):
        result = run(blocks, control, rows, gain=torch.tensor([gain, 1.0]))
        assert float(result[0, 0, 0]) == pytest.approx(wanted)
        assert float(result[1, 0, 0]) == 111
        assert memory.reused == reused
    assert blocks[1].rows == [2, 1, 2]


def test_what_is_added_between_the_blocks_counts_once_when_they_are_reused() -> None:
    blocks, control = network()
    memory = StepMemory(0.15)
    for reused in (0, 1):
        result = run(blocks, control, [Row(None, memory=memory)], between=0.25)
        assert memory.reused == reused
        assert float(result[0, 0, 0]) == 111.75


def test_padding_is_no_part_of_what_is_remembered() -> None:
    blocks, control = network()
    memory = StepMemory(0.5)
    short = torch.tensor([[True, False], [True, True]])
    run(blocks, control, [Row(None, memory=memory), Row(None)], mask=short)
    assert memory.rest is not None
    assert memory.rest.shape == (1, WIDTH)
    result = run(blocks, control, [Row(None, memory=memory), Row(None)], mask=short)
    assert memory.reused == 1
    assert result[:, :, 0].tolist() == [[111, 0], [111, 111]]


def test_another_length_is_computed_anew() -> None:
    blocks, control = network()
    memory = StepMemory(0.5)
    run(blocks, control, [Row(None, memory=memory)])
    run(blocks, control, [Row(None, memory=memory)], mask=torch.tensor([[True, False]]))
    assert memory.reused == 0


def test_a_single_block_is_always_run() -> None:
    blocks, control = network(1)
    memory = StepMemory(0.5)
    for _ in range(3):
        assert float(run(blocks, control, [Row(None, memory=memory)])[0, 0, 0]) == 1
    assert blocks[0].rows == [1, 1, 1]


def test_the_check_is_asked_before_each_block() -> None:
    blocks = [Block(index) for index in range(3)]
    other = Block(0)
    control = BlockControl(blocks, [other])

    class StoppedError(Exception):
        pass

    def stopping_at(count: int) -> Callable[[], None]:
        left = [count]

        def check() -> None:
            left[0] -= 1
            if left[0] < 0:
                raise StoppedError

        return check

    for count in range(4):
        for block in (other, *blocks):
            block.rows.clear()
        with control.passing([Row(None)], stopping_at(count)), pytest.raises(StoppedError):
            hidden = torch.zeros(1, 1, WIDTH)
            for block in (other, *blocks):
                hidden = block(hidden)
        assert sum(len(block.rows) for block in (other, *blocks)) == count
    assert float(run(blocks, control, [Row(None)])[0, 0, 0]) == 111


class JointBlock(nn.Module):
    """A block of two streams that adds to both; the last one gives no text."""

    def __init__(self, index: int, *, last: bool = False) -> None:
        super().__init__()
        self.rows: list[int] = []
        self._amount = float(10**index)
        self._last = last

    def forward(
        self, hidden_states: Tensor, encoder_hidden_states: Tensor, gain: Tensor
    ) -> tuple[Tensor | None, Tensor]:
        self.rows.append(hidden_states.shape[0])
        amount = self._amount * gain.view(-1, 1, 1)
        text = None if self._last else encoder_hidden_states + 2 * amount
        return text, hidden_states + amount


def run_joint(
    blocks: Sequence[JointBlock], control: BlockControl, rows: Sequence[Row], gain: Sequence[float]
) -> tuple[Tensor, Tensor]:
    hidden = torch.zeros(len(rows), 2, WIDTH)
    text: Tensor = torch.zeros(len(rows), 3, WIDTH)
    with control.passing(rows, nothing):
        for block in blocks:
            text, hidden = block(
                hidden_states=hidden, encoder_hidden_states=text, gain=torch.tensor(gain)
            )
    return text, hidden


def test_blocks_of_two_streams_are_skipped_and_reused_with_both() -> None:
    blocks = [JointBlock(0), JointBlock(1), JointBlock(2, last=True)]
    control = BlockControl(blocks, two_streams=True)
    assert run_joint(blocks, control, [Row(None)], [1.0])[0] is None  # as they are
    memory = StepMemory(0.15)
    rows = [Row(None, memory=memory), Row(None, skipped_layers=(1,)), Row(None)]
    for first, wanted, reused in ((1.0, 111.0, 0), (1.1, 111.1, 1), (1.2, 133.2, 1)):
        text, hidden = run_joint(blocks, control, rows, [first, 1.0, 2.0])
        assert hidden[:, 0, 0].tolist() == pytest.approx([wanted, 101.0, 222.0])
        assert text[1:, 0, 0].tolist() == [2.0, 44.0]
        assert memory.reused == reused
    assert blocks[1].rows == [1, 2, 1, 2]
