"""Options of a solver, written as text: `eta=0.5, s_noise=1.0`."""

from __future__ import annotations

import math

from inline_core.errors import InvalidParam
from inline_core.sampling.solvers import solver_named

Option = float | int | str | bool
_TRUE = {"true": True, "false": False}


def options_from(sampler: str, text: str) -> dict[str, Option]:
    """The options in `text`, each of the type of its default.

    Raises: InvalidParam naming the part that is wrong, and the options there are.
    """
    known = solver_named(sampler).options
    found: dict[str, Option] = {}
    for part in (piece.strip() for piece in text.replace(";", ",").split(",")):
        if not part:
            continue
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or name not in known:
            there = ", ".join(f"{key}={default}" for key, default in known.items()) or "none"
            message = f"{part!r} is no option of {sampler}: it has {there}"
            raise InvalidParam(message, param="solver_options")
        found[name] = _typed(name, value, known[name])
    solver_named(sampler).check(found)
    return found


def _typed(name: str, value: str, default: Option) -> Option:
    """`value` in the type of the default."""
    try:
        if isinstance(default, bool):
            return _TRUE[value.lower()]
        if isinstance(default, int):
            return int(value)
        if isinstance(default, float):
            return _finite(value)
    except (ValueError, KeyError) as error:
        message = f"{name} is {value!r}: it must be written like {default}"
        raise InvalidParam(message, param="solver_options") from error
    return value


def _finite(value: str) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(value)
    return number
