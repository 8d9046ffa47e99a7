"""An API prompt as a graph of ours, with a report on every node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from inline_core.errors import shown_value
from inline_core.graph.document import SCHEMA_VERSION
from inline_core.graph.spec import NodeSpec
from inline_core.importers.comfyui.api_prompt import is_link
from inline_core.importers.comfyui.exporting import origin_of
from inline_core.importers.comfyui.flattening import ApiPrompt, FlatWorkflow, ModelSource
from inline_core.importers.comfyui.mapping.registry import entries
from inline_core.importers.comfyui.mapping.step import Draft, Step, Unsupported, UsesBroken
from inline_core.importers.comfyui.mapping.values import Broken, Constant, Value
from inline_core.importers.comfyui.node_table import NodeTable, builtin_table

HasFile = Callable[[str, str], bool]
"""Says whether a category of the models folder has a file of this name."""


class NodeState(StrEnum):
    """What became of a node."""

    CONVERTED = "converted"
    FOLDED = "folded"
    """Its value is in the nodes that use it."""
    IGNORED = "ignored"
    """It does nothing for what is made, or nothing that is made uses it."""
    UNSUPPORTED = "unsupported"
    BROKEN = "broken"
    """It needs what an unsupported node gives."""


@dataclass(frozen=True, slots=True)
class NodeReport:
    """One node of the prompt; `nodes` are those of the graph that stand for it."""

    node_id: str
    class_type: str
    title: str
    state: NodeState
    reason: str = ""
    alternative: str = ""
    nodes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A model file that the graph names; `url` is where the workflow says it can be had."""

    node_id: str
    category: str
    name: str
    present: bool
    url: str | None = None


@dataclass(frozen=True, slots=True)
class Conversion:
    """A graph document and its targets; `sinks` are the targets by the prompt's node id.

    Without any target nothing of the prompt could be converted.  Node ids of the graph are those of
    the prompt; further nodes of one have `<its id>/<word>`.
    """

    graph: Mapping[str, Any]
    targets: tuple[str, ...]
    nodes: tuple[NodeReport, ...]
    files: tuple[NamedFile, ...]
    sinks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def unsupported(self) -> tuple[NodeReport, ...]:
        """The nodes that keep something from being made."""
        return tuple(node for node in self.nodes if node.state is NodeState.UNSUPPORTED)


def prompt_node_of(node_id: str) -> str:
    """The prompt's node that a node of the graph stands for."""
    return node_id.split("/", 1)[0]


def convert(
    flat: FlatWorkflow,
    specs: Mapping[str, NodeSpec],
    has_file: HasFile,
    *,
    table: NodeTable | None = None,
) -> Conversion:
    """Convert a flattened workflow; linear in its nodes.  Never raises for what is in it."""
    return _Conversion(flat.prompt, specs, table or builtin_table()).run(flat.models, has_file)


_RING: Final = "it is part of a ring of nodes that feed each other"


class _Conversion:
    """One pass over one prompt."""

    def __init__(self, prompt: ApiPrompt, specs: Mapping[str, NodeSpec], table: NodeTable) -> None:
        self._prompt = prompt
        self._table = table
        self._draft = Draft(specs)
        self._outputs: dict[str, tuple[Value | None, ...]] = {}
        self._steps: dict[str, Step] = {}
        self._reports: dict[str, NodeReport] = {}

    def run(self, sources: tuple[ModelSource, ...], has_file: HasFile) -> Conversion:
        """Convert every node after those that feed it."""
        for node_id in in_order(self._prompt):
            self._convert(node_id)
        for node_id in self._prompt.keys() - self._reports.keys() - self._steps.keys():
            self._report(node_id, NodeState.UNSUPPORTED, _RING)
        targets = [name for step in self._steps.values() for name in step.targets]
        kept = _upstream(self._draft.nodes, targets)
        nodes = {name: node for name, node in self._draft.nodes.items() if name in kept}
        params = {name: self._draft.origins[name] for name in nodes}
        sinks = {
            node_id: tuple(step.targets) for node_id, step in self._steps.items() if step.targets
        }
        return Conversion(
            graph={
                "schemaVersion": SCHEMA_VERSION,
                "nodes": list(nodes.values()),
                "origin": origin_of(self._prompt, nodes, params),
            },
            targets=tuple(targets),
            nodes=tuple(self._settled(kept)),
            files=tuple(self._files(sources, has_file, kept)),
            sinks=sinks,
        )

    def _convert(self, node_id: str) -> None:
        entry = self._prompt[node_id]
        kind = entry["class_type"]
        convert_it = entries().get(kind)
        if convert_it is None:
            self._report(
                node_id, NodeState.UNSUPPORTED, f"the node type {kind!r} is not known here"
            )
            return
        step = Step(
            node_id=node_id,
            class_type=kind,
            title=str(entry.get("_meta", {}).get("title") or kind),
            inputs=dict(self._resolved(node_id, entry["inputs"])),
            declared=self._table.find(kind),
            draft=self._draft,
        )
        try:
            self._outputs[node_id] = tuple(convert_it(step))
        except UsesBroken as error:
            self._undo(step)
            self._report(node_id, NodeState.BROKEN, f"it needs what node {error} would give")
        except Unsupported as error:
            self._undo(step)
            self._report(node_id, NodeState.UNSUPPORTED, error.reason, error.alternative)
        else:
            self._steps[node_id] = step

    def _undo(self, step: Step) -> None:
        for name in step.made:
            del self._draft.nodes[name]

    def _resolved(self, node_id: str, inputs: Mapping[str, Any]) -> Iterator[tuple[str, Value]]:
        for name, given in inputs.items():
            if not is_link(given):
                yield name, Constant(_unwrapped(given), origin=(node_id, name))
                continue
            source, slot = given
            if source not in self._outputs:
                yield name, Broken(source)
                continue
            outputs = self._outputs[source]
            found = outputs[slot] if 0 <= slot < len(outputs) else Broken(source)
            if found is not None:
                yield name, found

    def _report(
        self, node_id: str, state: NodeState, reason: str = "", alternative: str = ""
    ) -> None:
        entry = self._prompt[node_id]
        kind = entry["class_type"]
        title = str(entry.get("_meta", {}).get("title") or kind)
        self._reports[node_id] = NodeReport(node_id, kind, title, state, reason, alternative)

    def _settled(self, kept: set[str]) -> Iterator[NodeReport]:
        """The reports in the order of the prompt; what nothing depends on is ignored."""
        needed = self._in_the_way()
        for node_id in self._prompt:
            known = self._reports.get(node_id)
            if known is not None:
                state = known.state
                if state in {NodeState.UNSUPPORTED, NodeState.BROKEN} and node_id not in needed:
                    state = NodeState.IGNORED
                yield NodeReport(
                    node_id, known.class_type, known.title, state, known.reason, known.alternative
                )
                continue
            yield self._done(self._steps[node_id], kept)

    def _in_the_way(self) -> set[str]:
        """Nodes that could not be converted and that something which is saved or shown needs."""
        read = {
            value[0]
            for entry in self._prompt.values()
            for value in entry["inputs"].values()
            if is_link(value)
        }
        found: set[str] = set()
        waiting = [
            node_id
            for node_id in self._reports
            if self._has_effect(self._prompt[node_id]["class_type"], read=node_id in read)
        ]
        while waiting:
            node_id = waiting.pop()
            if node_id in found or node_id not in self._reports:
                continue
            found.add(node_id)
            values = self._prompt[node_id]["inputs"].values()
            waiting.extend(value[0] for value in values if is_link(value))
        return found

    def _has_effect(self, class_type: str, *, read: bool) -> bool:
        """Whether a node is run for its own sake; unknown ones that nobody reads may be."""
        declared = self._table.find(class_type)
        return not read if declared is None else declared.output_node

    def _done(self, step: Step, kept: set[str]) -> NodeReport:
        made = tuple(name for name in step.made if name in kept)
        state, reason = NodeState.CONVERTED, ""
        if step.ignored:
            state, reason = NodeState.IGNORED, step.ignored
        elif step.made and not made:
            state, reason = NodeState.IGNORED, "nothing that is saved depends on it"
        elif not step.made:
            state, reason = NodeState.FOLDED, "its value is in the nodes that use it"
        return NodeReport(
            step.node_id,
            step.class_type,
            step.title,
            state,
            reason,
            nodes=made,
            warnings=tuple(step.warnings),
        )

    def _files(
        self, sources: tuple[ModelSource, ...], has_file: HasFile, kept: set[str]
    ) -> Iterator[NamedFile]:
        links = {source.name: source.url for source in sources if source.url}
        seen: set[tuple[str, str]] = set()
        for step in self._steps.values():
            used = any(name in kept for name in step.made)
            for category, name in step.files if used else ():
                if (category, name) in seen:
                    continue
                seen.add((category, name))
                url = links.get(name) or links.get(name.rsplit("/", 1)[-1])
                yield NamedFile(step.node_id, category, name, has_file(category, name), url)


def _unwrapped(value: Any) -> Any:
    """A list that the page wrapped so that it is no link."""
    if isinstance(value, Mapping) and "__value__" in value:
        return value["__value__"]
    return value


def in_order(prompt: ApiPrompt) -> Iterator[str]:
    """The ids of a prompt, each after all its sources; those in rings are left out."""
    waiting: dict[str, int] = {}
    readers: dict[str, list[str]] = {}
    for node_id, entry in prompt.items():
        sources = {v[0] for v in entry["inputs"].values() if is_link(v) and v[0] in prompt}
        waiting[node_id] = len(sources)
        for source in sources:
            readers.setdefault(source, []).append(node_id)
    ready = [node_id for node_id in prompt if not waiting[node_id]]
    for node_id in ready:
        yield node_id
        for reader in readers.get(node_id, ()):
            waiting[reader] -= 1
            if not waiting[reader]:
                ready.append(reader)


def _upstream(nodes: Mapping[str, Mapping[str, Any]], targets: list[str]) -> set[str]:
    found: set[str] = set()
    waiting = list(targets)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        for edges in nodes[name]["inputs"].values():
            rows = edges if isinstance(edges, list) else [edges]
            waiting.extend(row["from"] for row in rows)
    return found


def summary(conversion: Conversion) -> str:
    """One line for people: what was converted, and what stands in the way."""
    states = [node.state for node in conversion.nodes]
    counts = ", ".join(
        f"{states.count(state)} {state.value}" for state in NodeState if state in states
    )
    blocked = conversion.unsupported
    if not blocked:
        return counts
    kinds = dict.fromkeys(node.class_type for node in blocked)
    return f"{counts}; in the way: {', '.join(shown_value(kind) for kind in kinds)}"
