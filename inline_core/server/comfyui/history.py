"""Stored runs as ComfyUI's history, queue and jobs tell of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from inline_core.errors import NotFound
from inline_core.importers.comfyui.converting import prompt_node_of
from inline_core.runs.events import EventType
from inline_core.runs.queries import RunFilter
from inline_core.runs.records import RunHead, RunView
from inline_core.runs.states import NodeState, RunStatus
from inline_core.server.comfyui.outputs import outputs_of
from inline_core.server.comfyui.record import TAG, PromptRecord, record_of
from inline_core.server.services import Services
from inline_core.server.wire import take_json

MAX_ENTRIES: Final = 1000
_FINAL: Final = tuple(status for status in RunStatus if status.is_final)


def entry_of(services: Services, prompt_id: str) -> dict[str, Any]:
    """The history of one prompt by its id; empty while it is not finished, or unknown."""
    found = run_of(services, prompt_id)
    if found is None or not found[0].head.status.is_final:
        return {}
    view, record = found
    return {record.prompt_id: _entry(services, view, record)}


def history(services: Services, max_items: int | None, offset: int | None) -> dict[str, Any]:
    """Finished prompts, oldest first: the newest `max_items`, or that many from `offset` on."""
    heads = finished_heads(services)
    if offset is not None and offset >= 0:
        heads = heads[offset:]
        heads = heads if max_items is None else heads[:max_items]
    elif max_items is not None:
        heads = heads[-max_items:] if max_items > 0 else []
    found: dict[str, Any] = {}
    for head in heads:
        record = record_of(head)
        if record is None:
            continue
        try:
            view = services.queries.run(head.id)
        except NotFound:
            # Deleted a moment ago.
            continue
        found[record.prompt_id] = _entry(services, view, record)
    return found


def finished_heads(services: Services) -> list[RunHead]:
    """The newest finished prompts, oldest first."""
    wanted = RunFilter(_FINAL, TAG)
    return services.queries.page(wanted, limit=MAX_ENTRIES, before=None)[:MAX_ENTRIES][::-1]


def run_of(services: Services, prompt_id: str) -> tuple[RunView, PromptRecord] | None:
    """The run of a prompt; None if there is none, or it was taken out of the history."""
    run_id = services.queries.run_of_client(prompt_id)
    if run_id is None:
        return None
    try:
        view = services.queries.run(run_id)
    except NotFound:
        return None
    record = record_of(view.head)
    return (view, record) if record is not None and TAG in view.head.tags else None


def unfinished(services: Services) -> Iterator[tuple[RunHead, PromptRecord]]:
    """Running prompts, then waiting ones in the order in which they will start."""
    for head in services.queries.unfinished():
        record = record_of(head)
        if record is not None and TAG in head.tags:
            yield head, record


def queue(services: Services) -> dict[str, Any]:
    """Running and waiting prompts."""
    rows = list(unfinished(services))
    running = [record.row() for head, record in rows if head.status is RunStatus.RUNNING]
    waiting = [record.row() for head, record in rows if head.status is not RunStatus.RUNNING]
    return {"queue_running": running, "queue_pending": waiting}


def _entry(services: Services, view: RunView, record: PromptRecord) -> dict[str, Any]:
    outputs = outputs_of(
        record, [take_json(take) for take in view.takes], texts_of(services, view.head.id)
    )
    done = view.head.status is RunStatus.DONE
    return {
        "prompt": record.row(),
        "outputs": outputs,
        "status": {
            "status_str": "success" if done else "error",
            "completed": done,
            "messages": [list(message) for message in messages_of(view, record)],
        },
        "meta": {node_id: node_meta(node_id) for node_id in outputs},
    }


def texts_of(services: Services, run_id: str) -> dict[str, str]:
    """The texts that nodes of a run showed."""
    return {
        event.payload["nodeId"]: event.payload["text"]
        for event in services.log.after(run_id, 0)
        if event.type is EventType.NODE_DONE and "text" in event.payload
    }


def node_meta(node_id: str) -> dict[str, Any]:
    """Where a node stands; ids inside subgraphs are shown as they are."""
    return {
        "node_id": node_id,
        "display_node": node_id,
        "parent_node": None,
        "real_node_id": node_id,
    }


def messages_of(view: RunView, record: PromptRecord) -> Iterator[tuple[str, dict[str, Any]]]:
    """What the socket told of a finished run, as far as the history keeps it."""
    head = view.head
    told = {"prompt_id": record.prompt_id}
    if head.started_at_ms is not None:
        yield "execution_start", {**told, "timestamp": head.started_at_ms}
        cached = nodes_in(view, {NodeState.CACHED})
        yield "execution_cached", {"nodes": cached, **told, "timestamp": head.started_at_ms}
    at = {"timestamp": head.finished_at_ms}
    if head.status is RunStatus.DONE:
        yield "execution_success", {**told, **at}
    elif head.status is RunStatus.CANCELLED:
        yield "execution_interrupted", {**interrupted(record, None, _complete(view)), **at}
    else:
        error = head.error
        message = error.message if error is not None else "The run failed."
        node = error.node_id if error is not None else None
        code = error.code if error is not None else "internal"
        yield "execution_error", {**failed(record, node, _complete(view), code, message), **at}


def _complete(view: RunView) -> list[str]:
    return nodes_in(view, {NodeState.DONE, NodeState.CACHED})


def nodes_in(view: RunView, states: set[NodeState]) -> list[str]:
    """The prompt's nodes all of whose parts are in one of these states."""
    parts: dict[str, bool] = {}
    for node_id in view.body.order:
        known = view.nodes.get(node_id)
        fits = known is not None and known.state in states
        name = prompt_node_of(node_id)
        parts[name] = parts.get(name, True) and fits
    return [name for name, fits in parts.items() if fits]


def failed(
    record: PromptRecord, node: str | None, executed: Iterable[str], code: str, message: str
) -> dict[str, Any]:
    """An `execution_error`; a traceback is for our log, not for clients."""
    node_id = prompt_node_of(node) if node is not None else None
    return {
        "prompt_id": record.prompt_id,
        "node_id": node_id,
        "node_type": record.class_type(node_id),
        "executed": list(executed),
        "exception_message": message,
        "exception_type": code,
        "traceback": [],
        "current_inputs": dict(_inputs(record, node_id)),
        "current_outputs": [],
    }


def _inputs(record: PromptRecord, node_id: str | None) -> Mapping[str, Any]:
    found = record.prompt.get(node_id or "", {}).get("inputs", {})
    return found if isinstance(found, Mapping) else {}


def interrupted(
    record: PromptRecord, node_id: str | None, executed: Iterable[str]
) -> dict[str, Any]:
    """An `execution_interrupted`."""
    return {
        "prompt_id": record.prompt_id,
        "node_id": node_id,
        "node_type": record.class_type(node_id),
        "executed": list(executed),
    }
