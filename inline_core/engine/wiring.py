"""What arrives at the input ports of a node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from inline_core.errors import InvalidParam
from inline_core.graph.model import Edge, Node
from inline_core.graph.params import ParamRefused, wired_value
from inline_core.graph.spec import NodeSpec
from inline_core.media.values import Clip, Image, ImageBatch, Waveform


def wired(node: Node, spec: NodeSpec, value_of: Callable[[Edge], Any]) -> dict[str, Any]:
    """Port id -> value of every wired port; list ports get a flat list of all that is wired."""
    values: dict[str, Any] = {}
    for port in spec.inputs:
        edges = node.inputs.get(port.id, ())
        if not edges:
            continue
        found = [value_of(edge) for edge in edges]
        if port.kind.is_list:
            values[port.id] = [part for value in found for part in (images_of(value) or (value,))]
        else:
            values[port.id] = found[0]
    return values


def wired_params(node: Node, spec: NodeSpec, value_of: Callable[[Edge], Any]) -> dict[str, Any]:
    """Key -> value of every param that an edge leads to.

    Raises: InvalidParam for a value that the param does not take.
    """
    values: dict[str, Any] = {}
    for key in spec.wired_params(node.inputs):
        param = spec.param(key)
        if param is None or not node.inputs[key]:
            continue
        try:
            values[key] = wired_value(param, value_of(node.inputs[key][0]))
        except ParamRefused as refused:
            message = f"What is wired to {key!r} {refused.reason}."
            raise InvalidParam(message, param=key, node_id=node.id) from refused
    return values


def images_of(value: object) -> tuple[Image, ...]:
    """The pictures of an output: one, several, or none."""
    if isinstance(value, Image):
        return (value,)
    if isinstance(value, ImageBatch):
        return value.images
    return ()


def media_of(value: object) -> tuple[Image | Clip | Waveform, ...]:
    """What of an output becomes takes: pictures, videos, sounds (one or several), or nothing."""
    if isinstance(value, Clip | Waveform):
        return (value,)
    if isinstance(value, tuple | list):
        return tuple(part for entry in value for part in media_of(entry))
    return images_of(value)
