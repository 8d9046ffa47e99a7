"""What a stored run remembers of the prompt it was made from: enough to tell of it ever after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from inline_core.runs.records import RunHead

TAG: Final = "comfyui"
"""The tag of runs that came through this API; a cleared history takes it off them."""
_KEY: Final = "comfyui"


@dataclass(frozen=True, slots=True)
class PromptRecord:
    """One prompt.  `sinks` are the nodes of the graph by the prompt's output node."""

    prompt_id: str
    number: float
    prompt: Mapping[str, Any]
    extra_data: Mapping[str, Any]
    client_id: str | None
    outputs: tuple[str, ...]
    sinks: Mapping[str, tuple[str, ...]]

    def meta(self) -> dict[str, Any]:
        """As a run keeps it."""
        return {
            _KEY: {
                "promptId": self.prompt_id,
                "number": self.number,
                "prompt": dict(self.prompt),
                "extraData": dict(self.extra_data),
                "clientId": self.client_id,
                "outputs": list(self.outputs),
                "sinks": {node_id: list(nodes) for node_id, nodes in self.sinks.items()},
            }
        }

    def row(self) -> list[Any]:
        """As queue and history list it."""
        return [
            self.number,
            self.prompt_id,
            dict(self.prompt),
            dict(self.extra_data),
            list(self.outputs),
        ]

    def class_type(self, node_id: str | None) -> str:
        """The type of one of its nodes, or nothing."""
        return str(self.prompt.get(node_id or "", {}).get("class_type", ""))


def record_of(head: RunHead) -> PromptRecord | None:
    """The prompt of a run; None for runs that came another way."""
    kept = head.meta.get(_KEY)
    if not isinstance(kept, Mapping) or "promptId" not in kept:
        return None
    return PromptRecord(
        prompt_id=kept["promptId"],
        number=kept["number"],
        prompt=kept["prompt"],
        extra_data=kept["extraData"],
        client_id=kept["clientId"],
        outputs=tuple(kept["outputs"]),
        sinks={node_id: tuple(nodes) for node_id, nodes in kept["sinks"].items()},
    )
