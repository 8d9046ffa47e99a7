"""The values of `widgets_values` under the names of their inputs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final

from inline_core.errors import shown_value
from inline_core.importers.comfyui.document import UiNode
from inline_core.importers.comfyui.node_table import (
    DYNAMIC_COMBO,
    NOTHING,
    SEED_NAMES,
    ClassSpec,
    InputSpec,
)
from inline_core.importers.comfyui.report import Reason

CONTROL_WORDS: Final = frozenset({"fixed", "increment", "decrement", "randomize"})
UI_TAILS: Final = frozenset({"PreviewAny", "SaveGLB", "CustomCombo", "RecordAudio", "ImageCompare"})
"""Node types that save values of the page behind those of their inputs."""

_LISTED: Final = "CustomCombo"
"""A node type whose options stand behind its choice: which one it is decides its second output."""

_PLACE: Final = "index"
_OPTION: Final = "option"

_BUTTONS: Final = frozenset({"image", "video"})
_ZERO_OF_TYPE: Final[Mapping[str, Any]] = {"INT": 0, "FLOAT": 0.0, "STRING": "", "BOOLEAN": False}


@dataclass(slots=True)
class NamedValues:
    """Input name -> value, and what was dropped, filled in or guessed on the way.

    `specs` has the declaration behind each name that has one, dotted names included.  `notes` are
    (is it a warning, reason, message, input name).
    """

    values: dict[str, Any] = field(default_factory=dict)
    specs: dict[str, InputSpec] = field(default_factory=dict)
    notes: list[tuple[bool, Reason, str, str | None]] = field(default_factory=list)

    def note(self, reason: Reason, message: str, name: str | None = None) -> None:
        """Add a line that has no consequence."""
        self.notes.append((False, reason, message, name))

    def warn(self, reason: Reason, message: str, name: str | None = None) -> None:
        """Add a line that may have a consequence."""
        self.notes.append((True, reason, message, name))


def named_values(node: UiNode, spec: ClassSpec | None) -> NamedValues:
    """The widget values of a node by input name, in order.

    Names come from `widgets_values_named` where the file has it, else from the declaration, else
    from the inputs that name their widget.  Linked inputs keep their place in the list.
    """
    found = NamedValues()
    if isinstance(node.values, dict):
        found.values.update(node.values)
        _add_specs(found, spec)
    elif node.named is not None:
        _from_names(node.named, node.values, spec, found)
        _fill_missing(found, spec)
    elif spec is None:
        _from_slots(node, node.values, found)
    else:
        _from_order(node.values, spec, found)
    return found


def _is_of_list(spec: ClassSpec, name: str) -> bool:
    """Whether a value is the place of a choice among options, or one of them."""
    number = name.removeprefix(_OPTION)
    return spec.class_type == _LISTED and (name == _PLACE or number.isdecimal())


def _add_specs(found: NamedValues, spec: ClassSpec | None) -> None:
    for name in found.values:
        declared = spec.by_name.get(name) if spec is not None else None
        if declared is not None:
            found.specs[name] = declared


def _from_names(
    named: Mapping[str, Any], values: Sequence[Any], spec: ClassSpec | None, found: NamedValues
) -> None:
    """Names of one, values of the other: where they differ, the list has the newer value."""
    pairs = list(named.items())
    if len(values) == len(pairs):
        pairs = [(name, value) for (name, _), value in zip(pairs, values, strict=True)]
    elif values:
        message = f"{len(values)} widget values for {len(pairs)} names: the named ones are taken"
        found.warn(Reason.VALUE_COUNT, message)
    known = dict(_expanded(spec, named, dict(pairs))) if spec is not None else None
    for name, value in pairs:
        control = value in CONTROL_WORDS if isinstance(value, str) else False
        if known is not None and name in known:
            found.specs[name] = known[name]
            found.values[name] = value
        elif spec is not None and _is_of_list(spec, name):
            found.values[name] = value
        elif known is not None or (control and (name in CONTROL_WORDS or "control" in name)):
            _interface_value(found, name, value)
        else:
            found.values[name] = value


def _expanded(
    spec: ClassSpec, named: Mapping[str, Any], values: Mapping[str, Any]
) -> Iterator[tuple[str, InputSpec]]:
    """Names of all widgets, those of the chosen options of dynamic combos too."""
    waiting = [(entry.name, entry) for entry in reversed(spec.inputs)]
    while waiting:
        name, entry = waiting.pop()
        if not entry.widget and name not in named:
            continue
        yield name, entry
        children = entry.options.get(str(values.get(name)), ())
        waiting.extend((f"{name}.{child.name}", child) for child in reversed(children))


def _from_slots(node: UiNode, values: Sequence[Any], found: NamedValues) -> None:
    """Values of an unknown node type, by the inputs that name their widget, if all do."""
    names = [slot.widget for slot in node.inputs if slot.widget is not None]
    kept: list[Any] = []
    seed_before = False
    for value in values:
        if seed_before and isinstance(value, str) and value in CONTROL_WORDS:
            _interface_value(found, "control after generate", value)
        else:
            kept.append(value)
        seed_before = isinstance(value, int) and len(kept) <= len(names)
        seed_before = seed_before and names[len(kept) - 1] in SEED_NAMES
    if len(kept) == len(names):
        found.values.update(zip(names, kept, strict=True))
    elif kept:
        message = (
            f"the node type is not known and its {len(kept)} widget values have no names: "
            f"they are left out ({shown_value(kept)})"
        )
        found.warn(Reason.UNNAMED_VALUES, message)


def _interface_value(found: NamedValues, name: str, value: Any) -> None:
    message = f"the value {shown_value(value)} of {name!r} belongs to the page and is not sent"
    found.note(Reason.INTERFACE_VALUE, message)


def _from_order(values: Sequence[Any], spec: ClassSpec, found: NamedValues) -> None:
    walk = _Walk(values, spec)
    walk.run(by_type=False)
    tail = spec.class_type in UI_TAILS or all(value is None for value in walk.rest)
    if walk.misfits and (walk.short or not tail):
        other = _Walk(values, spec)
        other.run(by_type=True)
        if other.misfits < walk.misfits:
            walk = other
            message = (
                "the widget values do not fit the inputs of this node type one by one; "
                "they were matched by type"
            )
            walk.found.warn(Reason.VALUE_COUNT, message)
    found.values.update(walk.found.values)
    found.specs.update(walk.found.specs)
    found.notes.extend(walk.found.notes)
    if walk.rest and spec.class_type == _LISTED:
        names = [_PLACE, *(f"{_OPTION}{number}" for number in range(1, len(walk.rest)))]
        found.values.update(zip(names, walk.rest, strict=True))
    elif walk.rest and tail:
        for value in walk.rest:
            _interface_value(found, "a widget of the page", value)
    elif walk.rest:
        message = f"{len(walk.rest)} widget values are left over: {shown_value(list(walk.rest))}"
        found.warn(Reason.VALUE_COUNT, message)


class _Walk:
    """One pass over the declared inputs, taking a value for each widget."""

    def __init__(self, values: Sequence[Any], spec: ClassSpec) -> None:
        self.values = values
        self.place = 0
        self.found = NamedValues()
        self.misfits = 0
        self.short = False
        self._waiting = [(entry.name, entry) for entry in reversed(spec.inputs)]

    @property
    def rest(self) -> Sequence[Any]:
        """The values that no input took."""
        return self.values[self.place :]

    def run(self, *, by_type: bool) -> None:
        """Name the values; with `by_type`, values and inputs that do not fit are passed over."""
        while self._waiting:
            name, spec = self._waiting.pop()
            if not spec.widget:
                continue
            if by_type:
                self._pass_unfit(spec)
            missing = self.place >= len(self.values)
            if missing or (by_type and not _fits(spec, self.values[self.place])):
                self.short = True
                _fill(self.found, name, spec)
            else:
                value = self.values[self.place]
                self.place += 1
                self.misfits += not _fits(spec, value)
                self.found.values[name] = value
                self.found.specs[name] = spec
                self._skip_extras(name, spec)
            children = spec.options.get(str(self.found.values.get(name)), ())
            self._waiting.extend((f"{name}.{child.name}", child) for child in reversed(children))
        self.misfits += len(self.rest)

    def _pass_unfit(self, spec: InputSpec) -> None:
        """Pass over a value that fits neither this input nor the next one: an unnamed button."""
        following = next((entry for _, entry in reversed(self._waiting) if entry.widget), None)
        while self.place < len(self.values):
            value = self.values[self.place]
            if _fits(spec, value) or (following is not None and _fits(following, value)):
                return
            self.place += 1
            self.misfits += 1
            message = f"the value {shown_value(value)} fits no input of this node type"
            self.found.warn(Reason.VALUE_COUNT, message)

    def _skip_extras(self, name: str, spec: InputSpec) -> None:
        """Pass over what the page saves behind some widgets."""
        following = self.values[self.place] if self.place < len(self.values) else NOTHING
        if spec.control and isinstance(following, str) and following in CONTROL_WORDS:
            self._skip(f"control after generate of {name}")
        elif spec.upload == "picture" and isinstance(following, str) and following in _BUTTONS:
            self._skip(f"upload button of {name}")
        elif spec.upload == "sound":
            for _ in range(2):
                if self.place < len(self.values) and self.values[self.place] is None:
                    self._skip(f"player and upload button of {name}")

    def _skip(self, what: str) -> None:
        _interface_value(self.found, what, self.values[self.place])
        self.place += 1


def _fits(spec: InputSpec, value: Any) -> bool:
    """Whether a value can stand for an input of this type."""
    if spec.options:
        return str(value) in spec.options
    if value is None:
        return spec.type not in _ZERO_OF_TYPE
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if spec.type == "INT":
        return number and float(value).is_integer() if _is_small(value) else number
    if spec.type == "FLOAT" or set(spec.type.split(",")) <= {"INT", "FLOAT"}:
        return number
    if spec.type == "BOOLEAN":
        return isinstance(value, bool)
    if spec.type in {"STRING", "COLOR"}:
        return isinstance(value, str)
    if spec.type == "COMBO":
        return isinstance(value, str | int | float)
    return True


def _is_small(value: Any) -> bool:
    """Whether a number has a float; integers of JSON can be of any length."""
    return not isinstance(value, int) or value.bit_length() < sys.float_info.max_exp


def _fill(found: NamedValues, name: str, spec: InputSpec) -> None:
    """Give an input that the file does not know yet its declared default."""
    if spec.hidden:
        return
    default = spec.default
    if default is NOTHING:
        default = _ZERO_OF_TYPE.get(spec.type, NOTHING)
    if default is NOTHING:
        if spec.required and spec.type in {"COMBO", DYNAMIC_COMBO}:
            message = "the file has no value for this input, and it has no default"
            found.warn(Reason.DEFAULT_VALUE, message, name)
        return
    found.values[name] = deepcopy(default)
    found.specs[name] = spec
    message = f"the file has no value for this input: its default {shown_value(default)} is taken"
    found.warn(Reason.DEFAULT_VALUE, message, name)


def _fill_missing(found: NamedValues, spec: ClassSpec | None) -> None:
    if spec is None:
        return
    waiting = [(entry.name, entry) for entry in reversed(spec.inputs)]
    while waiting:
        name, entry = waiting.pop()
        if not entry.widget:
            continue
        if name not in found.values:
            _fill(found, name, entry)
        children = entry.options.get(str(found.values.get(name)), ())
        waiting.extend((f"{name}.{child.name}", child) for child in reversed(children))
