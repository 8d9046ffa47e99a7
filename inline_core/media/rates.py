"""Frame rates as exact fractions, since files store them so and 23.976 is none."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

from inline_core.errors import InvalidParam

MAX_FPS: Final = 1000.0
_NTSC_BASES: Final = (24, 30, 48, 60, 72, 90, 96, 120, 144, 240)
_NTSC_TOLERANCE: Final = 1e-5
_MAX_DENOMINATOR: Final = 100_000


def frame_rate(fps: float) -> Fraction:
    """The exact rate that `fps` (frames per second) stands for.

    23.976, 29.97 and the other rates of NTSC, written with three digits or more, are
    24000/1001 and so on (SMPTE ST 12-1); any other number is the nearest plain fraction.
    Raises: InvalidParam unless it is above 0 and at most 1000.
    """
    if not (math.isfinite(fps) and 0 < fps <= MAX_FPS):
        message = f"A video of {fps} frames per second cannot be made; it must be in 0..{MAX_FPS}."
        raise InvalidParam(message, param="fps")
    for base in _NTSC_BASES:
        exact = Fraction(base * 1000, 1001)
        if abs(fps - exact) <= exact * _NTSC_TOLERANCE:
            return exact
    return plain_rate(fps)


def plain_rate(fps: float) -> Fraction:
    """The fraction that `fps` was before it became a float (denominators up to 100,000)."""
    found = Fraction(fps).limit_denominator(_MAX_DENOMINATOR)
    return max(found, Fraction(1, _MAX_DENOMINATOR))
