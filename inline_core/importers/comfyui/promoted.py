"""The values that instances of subgraphs hold for widgets inside them.

Three generations of files: `proxyWidgets` with the values inside; `proxyWidgets` with values by
position; and no `proxyWidgets`, with one value for each input of the definition that feeds a
widget.  Values of an instance override those inside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from inline_core.importers.comfyui.document import INPUT_NODE, Definition, InputSlot, UiNode
from inline_core.importers.comfyui.kinds import NodeKind, group_name, kind_of
from inline_core.importers.comfyui.node_table import NOTHING, NodeTable
from inline_core.importers.comfyui.report import Reason, Report
from inline_core.importers.comfyui.scopes import MAX_DEPTH, Expansion, Scope, first_value
from inline_core.importers.comfyui.widgets import CONTROL_WORDS, NamedValues, named_values

_PREVIEW: Final = "$$"
_PAIR: Final = 2


class PromotedValues:
    """Widget values by name, and the values of subgraph inputs, for one workflow."""

    def __init__(
        self,
        definitions: Mapping[str, Definition],
        expansion: Expansion,
        table: NodeTable,
        report: Report,
    ) -> None:
        self._definitions = definitions
        self._expansion = expansion
        self._table = table
        self._report = report
        self._named: dict[int, NamedValues] = {}
        self._ports: dict[int, dict[str, None]] = {}
        self._port_values: dict[tuple[int, int], Any] = {}

    def named(self, node: UiNode) -> NamedValues:
        """The widget values of a node as saved; shared by all instances, so do not change it."""
        key = id(node)
        if key not in self._named:
            self._named[key] = named_values(node, self._table.find(node.type))
        return self._named[key]

    def fill(self, scope: Scope) -> None:
        """Note the values of an instance in its scope; those of the outer scopes must be filled."""
        node, parent = scope.instance, scope.parent
        if node is None or parent is None or scope.definition is None:
            return
        if group_name(node.type) is None:
            proxies = node.properties.get("proxyWidgets")
            if isinstance(proxies, list) and proxies:
                self._from_proxies(scope, node, proxies)
            else:
                self._from_ports(scope, node, scope.definition)
            _from_quarantine(scope, node)
        for port in scope.definition.inputs if parent.overrides else ():
            value = parent.overrides.get((node.id, port.name), NOTHING)
            if value is not NOTHING:
                scope.port_values[port.name] = value

    def port_value(self, scope: Scope, slot: int, depth: int = 0) -> Any:
        """The value of a definition's input where nothing is linked to it; NOTHING without one.

        It is the value of the instance, else that of the first widget inside that the input feeds.
        """
        if scope.definition is None or scope.inside is None:
            return NOTHING
        if not 0 <= slot < len(scope.definition.inputs) or depth > MAX_DEPTH:
            return NOTHING
        key = (scope.index, slot)
        if key not in self._port_values:
            value = scope.port_values.get(scope.definition.inputs[slot].name, NOTHING)
            for node, target in scope.inside.targets.get(slot, ()):
                if value is not NOTHING:
                    break
                value = self._target_value(scope, node, target, depth)
            self._port_values[key] = value
        return self._port_values[key]

    def widget_value(self, scope: Scope, node: UiNode, name: str) -> Any:
        """The value of a widget, as the instance around it has it; NOTHING if it has none."""
        value = scope.overrides.get((node.id, name), NOTHING)
        return self.named(node).values.get(name, NOTHING) if value is NOTHING else value

    def _target_value(self, scope: Scope, node: UiNode, target: InputSlot, depth: int) -> Any:
        child = scope.children.get(node.id)
        if child is not None and child.inside is not None:
            slot = child.inside.input_slots.get(target.name, -1)
            return self.port_value(child, slot, depth + 1)
        if kind_of(node, self._table) is NodeKind.PRIMITIVE:
            return first_value(node)
        return self.widget_value(scope, node, target.widget or target.name)

    def _from_proxies(self, scope: Scope, node: UiNode, proxies: Sequence[Any]) -> None:
        """Values by the position of their proxy; without values, those inside count."""
        values = node.values if isinstance(node.values, list) else list(node.values.values())
        if not values:
            return
        pairs = [(str(p[0]), str(p[1])) for p in proxies if isinstance(p, list) and len(p) >= _PAIR]
        if len(values) != len(pairs):
            pairs = [pair for pair in pairs if not pair[1].startswith(_PREVIEW)]
        if len(values) != len(pairs):
            message = (
                f"{len(values)} promoted values for {len(pairs)} promoted widgets: "
                "the values inside the subgraph are taken"
            )
            self._report.warn(Reason.PROMOTED_VALUE, message, self._place(scope), node.type)
            return
        for (inner, name), value in zip(pairs, values, strict=True):
            if inner == "-1":
                scope.port_values[name] = value
            elif not name.startswith(_PREVIEW):
                scope.overrides[inner, name] = value

    def _from_ports(self, scope: Scope, node: UiNode, definition: Definition) -> None:
        """Values in the order of the inputs that feed a widget, names where the file has them."""
        if isinstance(node.values, dict):
            scope.port_values.update(node.values)
            return
        values: Sequence[Any] = node.values
        if node.named is not None and (not values or len(values) != len(node.named)):
            scope.port_values.update(node.named)
            return
        if not values:
            return
        names = list(node.named) if node.named is not None else list(self._widget_ports(definition))
        if len(values) != len(names):
            # Files of some versions leave linked inputs out.
            names = [name for name in names if scope.links_by_input.get(name) is None]
        if len(values) > len(names):
            values = [v for v in values if not (isinstance(v, str) and v in CONTROL_WORDS)]
        if len(values) == len(names):
            scope.port_values.update(zip(names, values, strict=True))
            return
        message = (
            f"{len(values)} promoted values for {len(names)} inputs that feed a widget: "
            "the values inside the subgraph are taken"
        )
        self._report.warn(Reason.PROMOTED_VALUE, message, self._place(scope), node.type)

    def _place(self, scope: Scope) -> str:
        return scope.prefix.removesuffix(":")

    def _widget_ports(self, definition: Definition, depth: int = 0) -> dict[str, None]:
        """Names of the inputs that feed a widget, in nested subgraphs too."""
        key = id(definition)
        if key not in self._ports:
            # Stands while nested ones are looked at: a subgraph that contains itself adds nothing.
            self._ports[key] = {}
            targets = self._expansion.inside(definition).targets
            self._ports[key] = dict.fromkeys(
                port.name
                for number, port in enumerate(definition.inputs)
                if any(self._feeds(node, slot, depth) for node, slot in targets.get(number, ()))
            )
        return self._ports[key]

    def _feeds(self, node: UiNode, slot: InputSlot, depth: int) -> bool:
        if slot.widget is not None:
            return True
        nested = self._definitions.get(node.type)
        if nested is not None:
            return depth < MAX_DEPTH and slot.name in self._widget_ports(nested, depth + 1)
        spec = self._table.find(node.type)
        declared = spec.by_name.get(slot.name) if spec is not None else None
        return declared is not None and declared.widget


def _from_quarantine(scope: Scope, node: UiNode) -> None:
    """Values of promoted inputs that the page could not place: `["-1", name]` and `hostValue`."""
    entries = node.properties.get("proxyWidgetErrorQuarantine")
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, Mapping) or "hostValue" not in entry:
            continue
        for proxy in entry.values():
            if (
                isinstance(proxy, list)
                and len(proxy) >= _PAIR
                and str(proxy[0]) in {"-1", INPUT_NODE}
            ):
                scope.port_values.setdefault(str(proxy[1]), entry["hostValue"])
