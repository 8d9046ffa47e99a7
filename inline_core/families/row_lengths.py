"""Rows of a padded pass by their real lengths, for attention that needs no mask.

Imports torch, so it is imported on the device thread only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


class RowLengths:
    """Real tokens of each row from a mask, read from the device once for a whole pass."""

    def __init__(self) -> None:
        self._mask: Tensor | None = None
        self._groups: dict[int, Tensor] = {}

    def groups(self, mask: Tensor) -> dict[int, Tensor]:
        """The rows of each length, as indexes; `mask` (rows, tokens), padding at the end."""
        if mask is not self._mask:
            lengths = mask.bool().sum(1).tolist()
            self._groups = {
                length: torch.tensor(
                    [row for row, other in enumerate(lengths) if other == length],
                    device=mask.device,
                )
                for length in sorted(set(lengths))
            }
            self._mask = mask
        return self._groups
