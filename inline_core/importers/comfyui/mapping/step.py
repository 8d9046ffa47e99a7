"""The conversion of one node: what an entry of the mapping may ask for and add."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from inline_core.errors import shown_value
from inline_core.graph.ports import PortKind
from inline_core.graph.spec import NodeSpec
from inline_core.importers.comfyui.mapping.values import Broken, Constant, Several, Value, Wire
from inline_core.importers.comfyui.node_table import NOTHING, ClassSpec

_FOLDING: Final = {PortKind.NUMBER, PortKind.BOOLEAN, PortKind.TEXT}
TEXT_NODE: Final = "input/text"
_LARGEST: Final = 2**64


class Unsupported(Exception):
    """A node cannot be converted; `alternative` says what does nearly the same here."""

    def __init__(self, reason: str, alternative: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.alternative = alternative


class UsesBroken(Exception):
    """A node needs what a node before it could not give."""


@dataclass(frozen=True, slots=True)
class Added:
    """A node of ours that was added, or the values it would give where it was folded."""

    node_id: str
    outputs: Mapping[str, Value]

    def out(self, port: str) -> Value:
        """One of its outputs."""
        return self.outputs[port]


@dataclass(slots=True)
class Draft:
    """The graph document as it grows."""

    specs: Mapping[str, NodeSpec]
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    origins: dict[str, dict[str, tuple[str, str]]] = field(default_factory=dict)
    """Node -> param -> the (node, input) of the prompt that its value was taken from."""

    def free_id(self, wanted: str) -> str:
        """An id that no node has yet."""
        name, number = wanted, 2
        while name in self.nodes:
            name, number = f"{wanted}-{number}", number + 1
        return name


@dataclass(slots=True)
class Step:
    """One node of the prompt, while it is converted.

    `inputs` are its resolved inputs by name, with the dots of grown and dynamic ones.  Notes that
    an entry leaves (`warn`, `ignore`) go into the report of this node.
    """

    node_id: str
    class_type: str
    title: str
    inputs: Mapping[str, Value]
    declared: ClassSpec | None
    draft: Draft
    warnings: list[str] = field(default_factory=list)
    ignored: str = ""
    made: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    files: list[tuple[str, str]] = field(default_factory=list)

    # ---- reading ---------------------------------------------------------------------------

    def has(self, name: str) -> bool:
        """Whether an input is connected or has a value."""
        return name in self.inputs

    def value(self, name: str) -> Value | None:
        """An input, else what it is declared to be without a value, else None.

        Raises: UsesBroken.
        """
        found = self.inputs.get(name)
        if isinstance(found, Broken):
            raise UsesBroken(found.node_id)
        if found is not None:
            return found
        spec = self.declared.by_name.get(name) if self.declared is not None else None
        if spec is None or spec.default is NOTHING:
            return None
        return Constant(spec.default)

    def needed(self, name: str) -> Value:
        """An input that must be there.  Raises: Unsupported, UsesBroken."""
        found = self.value(name)
        if found is None:
            message = f"its input {name!r} is not connected"
            raise Unsupported(message)
        return found

    def constant(self, name: str, usual: Any = None) -> Any:
        """The plain value of an input that must be known at import.

        Raises: Unsupported if it is only known when the graph runs; UsesBroken.
        """
        found = self.value(name)
        if found is None:
            return usual
        if not isinstance(found, Constant):
            message = f"its {name!r} is computed while the workflow runs, and has to be fixed here"
            raise Unsupported(message)
        return found.value

    def number(self, name: str, usual: float) -> float:
        """A number that must be known at import.  Raises: Unsupported, UsesBroken."""
        value = self.constant(name, usual)
        if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > _LARGEST:
            message = f"its {name} is {shown_value(value)}, where a number is needed"
            raise Unsupported(message)
        return value

    def word(self, name: str, usual: str) -> str:
        """A text that must be known at import.  Raises: Unsupported, UsesBroken."""
        value = self.constant(name, usual)
        if not isinstance(value, str):
            message = f"its {name} is {shown_value(value)}, where a text is needed"
            raise Unsupported(message)
        return value

    def grown(self, prefix: str) -> list[tuple[str, Value]]:
        """The (name, value) of inputs `prefix.name`, in the order of the prompt.

        Raises: UsesBroken.
        """
        names = [name for name in self.inputs if name.startswith(f"{prefix}.")]
        return [(name[len(prefix) + 1 :], self.needed(name)) for name in names]

    # ---- writing ---------------------------------------------------------------------------

    def add(
        self,
        node_type: str,
        inputs: Mapping[str, Any] | None = None,
        *,
        keep: bool = False,
        suffix: str = "",
        fold: bool = True,
    ) -> Added:
        """Add a node of ours; `inputs` are its ports and params, as values or plain.

        None leaves one out.  A list goes into a list port.  A node that only computes a number or a
        text of what is known is computed here and now.  Raises: UsesBroken, Unsupported.
        """
        spec = self.draft.specs[node_type]
        params, edges = self._sorted(spec, inputs or {})
        if fold and not edges and spec.outputs and all(p.kind in _FOLDING for p in spec.outputs):
            return Added("", self._folded(spec, params))
        name = self.draft.free_id(f"{self.node_id}/{suffix}" if suffix else self.node_id)
        node: dict[str, Any] = {"id": name, "type": node_type, "params": params, "inputs": edges}
        if spec.output_kind is not None and not keep:
            node["keep"] = False
        self.draft.nodes[name] = node
        self.draft.origins[name] = {
            key: given.origin
            for key, given in (inputs or {}).items()
            if key in params and isinstance(given, Constant) and given.origin is not None
        }
        self.made.append(name)
        return Added(name, {port.id: Wire(name, port.id) for port in spec.outputs})

    def sink(self, node_type: str, inputs: Mapping[str, Any], **more: Any) -> Added:
        """Add a node whose result is wanted: a target of the run."""
        added = self.add(node_type, inputs, keep=True, fold=False, **more)
        self.targets.append(added.node_id)
        return added

    def wire(self, value: Value | None) -> Wire | None:
        """A value as an edge; a text that is known gets a node that gives it."""
        if isinstance(value, Constant) and isinstance(value.value, str):
            added = self.add(TEXT_NODE, {"text": value}, suffix="text", fold=False)
            value = added.out("text")
        if isinstance(value, Broken):
            raise UsesBroken(value.node_id)
        return value if isinstance(value, Wire) else None

    def warn(self, message: str) -> None:
        """Say that something is not quite as in ComfyUI."""
        if message not in self.warnings:
            self.warnings.append(message)

    def ignore(self, reason: str) -> None:
        """Say that this node has no counterpart, and why none is needed."""
        self.ignored = reason

    def taken(self, name: str, value: Any) -> Constant:
        """The value of a param that stands for an input, so that it can be written back there."""
        return Constant(value, origin=(self.node_id, name))

    def uses_file(self, category: str, name: str) -> str:
        """A model file that is named, as our params name it."""
        plain = name.replace("\\", "/")
        self.files.append((category, plain))
        return plain

    # ---- inside ----------------------------------------------------------------------------

    def _sorted(
        self, spec: NodeSpec, inputs: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Params that are set, and edges."""
        params: dict[str, Any] = {}
        edges: dict[str, Any] = {}
        for name, given in inputs.items():
            if given is None:
                continue
            if spec.input(name) is not None:
                found = self._edges(given, name)
                if found is not None:
                    edges[name] = found
            elif spec.param(name) is None:
                message = f"{spec.type} has no input or param {name!r}"
                raise KeyError(message)
            elif isinstance(given, Wire):
                edges[name] = given.edge
            else:
                params[name] = _plain(name, given)
        for port in spec.inputs:
            if port.required and not edges.get(port.id):
                message = f"nothing is connected that could be its {port.label.lower()!r}"
                raise Unsupported(message)
        return params, edges

    def _edges(self, given: Any, name: str) -> Any:
        if isinstance(given, Sequence) and not isinstance(given, str):
            return [wire.edge for one in given if (wire := self.wire(one)) is not None]
        value = Constant(given) if isinstance(given, str) else given
        if isinstance(value, Constant) and value.value is None:
            return None
        wire = self.wire(value)
        if wire is None:
            shown = shown_value(value.value) if isinstance(value, Constant) else "several values"
            message = f"its input {name!r} has {shown}, which cannot be wired here"
            raise Unsupported(message)
        return wire.edge

    def _folded(self, spec: NodeSpec, params: Mapping[str, Any]) -> dict[str, Value]:
        """What a node gives whose params are all known."""
        usual = {param.key: param.default for param in spec.params}
        try:
            outputs = spec.run(None, {}, {**usual, **params})
        except Exception as error:
            raise Unsupported(str(error)) from error
        return {port: Constant(value) for port, value in outputs.items()}


def _plain(name: str, given: Any) -> Any:
    """The value of a param that is set."""
    if isinstance(given, Broken):
        raise UsesBroken(given.node_id)
    if isinstance(given, Several):
        message = f"its {name!r} has several things in one, and a value is needed"
        raise Unsupported(message)
    return given.value if isinstance(given, Constant) else given


Outputs = Sequence[Value | None]
Entry = Callable[[Step], Outputs]


@dataclass(frozen=True, slots=True)
class Direct:
    """A node type that has one of ours that does the same.

    `names` are its inputs and ours (a port or a param); what is not named is not read.  `set` are
    params of ours with fixed values, `choices` our words for options, `outputs` our outputs in the
    order of its own (None: it has none that is used).
    """

    type: str
    names: Mapping[str, str] = field(default_factory=dict)
    outputs: Sequence[str | None] = ()
    set: Mapping[str, Any] = field(default_factory=dict)
    choices: Mapping[str, Mapping[Any, Any]] = field(default_factory=dict)
    keep: bool = False

    def __call__(self, step: Step) -> Outputs:
        """Add our node.  Raises: Unsupported, UsesBroken."""
        inputs: dict[str, Any] = dict(self.set)
        for theirs, ours in self.names.items():
            value = step.value(theirs)
            if theirs in self.choices and value is not None:
                value = Constant(chosen(step, theirs, self.choices[theirs]))
            inputs[ours] = value
        added = step.add(self.type, inputs, keep=self.keep)
        return [None if port is None else added.out(port) for port in self.outputs]


def chosen(step: Step, name: str, choices: Mapping[Any, Any]) -> Any:
    """Our word for the option that an input has.  Raises: Unsupported."""
    value = step.constant(name)
    if value not in list(choices):  # a list, since what stands in a prompt may not be hashable
        known = ", ".join(str(choice) for choice in choices)
        message = f"its {name} {shown_value(value)} is not known here (known: {known})"
        raise Unsupported(message)
    return choices[value]


def several(value: Value | None) -> Mapping[str, Value]:
    """The parts of a value that stands for several."""
    return value.parts if isinstance(value, Several) else {}
