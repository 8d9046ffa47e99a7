"""Which rows of a pass go through a divided network together, and which rank computes which."""

from __future__ import annotations

import importlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import torch
import torch.distributed as dist

from inline_core.devices.split import Split
from inline_core.sampling.family import BatchDenoiser, Row

if TYPE_CHECKING:
    from torch import Tensor

# Prompts are filled up to a multiple of so many tokens by the model itself; 0: their length does
# not matter, as each rank has all of the text.
_MULTIPLES: Final[Mapping[str, int]] = MappingProxyType({"z-image": 32, "wan": 0})


class DividedRows:
    """Implements `BatchDenoiser` around one whose networks are divided.

    Rows of prompts of different lengths never share a pass: divided attention looks at no mask,
    so the filling of the shorter ones would be seen.  With a `cfg` degree each part of the group
    computes a part of the rows, and all of them get all.
    """

    def __init__(self, denoiser: Any, split: Split, family: str) -> None:
        """`family` is the name of the family, which decides how prompts are filled up."""
        self._denoiser: BatchDenoiser = denoiser
        self._split = split
        network = denoiser.shared.denoiser.module if not split.exact else None
        self._expect: Callable[[Sequence[Row]], None] = (
            network.expect if network is not None else lambda _: None
        )
        self._multiple = _MULTIPLES.get(family, 1)
        self._notes: Callable[[], tuple[str, ...]] = lambda: tuple(denoiser.notes)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a run should know about how its passes were made."""
        return self._notes()

    def predict(self, latents: Tensor, sigmas: Tensor, conditioning: Sequence[Any]) -> Tensor:
        """See `Denoiser.predict`."""
        rows = [Row(encoded) for encoded in conditioning]
        return self.estimate(latents, sigmas, rows, lambda: None)

    def estimate(
        self, latents: Tensor, sigmas: Tensor, rows: Sequence[Row], check: Callable[[], None]
    ) -> Tensor:
        """See `BatchDenoiser.estimate`.  Called by all ranks at once, with the same rows."""
        if self._split.cfg == 1 or len(rows) == 1:
            return self._grouped(latents, sigmas, rows, check)
        share = -(-len(rows) // self._split.cfg)
        groups: Any = importlib.import_module("xfuser.core.distributed")
        mine = slice(
            groups.get_data_parallel_rank() * share, (groups.get_data_parallel_rank() + 1) * share
        )
        found = latents.new_zeros((share, *latents.shape[1:]))  # (share, channels, ...)
        if rows[mine]:
            estimates = self._grouped(latents[mine], sigmas[mine], rows[mine], check)
            found[: len(estimates)] = estimates
        parts = [torch.empty_like(found) for _ in range(self._split.cfg)]
        dist.all_gather(parts, found, group=groups.get_dp_group().device_group)
        return torch.cat(parts)[: len(rows)]  # (rows, channels, ...)

    def _grouped(
        self, latents: Tensor, sigmas: Tensor, rows: Sequence[Row], check: Callable[[], None]
    ) -> Tensor:
        groups: defaultdict[int, list[int]] = defaultdict(list)
        for place, row in enumerate(rows):
            groups[self._length(row)].append(place)
        if len(groups) == 1:
            self._expect(rows)
            return self._denoiser.estimate(latents, sigmas, rows, check)
        found = torch.empty_like(latents)  # (rows, channels, ...)
        for places in groups.values():
            some = [rows[place] for place in places]
            self._expect(some)
            found[places] = self._denoiser.estimate(latents[places], sigmas[places], some, check)
        return found

    def _length(self, row: Row) -> int:
        features = getattr(row.conditioning, "features", None)
        if features is None or not self._multiple:
            return 0
        return -(-len(features) // self._multiple)
