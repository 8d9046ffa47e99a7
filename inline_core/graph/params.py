"""Param values: converted where nothing is lost, refused with a reason where it would be."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

from inline_core.errors import shown_value
from inline_core.graph.spec import ParamSpec

MAX_SEED = 2**64 - 1
_TRUE = frozenset({"true", "1"})
_FALSE = frozenset({"false", "0"})
_SHOWN_OPTIONS = 8

OptionSource = Callable[[str], Sequence[str]]
"""Gives the names a category of the models folder offers at this moment."""


class ParamRefused(ValueError):
    """The value of a param is refused; the text completes "Param 'x' ..."."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


def convert(spec: ParamSpec, value: object, options: OptionSource) -> Any:
    """The value as the node takes it.  None means "not set" and gives the default.

    Raises: ParamRefused.
    """
    if value is None:
        return spec.default
    if spec.widget == "number":
        return _number(spec, value)
    if spec.widget == "seed":
        return _seed(value)
    if spec.widget == "boolean":
        return _boolean(value)
    if spec.widget == "select":
        return _choice(spec, value, options)
    if spec.widget in {"text", "textarea"}:
        return _text(value)
    return value


def wired_value(spec: ParamSpec, value: object) -> Any:
    """A value that was wired into a param, as the node takes it.

    A boolean is 0 or 1 where a number is wanted, and a number a boolean (0: false).  Which files
    there are is for the node to say.
    Raises: ParamRefused.
    """
    if spec.widget == "boolean" and isinstance(value, int | float):
        return bool(value)
    if spec.widget in {"number", "seed"} and isinstance(value, bool):
        value = int(value)
    if spec.widget in {"text", "textarea"} and isinstance(value, bool):
        return str(value)
    if spec.options_from is not None and isinstance(value, str):
        return value
    converted = convert(spec, value, lambda _: ())
    if spec.widget == "seed" and converted < 0:
        raise _type_error("0 or more where it is wired", value)
    return converted


def _type_error(wanted: str, value: object) -> ParamRefused:
    return ParamRefused("param_wrong_type", f"must be {wanted}, got {shown_value(value)}")


def _as_number(value: object) -> int | float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return value
    if isinstance(value, str):
        text = value.strip()
        try:
            return int(text)
        except ValueError:
            pass
        try:
            return float(text)
        except ValueError:
            return None
    return None


def _number(spec: ParamSpec, value: object) -> int | float:
    wanted = "a whole number" if spec.integer else "a number"
    number = _as_number(value)
    if number is None or (isinstance(number, float) and not math.isfinite(number)):
        raise _type_error(wanted, value)
    if spec.integer:
        if number != int(number):
            raise _type_error(wanted, value)
        number = int(number)
    if spec.min is not None and number < spec.min:
        raise ParamRefused("param_out_of_range", f"must be at least {spec.min:g}, got {number:g}")
    if spec.max is not None and number > spec.max:
        raise ParamRefused("param_out_of_range", f"must be at most {spec.max:g}, got {number:g}")
    return number


def _seed(value: object) -> int:
    number = _as_number(value)
    if number is None or not math.isfinite(number) or number != int(number):
        raise _type_error("a whole number (negative: random)", value)
    if number > MAX_SEED:
        raise ParamRefused("param_out_of_range", f"must be at most {MAX_SEED}, got {number}")
    return int(number)


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower() if isinstance(value, int | str) else ""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise _type_error("true or false", value)


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise _type_error("text", value)


def _choice(spec: ParamSpec, value: object, options: OptionSource) -> str:
    if not isinstance(value, str):
        raise _type_error("text", value)
    if spec.options_from is not None:
        return _file_choice(spec, value, options)
    names = [option.value for option in spec.options]
    # A default that is no option means that nothing was chosen.
    if names and value not in {*names, spec.default}:
        raise ParamRefused(
            "param_not_an_option", f"must be one of {', '.join(names)}; got {value!r}"
        )
    return value


def _plain(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def _file_choice(spec: ParamSpec, value: str, options: OptionSource) -> str:
    """A file of a models category; the empty name lets the server pick."""
    category = spec.options_from or ""
    if value in {"", spec.default}:
        return value
    names = options(category)
    if value in names or _plain(value) in {_plain(name) for name in names}:
        # Which of two files that differ only in case is meant is for the models folder to say.
        return value
    if names:
        shown = ", ".join(names[:_SHOWN_OPTIONS]) + (" ..." if len(names) > _SHOWN_OPTIONS else "")
        have = f"there: {shown}"
    else:
        have = f"models/{category}/ has no files yet"
    raise ParamRefused(
        "param_not_an_option", f"names no file in models/{category}/: {value!r} ({have})"
    )
