"""What flows along the links of a prompt while it is converted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Wire:
    """An output of a node of ours: known only when the graph runs."""

    node_id: str
    output: str

    @property
    def edge(self) -> dict[str, str]:
        """As a graph document has it."""
        return {"from": self.node_id, "output": self.output}


@dataclass(frozen=True, slots=True)
class Constant:
    """A value known at import.

    Numbers, texts, booleans, and what ComfyUI passes around as objects but is only a few settings:
    noise, samplers, guiders.  `origin` is the (node, input) of the prompt that it was written at.
    """

    value: Any
    origin: tuple[str, str] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Broken:
    """An output of a node that cannot be converted; whatever uses it cannot be either."""

    node_id: str


@dataclass(frozen=True, slots=True)
class Several:
    """Outputs that are one link in ComfyUI and several of ours, by name (a model and its shift)."""

    parts: Mapping[str, Value]


Value = Wire | Constant | Broken | Several
