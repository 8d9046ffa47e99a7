"""Flattens a ComfyUI workflow to the API prompt that its page would send, and reports the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from inline_core.errors import shown_value
from inline_core.importers.comfyui.api_prompt import cyclic_nodes, is_finite, read_api_prompt
from inline_core.importers.comfyui.document import InputSlot, UiNode, Workflow, read_document
from inline_core.importers.comfyui.kinds import NodeKind, group_name, kind_of
from inline_core.importers.comfyui.links import Constant, LinkResolver, Lost, Source
from inline_core.importers.comfyui.node_table import (
    NOTHING,
    InputSpec,
    NodeTable,
    builtin_table,
)
from inline_core.importers.comfyui.promoted import PromotedValues
from inline_core.importers.comfyui.prompt_texts import chosen, without_comments
from inline_core.importers.comfyui.reading import FoundWorkflow, WorkflowFormat
from inline_core.importers.comfyui.report import Reason, Report, ReportLine
from inline_core.importers.comfyui.scopes import Expansion, Scope, first_value, nodes_in_order

_SHOWN_NODES: Final = 8

ApiPrompt = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class CanvasNote:
    """A text that the author left on the canvas."""

    node_id: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model file that a node names, with the place to get it from as the workflow has it."""

    node_id: str
    name: str
    url: str | None
    directory: str | None


@dataclass(frozen=True, slots=True)
class FlatWorkflow:
    """An API prompt `{id: {class_type, inputs, _meta}}` and all that is not in it.

    Ids inside subgraphs are `outer:inner`.  `report` has a line for whatever was dropped, changed
    or guessed, those of the reader first.
    """

    prompt: ApiPrompt
    report: tuple[ReportLine, ...]
    notes: tuple[CanvasNote, ...] = ()
    models: tuple[ModelSource, ...] = ()


def flatten(
    found: FoundWorkflow, *, table: NodeTable | None = None, prompt_seed: int = 0
) -> FlatWorkflow:
    """The prompt of a workflow that `read_workflow` found, in any of its forms.

    `table` gives the inputs of node types, the shipped facts by default; `prompt_seed` chooses
    among the options of dynamic prompts.  Faults of the workflow become lines of the report.
    Raises: InvalidRequest if it has more than 100,000 nodes with its subgraphs expanded.
    """
    report = Report(list(found.report.lines))
    if found.format is WorkflowFormat.API:
        prompt = read_api_prompt(found.document, report)
        flat = FlatWorkflow(prompt, ())
    else:
        workflow = read_document(found.document, report)
        flat = _Flattening(workflow, table or builtin_table(), report, prompt_seed).run()
    for group in cyclic_nodes(flat.prompt):
        shown = ", ".join(group[:_SHOWN_NODES]) + (", ..." if len(group) > _SHOWN_NODES else "")
        message = f"the nodes {shown} feed each other in a ring and cannot run"
        kind = flat.prompt[group[0]]["class_type"]
        report.error(Reason.GRAPH_CYCLE, message, group[0], kind)
    return FlatWorkflow(flat.prompt, tuple(report.lines), flat.notes, flat.models)


class _Flattening:
    """One pass over one workflow."""

    def __init__(self, workflow: Workflow, table: NodeTable, report: Report, seed: int) -> None:
        self._workflow = workflow
        self._table = table
        self._report = report
        self._seed = seed
        self._expansion = Expansion(workflow, table, report)
        self._values = PromotedValues(workflow.definitions, self._expansion, table, report)
        self._links = LinkResolver(table, self._values.port_value)
        self._prompt: ApiPrompt = {}
        self._notes: list[CanvasNote] = []
        self._models: list[ModelSource] = []

    def run(self) -> FlatWorkflow:
        """Walk over all nodes, the inner ones of subgraphs included."""
        root = self._expansion.expanded()
        scopes = [root]
        for scope in scopes:
            self._values.fill(scope)
            scopes.extend(scope.children.values())
        for scope, node in nodes_in_order(root):
            self._node(scope, node)
        self._everywhere(root)
        return FlatWorkflow(self._prompt, (), tuple(self._notes), tuple(self._models))

    def _node(self, scope: Scope, node: UiNode) -> None:
        kind = kind_of(node, self._table)
        place = scope.id_of(node.id)
        if kind is not NodeKind.REAL:
            self._left_out(kind, node, place)
        elif node.id in scope.children:
            self._instance(scope.children[node.id], node, place)
        elif node.id not in scope.unexpanded:
            self._emit(scope, node, place)

    def _left_out(self, kind: NodeKind, node: UiNode, place: str) -> None:
        """Say why a node is not in the prompt."""
        reason, message = _WHY_LEFT_OUT[kind]
        if kind is NodeKind.NOTE:
            text = first_value(node)
            note = CanvasNote(place, node.title or node.type, text if isinstance(text, str) else "")
            self._notes.append(note)
        if kind in {NodeKind.SET, NodeKind.GET}:
            message = f"{message} ({first_value(node)!r})"
        if kind in {NodeKind.MUTED, NodeKind.DECORATION} and node.values:
            message = f"{message}; its values go with it"
        self._report.info(reason, message, place, node.type)

    def _instance(self, child: Scope, node: UiNode, place: str) -> None:
        name = child.definition.name if child.definition is not None else node.type
        is_group = group_name(node.type) is not None
        what, reason = ("group", Reason.GROUP_NODE) if is_group else ("subgraph", Reason.SUBGRAPH)
        message = f"the {what} {name!r} is replaced by its nodes, whose ids start with {place}:"
        self._report.info(reason, message, place, node.type)
        known = child.inside.input_slots if child.inside is not None else {}
        for slot in node.inputs:
            if slot.name not in known and slot.link is not None:
                message = "the subgraph has no such input any more: the link is left out"
                self._report.warn(Reason.STALE_INPUT, message, place, node.type, slot.name)

    def _emit(self, scope: Scope, node: UiNode, place: str) -> None:
        """Add a node that runs to the prompt."""
        named = self._values.named(node)
        for is_warning, reason, message, name in named.notes:
            add = self._report.warn if is_warning else self._report.info
            add(reason, message, place, node.type, name)
        inputs: dict[str, Any] = {}
        for name, saved in named.values.items():
            value = self._values.widget_value(scope, node, name)
            if value is not saved and value != saved:
                message = (
                    f"the value {shown_value(saved)} is replaced by that of the subgraph's node"
                )
                self._report.info(Reason.PROMOTED_VALUE, message, place, node.type, name)
            self._put(inputs, name, value, named.specs.get(name), node, place)
        for slot in node.inputs:
            if slot.link is not None:
                self._link(inputs, scope, node, slot, slot.link)
        self._prompt[place] = {
            "class_type": node.type,
            "inputs": inputs,
            "_meta": {"title": node.title or node.type},
        }
        self._models.extend(_models(node, place))

    def _link(
        self, inputs: dict[str, Any], scope: Scope, node: UiNode, slot: InputSlot, link: str
    ) -> None:
        place = scope.id_of(node.id)
        named = self._values.named(node)
        name = slot.name
        if name not in named.values and slot.widget in named.values:
            name = slot.widget
        found = self._links.resolve(scope, link, slot.type)
        if isinstance(found, Source):
            inputs[name] = [found.node_id, found.slot]
        elif isinstance(found, Constant):
            if found.after is not None:
                message = f"the link is lost: {found.after.why}; the subgraph's own value is taken"
                self._report.warn(found.after.reason, message, place, node.type, name)
            saved = named.values.get(name, NOTHING)
            if saved is not NOTHING and saved is not found.value and saved != found.value:
                message = f"the value {shown_value(saved)} is replaced by the one linked to it"
                self._report.info(Reason.REPLACED_VALUE, message, place, node.type, name)
            self._put(inputs, name, found.value, self._spec(node, name), node, place)
        else:
            self._lost(found, node, place, name, kept=name in inputs)

    def _lost(self, found: Lost, node: UiNode, place: str, name: str, *, kept: bool) -> None:
        after = "the widget's own value is taken" if kept else "the input stays open"
        message = f"the link is lost: {found.why}; {after}"
        if found.reason in {Reason.LINK_CYCLE, Reason.MISSING_LINK, Reason.SUBGRAPH}:
            self._report.error(found.reason, message, place, node.type, name)
            return
        spec = self._spec(node, name)
        harmless = kept or (spec is not None and not spec.required)
        add = self._report.info if harmless else self._report.warn
        add(found.reason, message, place, node.type, name)

    def _spec(self, node: UiNode, name: str) -> InputSpec | None:
        found = self._values.named(node).specs.get(name)
        spec = self._table.find(node.type)
        return found if found is not None or spec is None else spec.by_name.get(name)

    def _put(
        self,
        inputs: dict[str, Any],
        name: str,
        value: Any,
        spec: InputSpec | None,
        node: UiNode,
        place: str,
    ) -> None:
        """Set a value as the server takes it."""
        if not is_finite(value):
            message = (
                f"the value {shown_value(value)} is no number that JSON can hold: it is left out"
            )
            self._report.error(Reason.NOT_FINITE, message, place, node.type, name)
            inputs.pop(name, None)
            return
        if isinstance(value, str) and spec is not None and spec.dynamic_prompt:
            value = self._prompt_text(value, node, place, name)
        if isinstance(value, list):
            wrapped: dict[str, Any] = {"__value__": value}
            if spec is not None and spec.type == "CURVE":
                wrapped = {"__type__": "CURVE", **wrapped}
            value = wrapped
        inputs[name] = value

    def _prompt_text(self, text: str, node: UiNode, place: str, name: str) -> str:
        plain = without_comments(text)
        if plain != text:
            message = "comments in the text are left out, as ComfyUI's page does"
            self._report.warn(Reason.COMMENT, message, place, node.type, name)
        picked = chosen(plain, self._seed, f"{place}:{name}")
        if picked != plain:
            message = (
                f"the options of the dynamic prompt were chosen with seed {self._seed}: "
                f"{shown_value(picked)}"
            )
            self._report.warn(Reason.DYNAMIC_PROMPT, message, place, node.type, name)
        return picked

    def _everywhere(self, root: Scope) -> None:
        """Fill open inputs of the root from the links that "Use Everywhere" recorded."""
        for link in self._workflow.everywhere:
            node = root.body.nodes.get(link.target)
            source = root.body.nodes.get(link.origin)
            entry = self._prompt.get(root.id_of(link.target))
            in_range = node is not None and 0 <= link.target_slot < len(node.inputs)
            if node is None or entry is None or not in_range or source is None:
                continue
            slot = node.inputs[link.target_slot]
            if slot.link is None and link.origin in self._prompt and link.origin_slot >= 0:
                entry["inputs"][slot.name] = [link.origin, link.origin_slot]
                message = f"connected to {source.type} {link.origin}, as Use Everywhere recorded"
                self._report.info(Reason.EVERYWHERE, message, node.id, node.type, slot.name)


_WHY_LEFT_OUT: Final[Mapping[NodeKind, tuple[Reason, str]]] = {
    NodeKind.NOTE: (Reason.NOTE, "a note on the canvas, kept as a text beside the graph"),
    NodeKind.DECORATION: (
        Reason.DECORATION,
        "this node has no inputs and outputs and is not known: it only decorates the canvas",
    ),
    NodeKind.REROUTE: (Reason.REROUTE, "the links run on to its source"),
    NodeKind.PRIMITIVE: (Reason.PRIMITIVE, "its value goes to the inputs that it is linked to"),
    NodeKind.SET: (Reason.SET_GET, "links run from its source to the Get nodes of this name"),
    NodeKind.GET: (Reason.SET_GET, "links run on to the Set node of this name"),
    NodeKind.EVERYWHERE: (Reason.EVERYWHERE, "only the links that the file recorded are made"),
    NodeKind.MUTED: (Reason.MUTED, "the node is muted and its links go with it"),
    NodeKind.BYPASSED: (Reason.BYPASSED, "the node is bypassed: links run past it"),
}


def _models(node: UiNode, place: str) -> list[ModelSource]:
    entries = node.properties.get("models")
    found = []
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, Mapping) and isinstance(entry.get("name"), str):
            url, directory = entry.get("url"), entry.get("directory")
            found.append(
                ModelSource(
                    place,
                    entry["name"],
                    url if isinstance(url, str) else None,
                    directory if isinstance(directory, str) else None,
                )
            )
    return found
