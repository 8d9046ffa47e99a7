"""What is done with a list of sigmas: cut it, turn it round, read it from a text."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from inline_core.errors import InvalidParam

NEARLY_CLEAN: Final = 0.0001
MOST_VALUES: Final = 10_001

_SHOWN_CHARACTERS: Final = 40


def between(
    sigmas: Sequence[float], start_step: int, end_step: int, leftover_noise: bool
) -> tuple[float, ...]:
    """The sigmas of steps `start_step` up to `end_step`, as one part of a job in several parts.

    Both count from 0 and may lie beyond the end.  Without `leftover_noise` the last sigma becomes
    0: the last step removes all noise.  Empty when no step is left.
    """
    part = tuple(sigmas[max(start_step, 0) : max(end_step, 0) + 1])
    if len(part) <= 1:
        return ()
    return part if leftover_noise else (*part[:-1], 0.0)


def split(sigmas: Sequence[float], step: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The first `step` steps and the rest; the sigma between belongs to both."""
    step = max(step, 0)
    return tuple(sigmas[: step + 1]), tuple(sigmas[step:])


def split_denoise(
    sigmas: Sequence[float], denoise: float
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The steps before, and the last part of them that makes up `denoise` (0..1) of all steps."""
    steps = max(len(sigmas) - 1, 0)
    low_steps = round(steps * min(max(denoise, 0.0), 1.0))
    return split(sigmas, steps - low_steps)


def flip(sigmas: Sequence[float]) -> tuple[float, ...]:
    """The sigmas in rising order, for turning a picture into noise; a leading 0 becomes 0.0001."""
    turned = tuple(sigmas[::-1])
    if turned and turned[0] == 0:
        return (NEARLY_CLEAN, *turned[1:])
    return turned


def set_first(sigmas: Sequence[float], sigma: float) -> tuple[float, ...]:
    """The sigmas with another first one; an empty list stays empty."""
    return (sigma, *sigmas[1:]) if sigmas else ()


def manual(text: str, *, param: str = "sigmas") -> tuple[float, ...]:
    """Falling sigmas from a text: 2 to 10,001 numbers with commas, spaces or new lines between.

    Raises: InvalidParam that names the first word that is no number of 0 or more, or the place
    where the numbers do not fall.
    """
    words = [word for word in re.split(r"[\s,]+", text) if word]
    if not 2 <= len(words) <= MOST_VALUES:  # noqa: PLR2004 - one step lies between two sigmas
        message = f"sigmas has {len(words)} numbers: 2 to {MOST_VALUES} falling ones are needed"
        raise InvalidParam(message, param=param)
    values = tuple(_number(word, place, param) for place, word in enumerate(words, start=1))
    for place, (left, right) in enumerate(pairwise(values), start=1):
        if not left > right:
            message = (
                f"sigmas must fall: number {place + 1} ({words[place]}) is not below "
                f"number {place} ({words[place - 1]})"
            )
            raise InvalidParam(message, param=param)
    return values


def _number(word: str, place: int, param: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        shown = word[:_SHOWN_CHARACTERS]
        message = f"sigmas, number {place}: {shown!r} is not a number of 0 or more"
        raise InvalidParam(message, param=param)
    return value
