"""Texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from inline_core.importers.comfyui.mapping.step import Entry, Outputs, Step, Unsupported, chosen
from inline_core.importers.comfyui.mapping.values import Constant, Several, Value
from inline_core.nodes.patterns import is_cheap

_NAMES: Final = "abcdefgh"


def _text(step: Step, name: str) -> Value:
    """An input as a text; numbers are written out."""
    found = step.value(name)
    if found is None:
        return Constant("")
    if isinstance(found, Several):
        message = f"its {name!r} is no text"
        raise Unsupported(message)
    if isinstance(found, Constant) and not isinstance(found.value, str):
        return Constant("" if found.value is None else str(found.value))
    return found


class _Texts:
    """A node of ours with texts from theirs by name, other inputs, and words for options."""

    def __init__(
        self,
        node_type: str,
        texts: Mapping[str, str],
        output: str = "text",
        others: Mapping[str, str] | None = None,
        **fixed: Any,
    ) -> None:
        self._type = node_type
        self._texts = texts
        self._output = output
        self._others = others or {}
        self._fixed = fixed

    def __call__(self, step: Step) -> Outputs:
        """Add our node.  Raises: Unsupported, UsesBroken."""
        inputs: dict[str, Any] = dict(self._fixed)
        inputs |= {ours: _text(step, theirs) for theirs, ours in self._texts.items()}
        inputs |= {ours: step.value(theirs) for theirs, ours in self._others.items()}
        return [step.add(self._type, inputs).out(self._output)]


_CASES: Final = {
    "UPPERCASE": "upper",
    "lowercase": "lower",
    "Capitalize": "capitalise",
    "Title Case": "title",
}
_SIDES: Final = {"Both": "both", "Left": "start", "Right": "end"}
_RELATIONS: Final = {"Starts With": "starts", "Ends With": "ends", "Equal": "equals"}
_FOUND: Final = {
    "First Match": "first",
    "All Matches": "all",
    "First Group": "group",
    "All Groups": "groups",
}
_FLAGS: Final = {
    "case_insensitive": "ignore_case",
    "multiline": "multiline",
    "dotall": "dot_all",
}


def _case(step: Step) -> Outputs:
    to = chosen(step, "mode", _CASES)
    return [step.add("text/case", {"text": _text(step, "string"), "to": to}).out("text")]


def _trim(step: Step) -> Outputs:
    side = chosen(step, "mode", _SIDES)
    return [step.add("text/trim", {"text": _text(step, "string"), "side": side}).out("text")]


def _compared(step: Step, texts: tuple[str, str], relation: str) -> Outputs:
    sensitive = step.constant("case_sensitive", usual=True)
    inputs = {
        "text": _text(step, texts[0]),
        "other": _text(step, texts[1]),
        "relation": relation,
        "ignore_case": not sensitive,
    }
    return [step.add("text/compare", inputs).out("boolean")]


def _contains(step: Step) -> Outputs:
    return _compared(step, ("string", "substring"), "contains")


def _compare(step: Step) -> Outputs:
    return _compared(step, ("string_a", "string_b"), chosen(step, "mode", _RELATIONS))


def _searched(step: Step, node_type: str, more: Mapping[str, Any], output: str) -> Outputs:
    """A node with a regular expression: computed now only if that is sure to be quick."""
    text, pattern = _text(step, "string"), _text(step, "regex_pattern")
    flags = {ours: step.value(theirs) for theirs, ours in _FLAGS.items() if step.has(theirs)}
    inputs = {"text": text, "pattern": pattern, **flags, **more}
    quick = (
        isinstance(text, Constant)
        and isinstance(pattern, Constant)
        and is_cheap(pattern.value, len(text.value))
    )
    return [step.add(node_type, inputs, fold=quick).out(output)]


def _match(step: Step) -> Outputs:
    return _searched(step, "text/matches", {}, "boolean")


def _extract(step: Step) -> Outputs:
    more = {"find": chosen(step, "mode", _FOUND), "group": step.value("group_index")}
    return _searched(step, "text/extract", more, "text")


def _substitute(step: Step) -> Outputs:
    more = {"by": _text(step, "replace"), "count": step.value("count")}
    return _searched(step, "text/substitute", more, "text")


def _format(step: Step) -> Outputs:
    """Values filled into a text, by the names that both have."""
    given = step.grown("values")
    unknown = [name for name, _ in given if name not in _NAMES]
    if unknown:
        message = f"it fills in {len(given)} values, and {len(_NAMES)} are the most here"
        raise Unsupported(message)
    values = {name: _text(step, f"values.{name}") for name, _ in given}
    return [step.add("text/format", {"text": _text(step, "f_string"), **values}).out("text")]


ENTRIES: Final[Mapping[str, Entry]] = {
    "StringConcatenate": _Texts(
        "text/join", {"string_a": "first", "string_b": "second", "delimiter": "between"}
    ),
    "StringReplace": _Texts("text/replace", {"string": "text", "find": "find", "replace": "by"}),
    "StringSubstring": _Texts(
        "text/part", {"string": "text"}, others={"start": "start", "end": "end"}
    ),
    "StringLength": _Texts("text/length", {"string": "text"}, "length"),
    "StringTrim": _trim,
    "CaseConverter": _case,
    "StringContains": _contains,
    "StringCompare": _compare,
    "RegexMatch": _match,
    "RegexExtract": _extract,
    "RegexReplace": _substitute,
    "StringFormat": _format,
    "JsonExtractString": _Texts("text/from-json", {"json_string": "text", "key": "key"}),
}
