"""Two diffusion models of which one only makes the estimates that guidance leads away from.

Ideogram 4 was trained so: its second model knows no words.  (A smaller or earlier model in that
place is "autoguidance": Karras et al. 2024, arXiv:2406.02507.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from inline_core.families.adapted import AdaptedDenoiser
from inline_core.sampling.family import Row

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class GuidedPair:
    """Implements `BatchDenoiser`: rows of negative estimates go to `other`, the rest to `model`."""

    model: AdaptedDenoiser
    other: AdaptedDenoiser

    @property
    def notes(self) -> tuple[str, ...]:
        """What a run should know about how its passes were made."""
        return tuple(dict.fromkeys((*self.model.notes, *self.other.notes)))

    def predict(
        self,
        latents: Tensor,
        sigmas: Tensor,
        conditioning: Sequence[object],
        guidance: Sequence[float | None] = (),
    ) -> Tensor:
        """See `Denoiser.predict`: the first model's."""
        return self.model.predict(latents, sigmas, conditioning, guidance)

    def estimate(
        self, latents: Tensor, sigmas: Tensor, rows: Sequence[Row], check: Callable[[], None]
    ) -> Tensor:
        """See `BatchDenoiser.estimate`."""
        negative = torch.tensor([row.negative for row in rows], device=latents.device)  # (rows,)
        found = torch.empty_like(latents)  # (rows, channels, ...)
        for denoiser, wanted in ((self.model, ~negative), (self.other, negative)):
            places = wanted.nonzero().flatten()
            if len(places):
                some = [rows[place] for place in places.tolist()]
                found[places] = denoiser.estimate(latents[places], sigmas[places], some, check)
        return found
