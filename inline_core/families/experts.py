"""Two diffusion models that take turns: one for much noise, one for little (Wan 2.2 A14B)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from inline_core.families.adapted import AdaptedDenoiser
from inline_core.families.guided_pair import GuidedPair
from inline_core.sampling.family import Row
from inline_core.sampling.patches import ExpertBoundary, GuidingModel, last

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.loading.component import ComponentRef


@dataclass(frozen=True, slots=True, eq=False)
class ExpertPair:
    """Implements `BatchDenoiser`: each row goes to the expert for its sigma.

    `first` is used from `boundary` (a sigma) upwards, `second` below it.
    """

    first: AdaptedDenoiser
    second: AdaptedDenoiser
    boundary: float

    @property
    def notes(self) -> tuple[str, ...]:
        """What a run should know about how its passes were made."""
        return tuple(dict.fromkeys((*self.first.notes, *self.second.notes)))

    def predict(
        self,
        latents: Tensor,
        sigmas: Tensor,
        conditioning: Sequence[object],
        guidance: Sequence[float | None] = (),
    ) -> Tensor:
        """See `Denoiser.predict`."""

        def run(expert: AdaptedDenoiser, places: Tensor) -> Tensor:
            some = [conditioning[place] for place in places.tolist()]
            scales = [guidance[place] for place in places.tolist()] if guidance else ()
            return expert.predict(latents[places], sigmas[places], some, scales)

        return self._split(latents, sigmas, run)

    def estimate(
        self, latents: Tensor, sigmas: Tensor, rows: Sequence[Row], check: Callable[[], None]
    ) -> Tensor:
        """See `BatchDenoiser.estimate`."""

        def run(expert: AdaptedDenoiser, places: Tensor) -> Tensor:
            some = [rows[place] for place in places.tolist()]
            return expert.estimate(latents[places], sigmas[places], some, check)

        return self._split(latents, sigmas, run)

    def _split(
        self, latents: Tensor, sigmas: Tensor, run: Callable[[AdaptedDenoiser, Tensor], Tensor]
    ) -> Tensor:
        much = sigmas >= self.boundary  # (rows,)
        found = torch.empty_like(latents)  # (rows, channels, ...)
        for expert, wanted in ((self.first, much), (self.second, ~much)):
            places = wanted.nonzero().flatten()
            if len(places):
                found[places] = run(expert, places)
        return found


def joined(
    experts: Sequence[AdaptedDenoiser], model: ComponentRef
) -> AdaptedDenoiser | ExpertPair | GuidedPair:
    """One model as it is, or two of them as the reference's patches say how they work together."""
    if len(experts) == 1:
        return experts[0]
    if last(model.patches, GuidingModel) is not None:
        return GuidedPair(experts[0], experts[1])
    boundary = last(model.patches, ExpertBoundary) or ExpertBoundary()
    return ExpertPair(experts[0], experts[1], boundary.sigma)
