"""Texts: joined, searched, cut, changed, and read out of JSON."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Final

from inline_core.errors import InvalidParam, shown_value
from inline_core.graph.ports import PortKind
from inline_core.nodes.base import Param, Port, node

_TEXT: Final = (Port(PortKind.TEXT),)
_TRUTH: Final = (Port(PortKind.BOOLEAN),)
_LONGEST_PATTERN: Final = 2000
_LONGEST_FORMAT: Final = 16
_LONGEST_TEXT: Final = 1_000_000

Long = Annotated[str, Param(widget="textarea")]
Pattern = Annotated[str, Param(label="Regular expression")]
IgnoreCase = Annotated[bool, Param(label="Ignore case")]
Multiline = Annotated[bool, Param(label="^ and $ at each line", advanced=True)]
DotAll = Annotated[bool, Param(label="Dot is any character", advanced=True)]

_CASES: Final[Mapping[str, Callable[[str], str]]] = MappingProxyType(
    {
        "upper": str.upper,
        "lower": str.lower,
        "capitalise": str.capitalize,
        "title": str.title,
    }
)
_CASE_OPTIONS: Final = (
    ("upper", "UPPER CASE"),
    ("lower", "lower case"),
    ("capitalise", "First letter"),
    ("title", "Every Word"),
)
_SIDES: Final = (("both", "Both ends"), ("start", "The beginning"), ("end", "The end"))
_RELATIONS: Final = (
    ("contains", "Contains"),
    ("starts", "Begins with"),
    ("ends", "Ends with"),
    ("equals", "Is the same"),
)
_FOUND: Final = (
    ("first", "First match"),
    ("all", "All matches"),
    ("group", "Group of the first match"),
    ("groups", "Group of all matches"),
)


@node("text/join", title="Join Texts", category="Text", icon="type", outputs=_TEXT)
def join(*, first: Long = "", second: Long = "", between: str = "") -> str:
    """Put two texts one after the other, with something between them.

    Raises: InvalidParam for more than a million characters.
    """
    _check_length(len(first) + len(between) + len(second))
    return f"{first}{between}{second}"


def _check_length(length: int) -> None:
    if length > _LONGEST_TEXT:
        message = f"the text would have {length} characters: at most {_LONGEST_TEXT} are made"
        raise InvalidParam(message)


@node("text/replace", title="Replace in Text", category="Text", icon="type", outputs=_TEXT)
def replace(*, text: Long = "", find: Long = "", by: Long = "") -> str:
    """Replace a part of a text wherever it is.

    Raises: InvalidParam for more than a million characters.
    """
    _check_length(len(text) + text.count(find) * len(by))
    return text.replace(find, by)


@node("text/trim", title="Trim Text", category="Text", icon="type", outputs=_TEXT)
def trim(*, text: Long = "", side: Annotated[str, Param(options=_SIDES)] = "both") -> str:
    """Take spaces and line ends off the ends of a text."""
    if side == "start":
        return text.lstrip()
    return text.rstrip() if side == "end" else text.strip()


@node("text/case", title="Change Case", category="Text", icon="type", outputs=_TEXT)
def case(*, text: Long = "", to: Annotated[str, Param(options=_CASE_OPTIONS)] = "upper") -> str:
    """Write a text in capitals, in small letters, or with some capitals."""
    return _CASES[to](text)


@node("text/part", title="Part of Text", category="Text", icon="scissors", outputs=_TEXT)
def part(
    *,
    text: Long = "",
    start: Annotated[int, Param(label="From character")] = 0,
    end: Annotated[int, Param(label="Up to character")] = 0,
) -> str:
    """Take the characters from number `start` on, up to `end` and without it.

    The first is number 0; negative numbers count from the end.
    """
    return text[start:end]


@node(
    "text/length",
    title="Length of Text",
    category="Text",
    icon="hash",
    outputs=[Port(PortKind.NUMBER, "Length", id="length")],
)
def length(*, text: Long = "") -> int:
    """Count the characters of a text."""
    return len(text)


@node("text/compare", title="Compare Texts", category="Text", icon="type", outputs=_TRUTH)
def compare(
    *,
    text: Long = "",
    other: Long = "",
    relation: Annotated[str, Param(options=_RELATIONS)] = "contains",
    ignore_case: IgnoreCase = False,
) -> bool:
    """Say whether a text contains another, begins or ends with it, or is the same."""
    one, two = (text.lower(), other.lower()) if ignore_case else (text, other)
    if relation == "starts":
        return one.startswith(two)
    if relation == "ends":
        return one.endswith(two)
    return one == two if relation == "equals" else two in one


@node("text/matches", title="Text Matches", category="Text", icon="type", outputs=_TRUTH)
def matches(
    *,
    text: Long = "",
    pattern: Pattern = "",
    ignore_case: IgnoreCase = True,
    multiline: Multiline = False,
    dot_all: DotAll = False,
) -> bool:
    """Say whether a regular expression (Python's) is found in a text.  Raises: InvalidParam."""
    return _compiled(pattern, ignore_case, multiline, dot_all).search(text) is not None


@node("text/extract", title="Extract from Text", category="Text", icon="scissors", outputs=_TEXT)
def extract(
    *,
    text: Long = "",
    pattern: Pattern = "",
    find: Annotated[str, Param(options=_FOUND)] = "first",
    group: Annotated[int, Param(label="Group", min=0, max=100, step=1)] = 1,
    ignore_case: IgnoreCase = True,
    multiline: Multiline = False,
    dot_all: DotAll = False,
) -> str:
    """Take what a regular expression (Python's) finds in a text; nothing found is an empty text.

    Several finds come one a line.  All matches of an expression with groups are their first groups.
    Raises: InvalidParam for what is no expression.
    """
    compiled = _compiled(pattern, ignore_case, multiline, dot_all)
    wanted = group if find in {"group", "groups"} else 0
    if find == "all" and compiled.groups:
        wanted = 1
    if wanted > compiled.groups:
        return ""
    found = (match.group(wanted) or "" for match in compiled.finditer(text))
    if find in {"first", "group"}:
        return next(found, "")
    return "\n".join(found)


@node("text/substitute", title="Substitute in Text", category="Text", icon="type", outputs=_TEXT)
def substitute(
    *,
    text: Long = "",
    pattern: Pattern = "",
    by: Long = "",
    count: Annotated[int, Param(label="At most (0: all)", min=0, max=100, step=1)] = 0,
    ignore_case: IgnoreCase = True,
    multiline: Multiline = False,
    dot_all: DotAll = False,
) -> str:
    r"""Replace what a regular expression (Python's) finds; \1 is its first group.

    Raises: InvalidParam for what is no expression, or no replacement of it, and for more than a
    million characters.
    """
    compiled = _compiled(pattern, ignore_case, multiline, dot_all)
    if len(by) * len(text) > _LONGEST_TEXT:
        found = sum(1 for _ in compiled.finditer(text))
        _check_length(len(text) + found * len(by) + by.count("\\") * len(text))
    try:
        return compiled.sub(by, text, count=count)
    except (re.error, IndexError) as error:
        message = f"{shown_value(by)} cannot replace what {pattern!r} finds: {error}"
        raise InvalidParam(message, param="by") from error


def _compiled(pattern: str, ignore_case: bool, multiline: bool, dot_all: bool) -> re.Pattern[str]:
    if len(pattern) > _LONGEST_PATTERN:
        message = f"the expression has {len(pattern)} characters: at most {_LONGEST_PATTERN}"
        raise InvalidParam(message, param="pattern")
    chosen = ((ignore_case, re.IGNORECASE), (multiline, re.MULTILINE), (dot_all, re.DOTALL))
    flags = re.NOFLAG
    for on, flag in chosen:
        flags |= flag if on else re.NOFLAG
    try:
        return re.compile(pattern, flags)
    except (re.error, OverflowError, RecursionError) as error:
        message = f"{pattern!r} is no regular expression: {error}"
        raise InvalidParam(message, param="pattern") from error


@node("text/from-json", title="Value from JSON", category="Text", icon="type", outputs=_TEXT)
def from_json(*, text: Long = "", key: str = "") -> str:
    """Take the value of a key out of a JSON object; without it, or of no object, an empty text.

    What is neither text nor number is written as Python does it: True, `['a', 'b']`.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    value = found.get(key) if isinstance(found, Mapping) else None
    return "" if value is None else str(value)


@node("text/format", title="Fill in Text", category="Text", icon="type", outputs=_TEXT)
def fill(
    *,
    text: Long = "{a}",
    a: str = "",
    b: str = "",
    c: str = "",
    d: str = "",
    e: str = "",
    f: str = "",
    g: str = "",
    h: str = "",
) -> str:
    """Fill values into a text: `{a}` is where the first one goes, `{{` is a brace.

    `{a:.2f}` and the like format a number as Python does it.  Raises: InvalidParam for other names,
    for formats that the value does not have, and for more than a million characters.
    """
    values = {"a": a, "b": b, "c": c, "d": d, "e": e, "f": f, "g": g, "h": h}
    _check_length(len(text) + text.count("{") * max(len(str(value)) for value in values.values()))
    try:
        return _Filler().vformat(text, (), values)
    except (ValueError, KeyError, IndexError, TypeError, OverflowError) as error:
        message = f"{shown_value(text)} cannot be filled in: {error}"
        raise InvalidParam(message, param="text") from error


class _Filler(string.Formatter):
    """Fills in by plain names only: no attribute and no item of a value is ever read."""

    def get_field(
        self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Any, str]:
        """The value of a name.  Raises: KeyError."""
        del args
        return kwargs[field_name], field_name

    def format_field(self, value: Any, format_spec: str) -> Any:
        """A value as text; a format that is for numbers gets one.  Raises: ValueError."""
        if len(format_spec) > _LONGEST_FORMAT or re.search(r"\d{4}", format_spec):
            message = f"the format {format_spec!r} is too wide"
            raise ValueError(message)
        try:
            return format(value, format_spec)
        except ValueError:
            number = float(value)
            whole = number.is_integer() and "." not in str(value)
            return format(int(number) if whole else number, format_spec)
