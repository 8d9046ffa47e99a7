"""The declared inputs of ComfyUI node types: which own a widget, in which order, with what default.

Facts come from `node_table.json` in this package (`scripts/make_comfyui_table.py` writes it) or
from a server's `/object_info`; both have the same form.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final

DYNAMIC_COMBO: Final = "COMFY_DYNAMICCOMBO_V3"
AUTOGROW: Final = "COMFY_AUTOGROW_V3"
SEED_NAMES: Final = frozenset({"seed", "noise_seed"})

_WIDGET_TYPES: Final = frozenset({"INT", "FLOAT", "STRING", "BOOLEAN", "COMBO", DYNAMIC_COMBO})
_MAX_NESTING: Final = 16


class _Nothing:
    """Stands for "no default", since None is a value."""


NOTHING: Final = _Nothing()


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One declared input; `widget` tells whether it owns a place in `widgets_values`."""

    name: str
    type: str
    widget: bool
    required: bool
    default: Any = NOTHING
    control: bool = False
    """An INT that may be followed by fixed/increment/decrement/randomize."""
    upload: str | None = None
    """`picture` or `sound`: upload buttons may follow."""
    dynamic_prompt: bool = False
    hidden: bool = False
    options: Mapping[str, tuple[InputSpec, ...]] = field(default_factory=dict)
    """Key of a dynamic combo -> the inputs that this choice adds (names without the prefix)."""


@dataclass(frozen=True, slots=True)
class ClassSpec:
    """The declared inputs of one node type, in widget order.

    `output_node` says that it is run for its effect (it saves or shows something).
    """

    class_type: str
    inputs: tuple[InputSpec, ...]
    by_name: Mapping[str, InputSpec]
    output_node: bool = False


class NodeTable:
    """Looks node types up by name; entries are parsed when they are first asked for."""

    def __init__(self, entries: Mapping[str, Any]) -> None:
        self._entries = entries
        self._parsed: dict[str, ClassSpec | None] = {}

    def find(self, class_type: str) -> ClassSpec | None:
        """The declaration of a node type; None if it is not known, or its entry makes no sense."""
        if class_type not in self._parsed:
            entry = self._entries.get(class_type)
            self._parsed[class_type] = _class_spec(class_type, entry)
        return self._parsed[class_type]

    def over(self, entries: Mapping[str, Any]) -> NodeTable:
        """This table with `entries` (in the form of `/object_info`) taking precedence."""
        return NodeTable({**self._entries, **entries})


@lru_cache(maxsize=1)
def builtin_entries() -> Mapping[str, Any]:
    """The entries shipped with the package, in the form of `/object_info`.  Do not change them."""
    text = files(__package__).joinpath("node_table.json").read_text("utf-8")
    entries: dict[str, Any] = json.loads(text)
    return entries


def builtin_table() -> NodeTable:
    """A table of the shipped facts."""
    return NodeTable(builtin_entries())


def owns_widget(kind: Any, options: Mapping[str, Any]) -> bool:
    """Whether an input has a widget: its own word if it has one, else the rule of the types.

    A list as `kind` is a combo in the old spelling.  Types in a comma list share a widget only if
    `widgetType` names it; `forceInput` takes the widget away; `socketless` inputs are all widget.
    """
    told = options.get("widget")
    if isinstance(told, bool):
        return told
    if options.get("forceInput"):
        return False
    if options.get("socketless") or options.get("widgetType"):
        return True
    return isinstance(kind, list) or kind in _WIDGET_TYPES


def _class_spec(class_type: str, entry: Any) -> ClassSpec | None:
    declared = entry.get("input") if isinstance(entry, Mapping) else None
    if not isinstance(declared, Mapping):
        return None
    inputs = tuple(_inputs(declared, entry.get("input_order"), 0))
    by_name = {spec.name: spec for spec in inputs}
    return ClassSpec(class_type, inputs, by_name, entry.get("output_node") is True)


def _inputs(declared: Mapping[str, Any], order: Any, depth: int) -> Iterator[InputSpec]:
    for part in ("required", "optional"):
        group = declared.get(part)
        if not isinstance(group, Mapping):
            continue
        names = list(group)
        told = order.get(part) if isinstance(order, Mapping) else None
        if isinstance(told, list):
            first = [name for name in told if isinstance(name, str) and name in group]
            names = list(dict.fromkeys([*first, *names]))
        for name in names:
            spec = _input(str(name), group[name], part == "required", depth)
            if spec is not None:
                yield spec


def _input(name: str, declared: Any, required: bool, depth: int) -> InputSpec | None:
    if not isinstance(declared, list | tuple) or not declared:
        return None
    kind = declared[0]
    options = declared[1] if len(declared) > 1 and isinstance(declared[1], Mapping) else {}
    control = options.get("control_after_generate")
    picture = options.get("image_upload") or options.get("video_upload")
    return InputSpec(
        name=name,
        type="COMBO" if isinstance(kind, list) else str(kind),
        widget=owns_widget(kind, options),
        required=required,
        default=_default(kind, options),
        control=bool(control) or (kind == "INT" and name in SEED_NAMES and control is None),
        upload="picture" if picture else "sound" if options.get("audio_upload") else None,
        dynamic_prompt=bool(options.get("dynamicPrompts")),
        hidden=bool(options.get("hidden")),
        options=_options(options, depth) if kind == DYNAMIC_COMBO else {},
    )


def _default(kind: Any, options: Mapping[str, Any]) -> Any:
    """The declared default; a combo without one starts at its first option."""
    if "default" in options:
        return options["default"]
    choices = kind if isinstance(kind, list) else options.get("options")
    if isinstance(choices, list) and choices:
        first = choices[0]
        return first.get("key", NOTHING) if isinstance(first, Mapping) else first
    return NOTHING


def _options(options: Mapping[str, Any], depth: int) -> dict[str, tuple[InputSpec, ...]]:
    choices = options.get("options")
    if not isinstance(choices, list) or depth > _MAX_NESTING:
        return {}
    found: dict[str, tuple[InputSpec, ...]] = {}
    for choice in choices:
        inputs = choice.get("inputs") if isinstance(choice, Mapping) else None
        if isinstance(inputs, Mapping):
            found[str(choice.get("key"))] = tuple(_inputs(inputs, None, depth + 1))
    return found
