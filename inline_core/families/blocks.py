"""Control over the repeated blocks of a transformer: stop between them, leave some out, reuse.

Works for every family whose blocks take hidden states (rows, tokens, width) first (or by the name
`hidden_states`) and give hidden states; if they pad rows at the end, a mask (rows, tokens) of bool
for real tokens must be second.  Blocks of two streams take the text by the name
`encoder_hidden_states` and give (text, picture); they count as if both were one.  Rows are
independent: what one row leaves out, or reuses, does not change the others, so jobs with and
without it share a pass.

The step cache is that of ParaAttention's first-block cache, with a state for each row: while what
the first block adds has changed little (relative mean difference below the row's threshold) since
all blocks were last run, what the other blocks added then is added again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from inline_core.sampling.family import Row, StepMemory

if TYPE_CHECKING:
    from torch import Tensor

Check = Callable[[], None]


@dataclass(slots=True, eq=False)
class _Pass:
    """One forward pass; `reusing` are rows that leave out all blocks but the first."""

    rows: Sequence[Row]
    check: Check
    reusing: set[int] = field(default_factory=set)
    after_first: Tensor | None = None
    first: dict[int, Tensor] = field(default_factory=dict)

    @property
    def plain(self) -> bool:
        return not any(row.skipped_layers or row.memory is not None for row in self.rows)


class BlockControl:
    """Wraps the forward functions of blocks once, when a model is loaded.  Device thread only."""

    def __init__(
        self, blocks: Sequence[Any], others: Sequence[Any] = (), *, two_streams: bool = False
    ) -> None:
        """`blocks` in the order they run in, `count` of them; `others` are only asked to stop.

        `two_streams` says that all of `blocks` give (text, picture).
        """
        self._pass: _Pass | None = None
        self._two_streams = two_streams
        self.count = len(blocks)
        self._last = self.count - 1
        for index, block in enumerate(blocks):
            block.forward = self._wrapped(index, block.forward)
        for block in others:
            block.register_forward_pre_hook(self._ask)

    @contextmanager
    def passing(self, rows: Sequence[Row], check: Check) -> Iterator[None]:
        """Apply what `rows` ask for, and call `check` before each block, within this block."""
        self._pass = _Pass(rows, check)
        try:
            yield
        finally:
            self._pass = None

    def _ask(self, *_: object) -> None:
        if self._pass is not None:
            self._pass.check()

    def _wrapped(self, index: int, forward: Callable[..., Any]) -> Callable[..., Any]:
        def controlled(*args: Any, **kwargs: Any) -> Any:
            self._ask()
            current = self._pass
            # Some models pass everything by name.
            hidden = kwargs.pop("hidden_states") if not args else args[0]
            args = args[1:]
            if current is None or current.plain:
                return forward(hidden, *args, **kwargs)
            if not self._two_streams:
                return self._run(index, forward, hidden, args, kwargs)
            text = kwargs.pop("encoder_hidden_states")
            tokens = text.shape[1]
            both = torch.cat([text, hidden], dim=1)  # (rows, tokens, width)
            both = self._run(index, _joined(forward, tokens), both, args, kwargs)
            return both[:, :tokens], both[:, tokens:]

        return controlled

    def _run(
        self,
        index: int,
        forward: Callable[..., Tensor],
        hidden: Tensor,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Tensor:
        current = self._pass
        assert current is not None
        run = [
            row
            for row, wanted in enumerate(current.rows)
            if index not in wanted.skipped_layers and (index == 0 or row not in current.reusing)
        ]
        output = _on_rows(forward, hidden, args, kwargs, run)
        lengths = _lengths(hidden, args)
        if index == 0:
            _decide(current, hidden, output, lengths)
        return _reuse(current, output, lengths) if index == self._last else output


def _joined(forward: Callable[..., Any], tokens: int) -> Callable[..., Tensor]:
    """A block of two streams as one of a single stream that starts with `tokens` of text.

    The last one gives no text any more.
    """

    def joined(both: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        before, hidden = both[:, :tokens], both[:, tokens:]
        text, hidden = forward(hidden, *args, encoder_hidden_states=before, **kwargs)
        return torch.cat([before if text is None else text, hidden], dim=1)

    return joined


def _on_rows(
    forward: Callable[..., Tensor],
    hidden: Tensor,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    run: Sequence[int],
) -> Tensor:
    """The block on some of the rows; the others keep their hidden states."""
    rows = hidden.shape[0]
    if not run:
        return hidden
    if len(run) == rows:
        return forward(hidden, *args, **kwargs)
    index = torch.tensor(run, device=hidden.device)

    def some(value: Any) -> Any:
        batched = isinstance(value, torch.Tensor) and value.ndim > 0 and value.shape[0] == rows
        return value[index] if batched else value

    output = hidden.clone()  # (rows, tokens, width)
    output[index] = forward(
        hidden[index], *map(some, args), **{key: some(value) for key, value in kwargs.items()}
    )
    return output


def _lengths(hidden: Tensor, args: tuple[Any, ...]) -> list[int]:
    """Real tokens of each row: padding is at the end, and depends on who else is in the pass."""
    mask = args[0] if args else None
    masked = isinstance(mask, torch.Tensor) and mask.dtype is torch.bool
    if mask is None or not masked or mask.shape != hidden.shape[:2]:
        return [hidden.shape[1]] * hidden.shape[0]
    return [int(count) for count in mask.sum(1).tolist()]


def _decide(current: _Pass, hidden: Tensor, output: Tensor, lengths: Sequence[int]) -> None:
    """After the first block: which rows have changed so little that they reuse the rest."""
    current.after_first = output
    for row, wanted in enumerate(current.rows):
        memory = wanted.memory
        if memory is None:
            continue
        first = (output[row] - hidden[row])[: lengths[row]]  # (tokens, width)
        if _is_close(memory, first):
            current.reusing.add(row)
            memory.reused += 1
        current.first[row] = first


def _is_close(memory: StepMemory, first: Tensor) -> bool:
    if memory.first is None or memory.rest is None or memory.first.shape != first.shape:
        return False
    change = (first - memory.first).float().abs().mean()
    return bool(change < memory.threshold * memory.first.float().abs().mean())


def _reuse(current: _Pass, output: Tensor, lengths: Sequence[int]) -> Tensor:
    """After the last block: add what was added before, or remember what was added now."""
    assert current.after_first is not None
    if current.reusing:
        output = output.clone()  # (rows, tokens, width)
    for row, wanted in enumerate(current.rows):
        memory = wanted.memory
        if memory is None:
            continue
        length = lengths[row]
        if row in current.reusing:
            assert memory.rest is not None
            # Not `+=`: what is added between the blocks (ControlNets) is in what is remembered.
            output[row, :length] = current.after_first[row, :length] + memory.rest
        else:
            memory.first = current.first[row].clone()
            memory.rest = (output[row] - current.after_first[row])[:length].clone()
    return output
