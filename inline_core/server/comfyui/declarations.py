"""What `/object_info` says of a node type, with the files that are there now."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final

from inline_core.importers.comfyui.mapping.registry import entries
from inline_core.importers.comfyui.node_table import AUTOGROW, DYNAMIC_COMBO, builtin_entries
from inline_core.server.comfyui.folders import offered
from inline_core.server.services import Services

COMBO: Final = "COMBO"
_NUMBERS: Final = frozenset({"INT", "FLOAT"})
_OLD_MODULE: Final = "nodes"
_SEPARATOR: Final = "."
_OUTPUT_NAMES: Final = ("Save", "Preview", "VHS_VideoCombine")


@cache
def known_types() -> Mapping[str, Any]:
    """The facts of node types in the form of the importer's table, which is the larger part.

    `more_types.json` has types that it lacks, with the inputs that our mapping reads.
    """
    text = files(__package__).joinpath("more_types.json").read_text("utf-8")
    return MappingProxyType({**json.loads(text), **builtin_entries()})


def served_types() -> list[str]:
    """The node types that can be run here and whose inputs are known."""
    return [name for name in known_types() if name in entries()]


def is_known(class_type: str) -> bool:
    """Whether ComfyUI has this node type, whether or not it can be run here."""
    return class_type in known_types()


def is_output(class_type: str) -> bool:
    """Whether a node type is run for its effect; of types whose facts we lack the name tells."""
    entry = known_types().get(class_type)
    if entry is None:
        return class_type.startswith(_OUTPUT_NAMES)
    return entry.get("output_node") is True


def output_types(class_type: str) -> list[str] | None:
    """The types of a node's outputs; None if they are not known."""
    entry = known_types().get(class_type)
    return None if entry is None else [str(row[0]) for row in entry.get("outputs", ())]


def object_info(services: Services) -> dict[str, Any]:
    """The declarations of every node type that can be run here."""
    return {name: declaration(services, name) for name in served_types()}


def declaration(services: Services, class_type: str) -> dict[str, Any]:
    """One node type in ComfyUI's form.  Raises: KeyError if it is not among `served_types`."""
    entry = known_types()[class_type]
    old = entry.get("module") == _OLD_MODULE
    inputs: dict[str, dict[str, Any]] = {"required": {}, "optional": {}}
    for part, group in inputs.items():
        for name, declared in entry["input"].get(part, {}).items():
            group[name] = _shown(services, class_type, name, declared, old=old)
    inputs["hidden"] = {name: name.upper() for name in entry.get("hidden", ())}
    outputs = entry.get("outputs", ())
    module = str(entry.get("module", _OLD_MODULE))
    return {
        "input": inputs,
        "input_order": {part: list(group) for part, group in inputs.items()},
        "is_input_list": entry.get("is_input_list") is True,
        "output": [row[0] for row in outputs],
        "output_is_list": [row[2] for row in outputs],
        "output_name": [row[1] for row in outputs],
        "output_tooltips": [None for _ in outputs],
        "name": class_type,
        "display_name": class_type,
        "description": "",
        "python_module": module,
        "category": module.rpartition(_SEPARATOR)[2].removeprefix("nodes_") or _OLD_MODULE,
        "output_node": is_output(class_type),
        "deprecated": False,
        "experimental": False,
        "api_node": False,
    }


def _shown(
    services: Services, class_type: str, name: str, declared: list[Any], *, old: bool
) -> list[Any]:
    kind, options = declared[0], dict(declared[1]) if len(declared) > 1 else {}
    if kind != COMBO:
        options = _with_limits(kind, options)
        return [kind, options] if options else [kind]
    choices = offered(services, class_type, name, options.pop("options", ()))
    if old:
        return [choices, options]
    return [COMBO, {**options, "options": choices}]


def _with_limits(kind: str, options: dict[str, Any]) -> dict[str, Any]:
    """The table leaves a lower limit of zero out."""
    if kind in _NUMBERS and "max" in options and "min" not in options:
        return {**options, "min": 0}
    return options


def inputs_of(class_type: str, given: Mapping[str, Any]) -> Iterator[tuple[str, str, Any, bool]]:
    """The inputs that a node has: full name, type, options, and whether it must be given.

    Of a dynamic combo those of the choice that was `given`; grown ones as far as they are given.
    """
    entry = known_types().get(class_type)
    if entry is not None:
        yield from _walked(entry["input"], given, "", required=True)


def _walked(
    groups: Mapping[str, Any], given: Mapping[str, Any], prefix: str, *, required: bool
) -> Iterator[tuple[str, str, Any, bool]]:
    for part in ("required", "optional"):
        for short, declared in groups.get(part, {}).items():
            name = f"{prefix}{short}"
            kind = str(declared[0])
            options = declared[1] if len(declared) > 1 else {}
            needed = required and part == "required"
            if kind == AUTOGROW:
                yield from _grown(name, options, given)
                continue
            yield name, kind, _with_limits(kind, options), needed
            if kind == DYNAMIC_COMBO:
                chosen = given.get(name)
                for choice in options.get("options", ()):
                    if choice["key"] == chosen:
                        below = f"{name}{_SEPARATOR}"
                        yield from _walked(choice["inputs"], given, below, required=needed)


def _grown(
    name: str, options: Mapping[str, Any], given: Mapping[str, Any]
) -> Iterator[tuple[str, str, Any, bool]]:
    template = options.get("template", {}).get("input", {})
    kinds = [row for group in template.values() for row in group.values()]
    kind = "*"
    if kinds:
        row = kinds[0]
        kind = str(row.get("type", "*")) if isinstance(row, Mapping) else str(row[0])
    for key in given:
        if key.startswith(f"{name}{_SEPARATOR}"):
            yield key, kind, {}, False
