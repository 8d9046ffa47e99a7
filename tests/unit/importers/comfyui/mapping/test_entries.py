"""The mapping as a whole: what its entries name exists, and all of them are there."""

from __future__ import annotations

from typing import Any

import pytest

from inline_core.importers.comfyui.mapping.registry import entries
from inline_core.importers.comfyui.mapping.step import Direct
from inline_core.importers.comfyui.node_table import builtin_entries
from tests.unit.importers.comfyui.mapping.prompts import converted, specs, step

LEAST_OF_THE_TABLE = 199
DIRECT = {name: entry for name, entry in entries().items() if isinstance(entry, Direct)}


def test_there_are_enough_of_the_types_that_templates_use() -> None:
    assert len(entries().keys() & builtin_entries().keys()) >= LEAST_OF_THE_TABLE


@pytest.mark.parametrize("name", sorted(DIRECT))
def test_what_an_entry_names_exists(name: str) -> None:
    entry = DIRECT[name]
    spec = specs()[entry.type]
    known = {port.id for port in spec.inputs} | {param.key for param in spec.params}
    assert {*entry.names.values(), *entry.set} <= known
    outputs = {port.id for port in spec.outputs}
    assert {port for port in entry.outputs if port is not None} <= outputs
    declared = builtin_entries().get(name)
    if declared is not None:
        inputs = {key for group in declared["input"].values() for key in group}
        assert {theirs.partition(".")[0] for theirs in entry.names} <= inputs
        assert len(entry.outputs) <= len(declared.get("outputs", ()))


@pytest.mark.parametrize("name", sorted(entries()))
def test_a_node_without_inputs_never_raises(name: str) -> None:
    result = converted({"n": step(name)}, valid=False)
    assert len(result.nodes) == 1


@pytest.mark.parametrize("value", [None, "", "odd", -1, 1e300, True, [], {"a": 1}, ["x", 0]])
@pytest.mark.parametrize("name", sorted(entries().keys() & builtin_entries().keys()))
def test_odd_values_never_raise(name: str, value: Any) -> None:
    declared = builtin_entries()[name]["input"]
    inputs = {key: value for group in declared.values() for key in group}
    result = converted({"n": {"class_type": name, "inputs": inputs}}, valid=False)
    assert len(result.nodes) == 1
