"""Schedules that papers and model makers published; each gives falling sigmas that end in 0."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

from inline_core.errors import InvalidParam
from inline_core.sampling.sigmas import curves
from inline_core.sampling.sigmas.tables import SigmaTable, flux_sigma, mu_of_tokens

ModelType = Literal["SD1", "SDXL", "SVD"]

ALIGN_YOUR_STEPS: Final[Mapping[str, tuple[float, ...]]] = MappingProxyType(
    {
        "SD1": (14.615, 6.475, 3.861, 2.697, 1.886, 1.396, 0.963, 0.652, 0.399, 0.152, 0.029),
        "SDXL": (14.615, 6.315, 3.771, 2.181, 1.342, 0.862, 0.555, 0.380, 0.234, 0.113, 0.029),
        "SVD": (700.0, 54.5, 15.886, 7.977, 4.248, 1.789, 0.981, 0.403, 0.173, 0.034, 0.002),
    }
)
"""Ten steps for each model: Sabour et al. 2024, "Align Your Steps", the authors' web page."""

_PIXELS_PER_TOKEN: Final = 256
_LTXV_TOKENS: Final = (1024, 4096)
_TURBO_STEPS: Final = 10


def align_your_steps(model_type: str, steps: int, denoise: float = 1.0) -> tuple[float, ...]:
    """The published ten steps, or as many others as asked by log-linear interpolation.

    `denoise` below 1 runs only the last round(steps * denoise) of them; empty when none is left.
    Raises: InvalidParam for an unknown model type or steps below 1.
    """
    table = ALIGN_YOUR_STEPS.get(model_type)
    if table is None:
        message = f"unknown model type {model_type!r}: use one of {', '.join(ALIGN_YOUR_STEPS)}"
        raise InvalidParam(message, param="model_type")
    _check_steps(steps)
    kept = round(steps * min(max(denoise, 0.0), 1.0))
    if kept == 0:
        return ()
    sigmas = list(table) if steps + 1 == len(table) else _log_linear(table, steps + 1)
    return (*sigmas[-(kept + 1) : -1], 0.0)


def flux2(steps: int, width: int, height: int) -> tuple[float, ...]:
    """FLUX.2's sigmas for a picture of `width` x `height` pixels.

    Raises: InvalidParam for steps below 1.
    """
    _check_steps(steps)
    mu = flux2_mu(steps, width, height)
    return tuple(flux_sigma(mu, time) for time in curves.line(1.0, 0.0, steps + 1))


def flux2_mu(steps: int, width: int, height: int) -> float:
    """Mu of FLUX.2, fitted by Black Forest Labs to tokens and steps (`compute_empirical_mu`)."""
    tokens = round(width * height / _PIXELS_PER_TOKEN)
    at_200_steps = 0.00016927 * tokens + 0.45666666
    if tokens > 4300:  # noqa: PLR2004 - from the published fit, as the other numbers are
        return at_200_steps
    at_10_steps = 8.73809524e-05 * tokens + 1.89833333
    slope = (at_200_steps - at_10_steps) / 190
    return at_200_steps + (steps - 200) * slope


def ltxv(
    steps: int,
    tokens: int | None = None,
    max_shift: float = 2.05,
    base_shift: float = 0.95,
    stretch: bool = True,
    terminal: float = 0.1,
) -> tuple[float, ...]:
    """LTX-Video's sigmas: mu grows from `base_shift` at 1024 tokens to `max_shift` at 4096.

    `tokens` is frames x height x width of the latent, None for 4096.  `stretch` scales the sigmas
    so that the last one before 0 is `terminal`, in 0..1, 1 left out (with one step there is
    nothing to scale).  From the model's published code (`stretch_shift_to_terminal`).
    Raises: InvalidParam for steps below 1 or a `terminal` out of range.
    """
    _check_steps(steps)
    if not 0 <= terminal < 1:
        message = f"terminal is {terminal}: it must be 0 or more and below 1"
        raise InvalidParam(message, param="terminal")
    few, many = _LTXV_TOKENS
    mu = mu_of_tokens(many if tokens is None else tokens, (few, base_shift), (many, max_shift))
    sigmas = [flux_sigma(mu, time) for time in curves.line(1.0, 0.0, steps + 1)][:-1]
    if stretch and steps > 1:
        scale = (1 - sigmas[-1]) / (1 - terminal)
        sigmas = [1 - (1 - sigma) / scale for sigma in sigmas]
    # A terminal of 0 makes the last sigma the final 0.
    return (*(sigma for sigma in sigmas if sigma > 0), 0.0)


def sd_turbo(table: SigmaTable, steps: int = 1, denoise: float = 1.0) -> tuple[float, ...]:
    """SD-Turbo's sigmas: timesteps 999, 899, 799, ...; `denoise` leaves out the first of the ten.

    There are at most ten steps, and int(10 * denoise) at most; empty when none is left.
    Raises: InvalidParam for steps below 1.
    """
    _check_steps(steps)
    first = _TURBO_STEPS - int(_TURBO_STEPS * min(max(denoise, 0.0), 1.0))
    places = [len(table) * (_TURBO_STEPS - i) // _TURBO_STEPS - 1 for i in range(_TURBO_STEPS)]
    sigmas = [table[place] for place in places[first : first + steps]]
    return (*sigmas, 0.0) if sigmas else ()


def karras(
    steps: int, sigma_max: float = 14.614642, sigma_min: float = 0.0291675, rho: float = 7.0
) -> tuple[float, ...]:
    """Karras et al. 2022, equation 5, between two given sigmas.

    Raises: InvalidParam unless steps is 1 or more, sigma_max > sigma_min > 0 and rho > 0.
    """
    _check_ends(steps, sigma_max, sigma_min)
    if not rho > 0:
        message = f"rho is {rho}: it must be above 0"
        raise InvalidParam(message, param="rho")
    return (*curves.karras(steps, sigma_max, sigma_min, rho), 0.0)


def exponential(
    steps: int, sigma_max: float = 14.614642, sigma_min: float = 0.0291675
) -> tuple[float, ...]:
    """Evenly spaced in the logarithm of sigma between two given sigmas.

    Raises: InvalidParam unless steps is 1 or more and sigma_max > sigma_min > 0.
    """
    _check_ends(steps, sigma_max, sigma_min)
    return (*curves.exponential(steps, sigma_max, sigma_min), 0.0)


def _log_linear(sigmas: tuple[float, ...], count: int) -> list[float]:
    """`count` sigmas on the polygon through the logarithms of the given ones."""
    logs = [math.log(sigma) for sigma in sigmas]
    values: list[float] = []
    for place in curves.line(0.0, len(logs) - 1, count):
        low = min(int(place), len(logs) - 2)
        values.append(math.exp(logs[low] + (logs[low + 1] - logs[low]) * (place - low)))
    return values


def _check_steps(steps: int) -> None:
    if steps < 1:
        message = f"steps is {steps}: at least 1 is needed"
        raise InvalidParam(message, param="steps")


def _check_ends(steps: int, sigma_max: float, sigma_min: float) -> None:
    _check_steps(steps)
    if not sigma_max > sigma_min > 0:
        message = f"sigma_max ({sigma_max}) must be above sigma_min ({sigma_min}), and that above 0"
        raise InvalidParam(message, param="sigma_max")
