"""An encoded prompt, as families keep it between jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class EncodedPrompt:
    """`features` (tokens, width) of one prompt; `cut_tokens` is how many did not fit."""

    features: Tensor
    cut_tokens: int = 0

    @property
    def is_finite(self) -> bool:
        """False if there is NaN or infinity in the features."""
        return bool(torch.isfinite(self.features).all())

    @property
    def size_bytes(self) -> int:
        """Memory of the features."""
        return self.features.numel() * self.features.element_size()
