"""What a solver is: a generator that asks for estimates and returns the final latents."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from inline_core.errors import InvalidParam

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Query:
    """A wish for the estimate at `latents` and `sigma`; `step` counts from 0."""

    latents: Tensor
    sigma: float
    step: int


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """The answer to a query: the guided estimate of the clean latents, and the unguided one.

    `unguided` is the negative prompt's own estimate; `denoised` itself where there is no guidance.
    """

    denoised: Tensor
    unguided: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Trajectory:
    """What a solver starts from.

    `latents` (pictures, channels, ...) are at the first of the `sigmas`, each of which is below the
    one before; the last may be 0 or above.  `noise` draws fresh standard normal noise of the same
    shape.  With `flow` the process is x = (1 - sigma) x0 + sigma n, without it x = x0 + sigma n.
    """

    latents: Tensor
    sigmas: Sequence[float]
    noise: Callable[[], Tensor]
    flow: bool


Steps = Generator[Query, Estimate, "Tensor"]


def checked(option: str, value: str, known: Collection[str]) -> str:
    """Give back a text option's value.  Raises: InvalidParam if it is none of the known."""
    if value not in known:
        message = f"unknown {option} {value!r}: use one of {', '.join(known)}"
        raise InvalidParam(message, param=option)
    return value
