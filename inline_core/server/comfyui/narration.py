"""The frames of a run told as ComfyUI's socket messages, in its order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from inline_core.importers.comfyui.converting import prompt_node_of
from inline_core.server.comfyui.history import failed, interrupted
from inline_core.server.comfyui.outputs import OVER_THE_SOCKET, outputs_of
from inline_core.server.comfyui.record import PromptRecord

Message = tuple[str, dict[str, Any]]
PICTURE: Final = "picture"
"""Not a message of its own: the take in it is sent as a binary one."""
_ENDS: Final = frozenset({"run_done", "cancelled", "error"})
_COMPLETE: Final = frozenset({"done", "cached"})


class Narration:
    """Tells one run to one client; keeps where it is, so that it can go on after a reconnect.

    A node of the prompt may be several of the graph: it begins with the first of them and is done
    with the last.
    """

    def __init__(self, record: PromptRecord, order: Sequence[str]) -> None:
        self._record = record
        self._order = tuple(order)
        self._begin()

    def _begin(self) -> None:
        self._left: dict[str, set[str]] = {}
        for node_id in self._order:
            self._left.setdefault(prompt_node_of(node_id), set()).add(node_id)
        self._fresh: set[str] = set()
        self._cached: list[str] = []
        self._told_cached = False
        self._executed: list[str] = []
        self._current: str | None = None
        self._states: dict[str, dict[str, Any]] = {}
        self._takes: dict[str, list[Mapping[str, Any]]] = {}
        self._texts: dict[str, str] = {}

    def tell(self, frame: Mapping[str, Any]) -> Iterator[Message]:
        """The messages that a frame makes."""
        kind = frame["type"]
        if kind == "queued":
            # Put back after a stop: it starts from the beginning.
            self._begin()
        elif kind == "snapshot":
            yield from self._snapshot(frame["state"])
        elif kind == "run_started":
            self._begin()
            yield "execution_start", self._stamped(frame)
        elif kind == "node_started":
            yield from self._tell_cached(frame)
            yield from self._entered(prompt_node_of(frame["nodeId"]))
        elif kind == "node_done":
            yield from self._node_done(frame)
        elif kind == "progress":
            yield from self._progress(frame)
        elif kind in _ENDS:
            yield from self._end(frame)

    def preview_node(self, node_id: str) -> dict[str, Any]:
        """What goes with a preview."""
        node = prompt_node_of(node_id)
        return {**self._place(node), "prompt_id": self._record.prompt_id}

    # ---- nodes ------------------------------------------------------------------------------

    def _entered(self, node: str) -> Iterator[Message]:
        if self._current == node:
            return
        self._current = node
        yield (
            "executing",
            {"node": node, "display_node": node, "prompt_id": self._record.prompt_id},
        )
        yield self._state(node, "running", 0, 1)

    def _node_done(self, frame: Mapping[str, Any]) -> Iterator[Message]:
        node_id = frame["nodeId"]
        node = prompt_node_of(node_id)
        self._takes.setdefault(node, []).extend(frame["takes"])
        if "text" in frame:
            self._texts[node_id] = frame["text"]
        if not frame["cached"]:
            self._fresh.add(node)
        left = self._left.setdefault(node, set())
        left.discard(node_id)
        if left:
            return
        self._executed.append(node)
        if node not in self._fresh:
            self._cached.append(node)
            if node in self._record.sinks:
                yield from self._tell_cached(frame)
        else:
            yield from self._tell_cached(frame)
            yield from self._entered(node)
        if self._record.class_type(node) == OVER_THE_SOCKET:
            for take in self._takes[node]:
                yield PICTURE, dict(take)
        elif node in self._record.sinks:
            yield "executed", self._output(node)
        if node in self._fresh:
            yield self._state(node, "finished", 1, 1)

    def _output(self, node: str) -> dict[str, Any]:
        made = outputs_of(self._record, self._takes.get(node, ()), self._texts)
        return {
            "node": node,
            "display_node": node,
            "output": made.get(node, {}),
            "prompt_id": self._record.prompt_id,
        }

    def _tell_cached(self, frame: Mapping[str, Any]) -> Iterator[Message]:
        """Nodes that were reused: always told once, and again when more come to light."""
        if self._told_cached and not self._cached:
            return
        nodes, self._cached = self._cached, []
        self._told_cached = True
        yield "execution_cached", {"nodes": nodes, **self._stamped(frame)}

    # ---- progress ---------------------------------------------------------------------------

    def _progress(self, frame: Mapping[str, Any]) -> Iterator[Message]:
        node = prompt_node_of(frame["nodeId"])
        if node != self._current or not self._left.get(node):
            # Progress may overtake the event that the node began; it comes again.
            return
        value, most = frame["fraction"], 1.0
        if frame.get("step") is not None and frame.get("stepCount"):
            value, most = frame["step"], frame["stepCount"]
            yield (
                "progress",
                {
                    "value": value,
                    "max": most,
                    "prompt_id": self._record.prompt_id,
                    "node": node,
                },
            )
        yield self._state(node, "running", value, most)

    def _state(self, node: str, state: str, value: float, most: float) -> Message:
        self._states[node] = {
            "value": value,
            "max": most,
            "state": state,
            "prompt_id": self._record.prompt_id,
            **self._place(node),
        }
        nodes = {name: dict(known) for name, known in self._states.items()}
        return "progress_state", {"prompt_id": self._record.prompt_id, "nodes": nodes}

    @staticmethod
    def _place(node: str) -> dict[str, Any]:
        return {
            "node_id": node,
            "display_node_id": node,
            "parent_node_id": None,
            "real_node_id": node,
        }

    # ---- the end ----------------------------------------------------------------------------

    def _end(self, frame: Mapping[str, Any]) -> Iterator[Message]:
        kind = frame["type"]
        record = self._record
        if kind == "run_done":
            yield from self._tell_cached(frame)
            yield "execution_success", self._stamped(frame)
        elif kind == "cancelled":
            told = interrupted(record, self._current, self._executed)
            yield "execution_interrupted", {**told, "timestamp": frame["at"]}
        else:
            told = failed(
                record, frame.get("nodeId"), self._executed, frame["code"], frame["message"]
            )
            yield "execution_error", {**told, "timestamp": frame["at"]}
        yield (
            "executing",
            {"node": None, "display_node": None, "prompt_id": record.prompt_id},
        )

    def _snapshot(self, state: Mapping[str, Any]) -> Iterator[Message]:
        """A run whose events are not to be had any more: what is known of it now."""
        self._begin()
        at = {"at": state["finishedAt"] or state["startedAt"] or state["createdAt"]}
        if state["startedAt"] is None:
            return
        yield "execution_start", self._stamped(at)
        takes: dict[str, list[Mapping[str, Any]]] = {}
        for take in state["takes"]:
            takes.setdefault(take["nodeId"], []).append(take)
        for node_id, node in state["nodes"].items():
            if node["state"] in _COMPLETE:
                made = {"nodeId": node_id, "takes": takes.get(node_id, ())}
                yield from self._node_done({**made, "cached": node["state"] == "cached", **at})
        error = state["error"] or {}
        ends = {"done": "run_done", "cancelled": "cancelled", "error": "error"}
        if state["status"] in ends:
            yield from self._end({"type": ends[state["status"]], **error, **at})

    def _stamped(self, frame: Mapping[str, Any]) -> dict[str, Any]:
        return {"prompt_id": self._record.prompt_id, "timestamp": frame["at"]}
