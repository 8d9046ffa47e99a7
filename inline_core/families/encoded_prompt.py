"""An encoded prompt, as families keep it between jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
