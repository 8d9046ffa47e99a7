"""The spec of a node is read from its signature, and the function stays a function."""

from __future__ import annotations

from typing import Annotated, Any, cast

import pytest

from inline_core.graph.ports import PortKind
from inline_core.nodes.base import NodeContext, Param, Port, node, spec_of, title_of
from inline_core.nodes.registry import node_specs


@node(
    "test/sum",
    title="Sum",
    category="Test",
    outputs=[Port(PortKind.TEXT, "Total"), Port(PortKind.TEXT, id="twice")],
)
def total(
    ctx: NodeContext,
    first: str,
    model: Annotated[Any, Port(PortKind.MODEL)] = None,
    *,
    times: Annotated[int, Param(min=1, max=3)] = 2,
    model_: Annotated[str, Param(options_from="vae")] = "",
) -> tuple[str, str]:
    """Join."""
    return first * times + model_, f"{model}"


def test_ports_and_params_come_from_the_signature() -> None:
    spec = spec_of(total)
    assert [(port.id, port.kind, port.required) for port in spec.inputs] == [
        ("first", PortKind.TEXT, True),
        ("model", PortKind.MODEL, False),
    ]
    assert [(port.id, port.label) for port in spec.outputs] == [
        ("text", "Total"),
        ("twice", "Twice"),
    ]
    assert [(param.key, param.widget, param.integer) for param in spec.params] == [
        ("times", "number", True),
        ("model", "select", False),
    ]
    result = spec.run(cast("Any", None), {"first": "ab"}, {"times": 2, "model": "!"})
    assert result == {"text": "abab!", "twice": "None"}
    assert total(None, "x") == ("xx", "None")


def test_a_port_without_a_kind_is_refused() -> None:
    with pytest.raises(TypeError, match="no port kind"):

        @node("test/bad", title="Bad", category="Test")
        def bad(ctx: NodeContext, thing: dict[str, int]) -> None:
            """Bad."""


def test_every_node_is_documented_and_titles_read_well() -> None:
    for spec in node_specs().values():
        assert spec.doc.endswith((".", ".\n")), spec.type
    assert title_of("text_encoder") == "Text encoder"
    assert spec_of(total).doc == "Join."
