"""Whether a prompt can run: each output for itself, as ComfyUI checks, with its error types."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from inline_core.engine.media_access import input_file
from inline_core.errors import InlineError
from inline_core.importers.comfyui.api_prompt import cyclic_nodes, is_link
from inline_core.importers.comfyui.mapping.registry import entries
from inline_core.importers.comfyui.node_table import DYNAMIC_COMBO
from inline_core.server.comfyui import declarations
from inline_core.server.comfyui.declarations import COMBO
from inline_core.server.comfyui.faults import Refused
from inline_core.server.comfyui.folders import INPUT_FILES, model_folder, offered
from inline_core.server.comfyui.naming import annotated, take_id_in
from inline_core.server.services import Services

Prompt = dict[str, dict[str, Any]]
NodeError = dict[str, Any]

_CASTS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "INT": int,
    "FLOAT": float,
    "STRING": str,
    "BOOLEAN": bool,
}
_ANY: Final = "*"
_LOOSE: Final = frozenset({_ANY, "COMFY_MATCHTYPE_V3"})
_SHOWN_OPTIONS: Final = 20


@dataclass(slots=True)
class Checked:
    """A prompt with its values cast, the outputs that can run, and what is wrong elsewhere."""

    prompt: Prompt
    outputs: tuple[str, ...]
    faults: dict[str, list[NodeError]] = field(default_factory=dict)
    wanted: tuple[str, ...] = ()

    def node_errors(self) -> dict[str, Any]:
        """The faults as ComfyUI tells them: by node, with the outputs that cannot be had."""
        above = {output: upstream(self.prompt, [output]) for output in self.wanted}
        return {
            node_id: {
                "errors": errors,
                "dependent_outputs": [name for name, nodes in above.items() if node_id in nodes],
                "class_type": self.prompt[node_id]["class_type"],
            }
            for node_id, errors in self.faults.items()
        }

    def keep_good(self) -> None:
        """Drop the outputs that need a node with a fault.

        Raises: Refused if none is left.
        """
        self.outputs = tuple(
            output
            for output in self.outputs
            if not upstream(self.prompt, [output]) & self.faults.keys()
        )
        if not self.outputs:
            raise Refused(
                "prompt_outputs_failed_validation",
                "Prompt outputs failed validation",
                _in_words(self.faults, self.prompt),
                node_errors=self.node_errors(),
            )

    def needed(self) -> Prompt:
        """Only the nodes that a good output needs, in the order of the prompt."""
        nodes = upstream(self.prompt, self.outputs)
        return {node_id: node for node_id, node in self.prompt.items() if node_id in nodes}


def _in_words(faults: Mapping[str, list[NodeError]], prompt: Prompt) -> str:
    lines = []
    for node_id, errors in faults.items():
        for error in errors:
            told = ": ".join(
                part for part in (error["message"].rstrip("."), error["details"]) if part
            )
            lines.append(f"{prompt[node_id]['class_type']} (node {node_id}): {told}")
    return "\n".join(lines)


def upstream(prompt: Mapping[str, Mapping[str, Any]], outputs: Any) -> set[str]:
    """The nodes that some outputs need, themselves included."""
    found: set[str] = set()
    waiting = list(outputs)
    while waiting:
        node_id = waiting.pop()
        if node_id in found or node_id not in prompt:
            continue
        found.add(node_id)
        values = prompt[node_id]["inputs"].values()
        waiting.extend(value[0] for value in values if is_link(value))
    return found


def check_prompt(services: Services, document: Any, targets: Any = None) -> Checked:
    """Check a prompt; `targets` limits which outputs are wanted.

    Raises: Refused if nothing of it can run.
    """
    prompt = _nodes_of(document)
    outputs = tuple(
        node_id
        for node_id, node in prompt.items()
        if declarations.is_output(node["class_type"]) and (targets is None or node_id in targets)
    )
    if not outputs:
        raise Refused("prompt_no_outputs", "Prompt has no outputs")
    checked = Checked(prompt, outputs, wanted=outputs)
    needed = upstream(prompt, outputs)
    refreshed = False
    for node_id in prompt:
        if node_id not in needed:
            continue
        errors = list(_Check(services, prompt, node_id).errors())
        if not refreshed and any(error["type"] == "value_not_in_list" for error in errors):
            # A file that was put there a moment ago: look again before saying no.
            refreshed = True
            services.catalog.refresh()
            errors = list(_Check(services, prompt, node_id).errors())
        if errors:
            checked.faults[node_id] = errors
    _add_rings(checked, needed)
    checked.keep_good()
    return checked


def _add_rings(checked: Checked, needed: set[str]) -> None:
    within = {node_id: checked.prompt[node_id] for node_id in needed}
    for group in cyclic_nodes(within):
        shown = " -> ".join([*group, group[0]])
        error = fault("dependency_cycle", "Dependency cycle detected", shown)
        checked.faults.setdefault(group[0], []).append(error)


def _nodes_of(document: Any) -> Prompt:
    """The nodes with only the keys that count.  Raises: Refused."""
    if not isinstance(document, Mapping):
        raise Refused("no_prompt", "No prompt provided", "No prompt provided")
    prompt: Prompt = {}
    for node_id, node in document.items():
        kind = node.get("class_type") if isinstance(node, Mapping) else None
        if not isinstance(kind, str):
            message = f"Node {node_id} has no class_type, so it cannot be run."
            raise Refused(
                "missing_node_type",
                message,
                f"Node ID '#{node_id}'",
                extra={"node_id": node_id, "class_type": None, "node_title": None},
            )
        inputs, meta = node.get("inputs"), node.get("_meta")
        prompt[node_id] = {
            "class_type": kind,
            "inputs": dict(inputs) if isinstance(inputs, Mapping) else {},
            "_meta": dict(meta) if isinstance(meta, Mapping) else {},
        }
        if kind not in entries():
            raise _missing(node_id, kind, prompt[node_id])
    return prompt


def _missing(node_id: str, kind: str, node: Mapping[str, Any]) -> Refused:
    title = str(node["_meta"].get("title") or kind)
    why = "cannot be run here" if declarations.is_known(kind) else "is not known here"
    return Refused(
        "missing_node_type",
        f"Node {title!r} (node {node_id}): the node type {kind!r} {why}.",
        f"Node ID '#{node_id}'",
        extra={"node_id": node_id, "class_type": kind, "node_title": title},
    )


def fault(kind: str, message: str, details: str, **extra: Any) -> NodeError:
    """One error of a node."""
    return {"type": kind, "message": message, "details": details, "extra_info": extra}


@dataclass(slots=True)
class _Check:
    """The inputs of one node; values are cast in place."""

    services: Services
    prompt: Prompt
    node_id: str

    def errors(self) -> Iterator[NodeError]:
        """Everything that is wrong with the node itself."""
        node = self.prompt[self.node_id]
        inputs = node["inputs"]
        for name, kind, options, required in declarations.inputs_of(node["class_type"], inputs):
            if name not in inputs:
                if required:
                    message = "Required input is missing"
                    yield fault("required_input_missing", message, name, input_name=name)
                continue
            value = inputs[name]
            if isinstance(value, list):
                yield from self._link(name, kind, value)
            else:
                yield from self._value(name, kind, options, value)

    def _link(self, name: str, kind: str, value: list[Any]) -> Iterator[NodeError]:
        if not is_link(value):
            message = "Bad linked input, must be a length-2 list of [node_id, slot_index]"
            yield fault("bad_linked_input", message, name, input_name=name, received_value=value)
            return
        source, slot = value
        if source not in self.prompt:
            message = "Bad linked input, the node is not in the prompt"
            details = f"{name}: node {source}"
            yield fault("bad_linked_input", message, details, input_name=name, received_value=value)
            return
        types = declarations.output_types(self.prompt[source]["class_type"])
        if types is None:
            return
        if not 0 <= slot < len(types):
            message = f"Bad linked input, the node has {len(types)} outputs"
            details = f"{name}: node {source}, output {slot}"
            yield fault("bad_linked_input", message, details, input_name=name, received_value=value)
        elif not _fits(types[slot], kind):
            yield fault(
                "return_type_mismatch",
                "Return type mismatch between linked nodes",
                f"{name}, received_type({types[slot]}) mismatch input_type({kind})",
                input_name=name,
                input_config=[kind, {}],
                received_type=types[slot],
                linked_node=value,
            )

    def _value(self, name: str, kind: str, options: Any, value: Any) -> Iterator[NodeError]:
        if isinstance(value, Mapping) and "__value__" in value:
            return
        if kind == COMBO:
            yield from self._combo(name, options, value)
        elif kind == DYNAMIC_COMBO:
            keys = [choice["key"] for choice in options.get("options", ())]
            if value not in keys:
                yield _not_in_list(name, value, keys, [kind, dict(options)])
        elif kind in _CASTS:
            yield from self._number(name, kind, options, value)

    def _number(self, name: str, kind: str, options: Any, value: Any) -> Iterator[NodeError]:
        told = {
            "input_name": name,
            "input_config": [kind, dict(options)],
            "received_value": value,
        }
        try:
            cast = _CASTS[kind](value)
        except (ValueError, TypeError, OverflowError) as error:
            yield fault(
                "invalid_input_type",
                f"Failed to convert an input value to a {kind} value",
                f"{name}, {value}, {error}",
                **told,
                exception_message=str(error),
            )
            return
        self.prompt[self.node_id]["inputs"][name] = cast
        if kind not in {"INT", "FLOAT"}:
            return
        if "min" in options and cast < options["min"]:
            message = f"Value {cast} smaller than min of {options['min']}"
            yield fault("value_smaller_than_min", message, name, **told)
        if "max" in options and cast > options["max"]:
            message = f"Value {cast} bigger than max of {options['max']}"
            yield fault("value_bigger_than_max", message, name, **told)

    def _combo(self, name: str, options: Any, value: Any) -> Iterator[NodeError]:
        class_type = self.prompt[self.node_id]["class_type"]
        if (class_type, name) in INPUT_FILES:
            yield from self._input_file(name, value)
            return
        declared = options.get("options", ())
        folder = model_folder(class_type, name)
        if not declared and folder is None:
            # A list that only the other server has; what reads it says what it cannot use.
            return
        choices = offered(self.services, class_type, name, declared)
        wanted = value
        if folder is not None and isinstance(value, str):
            wanted = value.replace("\\", "/")
        if wanted not in choices:
            yield _not_in_list(name, value, choices, [COMBO, {}])

    def _input_file(self, name: str, value: Any) -> Iterator[NodeError]:
        try:
            self._look_up(str(value))
        except InlineError as error:
            yield fault(
                "custom_validation_failed",
                "Custom validation failed for node",
                f"{name} - Invalid file: {value}: {error.message}",
                input_name=name,
                received_value=value,
            )

    def _look_up(self, value: str) -> None:
        """Raises: NotFound, Forbidden."""
        plain, place = annotated(value)
        take_id = take_id_in(plain)
        if take_id is not None and place in {"output", "temp"}:
            self.services.queries.take(take_id)
            return
        input_file(self.services.settings.input_folder, plain)


def _not_in_list(name: str, value: Any, choices: list[Any], config: list[Any]) -> NodeError:
    shown = f"(list of length {len(choices)})" if len(choices) > _SHOWN_OPTIONS else f"{choices}"
    return fault(
        "value_not_in_list",
        "Value not in list",
        f"{name}: '{value}' not in {shown}",
        input_name=name,
        input_config=config,
        received_value=value,
    )


def _fits(received: str, wanted: str) -> bool:
    """Whether an output of one type may go into an input of another."""
    if received in _LOOSE or wanted in _LOOSE:
        return True
    if wanted == COMBO:
        return received in {COMBO, "STRING"}
    given = {part.strip() for part in received.split(",")}
    taken = {part.strip() for part in wanted.split(",")}
    return _ANY in given | taken or given <= taken or bool(given & taken)
