"""The schedulers users choose by name: from a step count to falling sigmas of a model's table.

Names, order and values are ComfyUI's.  Each function gives the sigmas without the final 0, which
`sigmas_for` appends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from inline_core.errors import InvalidParam
from inline_core.sampling.sigmas import curves
from inline_core.sampling.sigmas.tables import SigmaTable

FULL_DENOISE: Final = 0.9999
LONGEST: Final = 100_000
"""The most steps that are laid out; a denoise near 0 asks for very many."""

_THRESHOLD: Final = 0.025

Schedule = Callable[[int, SigmaTable], list[float]]


def simple(steps: int, table: SigmaTable) -> list[float]:
    """Every n-th sigma of the table, from the top."""
    return [table[-(1 + int(i * len(table) / steps))] for i in range(steps)]


def sgm_uniform(steps: int, table: SigmaTable) -> list[float]:
    """As `normal` with one point more, the last one left out."""
    return _at_even_timesteps(steps + 1, table)[:-1]


def karras(steps: int, table: SigmaTable) -> list[float]:
    """Karras et al. 2022, equation 5, with rho 7, between the ends of the table."""
    return curves.karras(steps, table.largest, table.smallest)


def exponential(steps: int, table: SigmaTable) -> list[float]:
    """Evenly spaced in the logarithm of sigma, between the ends of the table."""
    return curves.exponential(steps, table.largest, table.smallest)


def ddim_uniform(steps: int, table: SigmaTable) -> list[float]:
    """Every n-th sigma from the bottom; it may give more than `steps` and starts below the top."""
    stride = max(len(table) // steps, 1)
    return [table[index] for index in range(1, len(table), stride)][::-1]


def beta(steps: int, table: SigmaTable, alpha: float = 0.6, beta: float = 0.6) -> list[float]:
    """Quantiles of Beta(alpha, beta) as places in the table, without repeats: maybe fewer steps.

    Lee et al. 2024, "Beta Sampling is All You Need"; `alpha` and `beta` are above 0.
    Raises: InvalidParam for one that is not.
    """
    for name, value in (("alpha", alpha), ("beta", beta)):
        if not value > 0:
            message = f"{name} is {value}: it must be above 0"
            raise InvalidParam(message, param=name)
    size = len(table)
    places = [curves.beta_place(1 - i / steps, alpha, beta, size) for i in range(steps)]
    return [table[place] for place in dict.fromkeys(places)]


def normal(steps: int, table: SigmaTable) -> list[float]:
    """Evenly spaced timesteps between the largest and the smallest sigma, both ends included."""
    return _at_even_timesteps(steps, table)


def linear_quadratic(steps: int, table: SigmaTable) -> list[float]:
    """First half linear down to 1 - 0.025, second half quadratic (from the Mochi paper's code)."""
    if steps == 1:
        return [table.largest]
    half = steps // 2
    rest = steps - half
    slope = _THRESHOLD / half
    difference = half - _THRESHOLD * steps
    a = difference / (half * rest**2)
    b = slope - 2 * difference / rest**2
    c = a * half**2
    noise = [i * slope for i in range(half)] + [a * i * i + b * i + c for i in range(half, steps)]
    return [(1 - value) * table.largest for value in noise]


def kl_optimal(steps: int, table: SigmaTable) -> list[float]:
    """Tangents of evenly spaced arc tangents (Sabour et al. 2024, "Align Your Steps", eq. 16).

    One step starts at the largest sigma, where the formula has no value.
    """
    ends = math.atan(table.largest), math.atan(table.smallest)
    return [math.tan(value) for value in curves.line(*ends, steps)]


SCHEDULES: Final[Mapping[str, Schedule]] = MappingProxyType(
    {
        "simple": simple,
        "sgm_uniform": sgm_uniform,
        "karras": karras,
        "exponential": exponential,
        "ddim_uniform": ddim_uniform,
        "beta": beta,
        "normal": normal,
        "linear_quadratic": linear_quadratic,
        "kl_optimal": kl_optimal,
    }
)

SCHEDULE_LABELS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "simple": "Simple",
        "sgm_uniform": "SGM uniform",
        "karras": "Karras",
        "exponential": "Exponential",
        "ddim_uniform": "DDIM uniform",
        "beta": "Beta",
        "normal": "Normal",
        "linear_quadratic": "Linear quadratic",
        "kl_optimal": "KL optimal",
    }
)


def steps_laid_out(steps: int, denoise: float) -> int:
    """Steps of the whole schedule of which `denoise` runs the last `steps`; at least 1."""
    if not denoise > 0 or denoise > FULL_DENOISE:
        return max(steps, 1)
    return max(int(min(steps / denoise, LONGEST)), 1)


def sigmas_for(
    scheduler: str,
    steps: int,
    table: SigmaTable,
    denoise: float = 1.0,
    *,
    drops_penultimate: bool = False,
) -> tuple[float, ...]:
    """The sigmas of one job, strictly falling, ending in 0; empty when `denoise` is 0 or less.

    `denoise` below 1 takes the last part of a longer schedule: int(steps / denoise) steps are laid
    out, and the last `steps` of them are run.  `drops_penultimate` lays out one step more and
    leaves out the last sigma before 0, as dpm_2, dpm_2_ancestral, uni_pc and uni_pc_bh2 want it.
    There are `steps` steps as a rule; ddim_uniform may give more; beta, and any schedule with more
    steps than the table has sigmas, fewer: a repeated sigma is a step of no length and left out.
    Raises: InvalidParam for an unknown name (it lists the valid ones), steps below 1, or more than
    100,000 steps to lay out.
    """
    schedule = SCHEDULES.get(scheduler)
    if schedule is None:
        message = f"unknown scheduler {scheduler!r}: use one of {', '.join(SCHEDULES)}"
        raise InvalidParam(message, param="scheduler")
    if steps < 1:
        message = f"steps is {steps}: at least 1 is needed"
        raise InvalidParam(message, param="steps")
    if not denoise > 0:
        return ()
    full = denoise > FULL_DENOISE
    if not full and steps / denoise > LONGEST:
        message = f"denoise is {denoise}: too small for {steps} steps"
        raise InvalidParam(message, param="denoise")
    count = (steps if full else int(steps / denoise)) + drops_penultimate
    sigmas = schedule(count, table)
    if drops_penultimate:
        sigmas = sigmas[:-1]
    if not full:
        sigmas = sigmas[-steps:]
    return (*dict.fromkeys(sigmas), 0.0)


def _at_even_timesteps(steps: int, table: SigmaTable) -> list[float]:
    first, last = table.timestep(table.largest), table.timestep(table.smallest)
    return [table.sigma(timestep) for timestep in curves.line(first, last, steps)]
