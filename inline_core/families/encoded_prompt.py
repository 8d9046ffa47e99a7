"""An encoded prompt, as families keep it between jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch.nn.utils.rnn import pad_sequence

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.families.controls import LoadedControl


@dataclass(frozen=True, slots=True, eq=False)
class EncodedPrompt:
    """`features` (tokens, width) of one prompt; `cut_tokens` is how many did not fit.

    `pooled` (width,) stands for the prompt as a whole, where a family has that; `mask` (tokens,)
    bool is True for tokens that count, where padding is not left out.  `notes` are warnings.
    `controls` are put on for one job (see `families.controls`).
    """

    features: Tensor
    cut_tokens: int = 0
    pooled: Tensor | None = None
    mask: Tensor | None = None
    notes: tuple[str, ...] = ()
    controls: tuple[LoadedControl, ...] = ()

    @property
    def is_finite(self) -> bool:
        """False if there is NaN or infinity in the features."""
        return all(bool(torch.isfinite(part).all()) for part in self._parts())

    @property
    def size_bytes(self) -> int:
        """Memory of the features."""
        return sum(part.numel() * part.element_size() for part in self._parts())

    WORDS: ClassVar[tuple[str, ...]] = ("features",)
    """The fields with features token by token."""

    def zeroed(self) -> Self:
        """The same with zeros in place of what the prompt says, as ComfyUI's ZeroOut has it."""
        names = [name for name in (*self.WORDS, "pooled") if getattr(self, name) is not None]
        changes: dict[str, Any] = {name: torch.zeros_like(getattr(self, name)) for name in names}
        return replace(self, **changes)

    def joined(self, other: Self) -> Self:
        """The tokens of both one after another; the rest is this one's."""
        parts = {name: (getattr(self, name), getattr(other, name)) for name in self.WORDS}
        changes: dict[str, Any] = {
            name: torch.cat([mine, theirs])  # (tokens of both, width)
            for name, (mine, theirs) in parts.items()
            if mine is not None and theirs is not None
        }
        if self.mask is not None and other.mask is not None:
            changes["mask"] = torch.cat([self.mask, other.mask])  # (tokens of both,)
        return replace(self, **changes, cut_tokens=self.cut_tokens + other.cut_tokens)

    def averaged(self, other: Self, weight: float) -> Self:
        """`weight` of this one and the rest of the other, token by token of this one."""
        changes: dict[str, Any] = {}
        for name in (*self.WORDS, "pooled"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine is None or theirs is None:
                continue
            fitting = torch.zeros_like(mine)
            count = min(len(mine), len(theirs))
            fitting[:count] = theirs[:count]
            changes[name] = mine * weight + fitting * (1.0 - weight)
        return replace(self, **changes)

    def _parts(self) -> list[Tensor]:
        return [self.features] if self.pooled is None else [self.features, self.pooled]


def padded(prompts: Sequence[EncodedPrompt]) -> tuple[Tensor, Tensor]:
    """Features (rows, tokens, width) of prompts of any length, and a mask (rows, tokens) of bool.

    Zeros fill up to the longest of them.
    """
    features = [prompt.features for prompt in prompts]
    lengths = torch.tensor([len(item) for item in features], device=features[0].device)  # (rows,)
    together = pad_sequence(features, batch_first=True)  # (rows, tokens, width)
    places = torch.arange(together.shape[1], device=lengths.device)  # (tokens,)
    return together, places[None] < lengths[:, None]
