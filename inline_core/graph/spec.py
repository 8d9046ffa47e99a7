"""What a node type is: its ports, its params and the function that runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from inline_core.graph.ports import PortKind, accepts

Widget = Literal["text", "textarea", "number", "boolean", "select", "seed", "asset"]
ParamKind = Literal[
    "string", "text", "number", "boolean", "enum", "seed", "model", "character", "file"
]


@dataclass(frozen=True, slots=True)
class PortSpec:
    """One input or output of a node type."""

    id: str
    label: str
    kind: PortKind
    required: bool = False


@dataclass(frozen=True, slots=True)
class Option:
    """One choice of a select param."""

    value: str
    label: str


@dataclass(frozen=True, slots=True)
class ParamSpec:
    """One parameter of a node type.

    `integer` marks numbers that must be whole.  `options_from` names a category of the models
    folder whose ready files are the options.  `variant_default` marks a param whose default comes
    from the chosen model (its native size, steps, guidance); `default` is then what is used when no
    model is present.
    """

    key: str
    label: str
    widget: Widget
    kind: ParamKind
    default: Any = None
    min: float | None = None
    max: float | None = None
    step: float | None = None
    options: tuple[Option, ...] = ()
    options_from: str | None = None
    integer: bool = False
    advanced: bool = False
    on_face: bool = False
    variant_default: str | None = None
    doc: str = ""


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A node type.  `run(ctx, inputs, params)` gives a mapping from output port to value."""

    type: str
    title: str
    category: str
    icon: str
    inputs: tuple[PortSpec, ...]
    outputs: tuple[PortSpec, ...]
    params: tuple[ParamSpec, ...]
    run: Callable[[Any, Mapping[str, Any], Mapping[str, Any]], Mapping[str, Any]]
    doc: str = ""
    version: int = 1
    source: str = "builtin"
    output_kind: Literal["image", "video", "audio", "lora"] | None = None
    hidden: bool = False
    # The model family whose variants bring defaults, and what the node needs to run.
    family: str | None = None
    needs: tuple[str, ...] = ()
    # False: results are never reused (the node reads something outside the graph).
    cacheable: bool = True
    # True: it gives some of the pictures it gets, unchanged; those it leaves out are no takes.
    selects: bool = False
    _inputs_by_id: Mapping[str, PortSpec] = field(init=False, repr=False, compare=False)
    _outputs_by_id: Mapping[str, PortSpec] = field(init=False, repr=False, compare=False)
    _params_by_key: Mapping[str, ParamSpec] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_inputs_by_id", {port.id: port for port in self.inputs})
        object.__setattr__(self, "_outputs_by_id", {port.id: port for port in self.outputs})
        object.__setattr__(self, "_params_by_key", {param.key: param for param in self.params})

    @property
    def reads_models(self) -> bool:
        """Whether checking its params, or filling in their defaults, looks at the models folder."""
        return self.family is not None or any(param.options_from for param in self.params)

    def input(self, port_id: str) -> PortSpec | None:
        """The input port `port_id`, or None if this type has none of that name."""
        return self._inputs_by_id.get(port_id)

    def output(self, port_id: str) -> PortSpec | None:
        """The output port `port_id`, or None if this type has none of that name."""
        return self._outputs_by_id.get(port_id)

    def wired_params(self, inputs: Mapping[str, Any]) -> tuple[str, ...]:
        """The keys of `inputs` that are params, not ports: an edge gives their value."""
        return tuple(
            key for key in inputs if key in self._params_by_key and key not in self._inputs_by_id
        )

    def param(self, key: str) -> ParamSpec | None:
        """The param `key`, or None if this type has none of that name."""
        return self._params_by_key.get(key)


def kind_of_param(param: ParamSpec) -> PortKind | None:
    """The kind of value that may be wired into a param; None if it can only be set.

    Numbers into a text are written out.
    """
    if param.widget in {"number", "seed"}:
        return PortKind.NUMBER
    if param.widget == "boolean":
        return PortKind.BOOLEAN
    return None if param.widget == "asset" else PortKind.TEXT


def param_accepts(param: ParamSpec, source: PortKind) -> bool:
    """Say whether a value of kind `source` may be wired into a param."""
    kind = kind_of_param(param)
    if kind is None:
        return False
    written = kind is PortKind.TEXT and param.widget != "select"
    return accepts(kind, source) or (written and source in {PortKind.NUMBER, PortKind.BOOLEAN})
