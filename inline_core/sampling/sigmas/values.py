"""Sigmas as a value between nodes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from inline_core.errors import InvalidParam

_FLOAT_BYTES = 32


@dataclass(frozen=True, slots=True)
class Sigmas:
    """The noise levels one sampling walks through: n steps need n + 1 values, none an empty list.

    They fall, except after a flip.  Raises: InvalidParam for one that is negative or not finite.
    """

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        for place, value in enumerate(self.values, start=1):
            if not 0 <= value < math.inf:
                message = f"sigma number {place} is {value}: it must be 0 or more"
                raise InvalidParam(message, param="sigmas")

    @property
    def steps(self) -> int:
        """How many steps they make."""
        return max(len(self.values) - 1, 0)

    @property
    def size_bytes(self) -> int:
        """What they keep in memory, roughly."""
        return len(self.values) * _FLOAT_BYTES
