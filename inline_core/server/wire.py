"""The JSON of the wire: how specs, runs, takes and events look to a client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from inline_core.engine.progress import NodeProgress, Overview
from inline_core.graph.spec import NodeSpec, ParamSpec, PortSpec
from inline_core.runs.events import Event, EventType
from inline_core.runs.records import AssetRecord, RunError, RunHead, RunView
from inline_core.runs.states import NodeState, RunStatus
from inline_core.takes.take import Take


class Options(Protocol):
    """The models folder, as far as descriptors go."""

    def options(self, category: str, family: str | None = None) -> Sequence[str]:
        """Ready files of a category, of a family if one is named."""

    def variant_defaults(self, family: str, name: str = "") -> Mapping[str, Any]:
        """Defaults of the model that would be picked."""


def descriptor(spec: NodeSpec, models: Options) -> dict[str, Any]:
    """A node type, as `/v1/models` lists it."""
    variant = models.variant_defaults(spec.family) if spec.family else {}
    body: dict[str, Any] = {
        "type": spec.type,
        "title": spec.title,
        "category": spec.category,
        "icon": spec.icon,
        "source": spec.source,
        "outputKind": spec.output_kind,
        "inputs": [_port(port) for port in spec.inputs],
        "outputs": [_port(port) for port in spec.outputs],
        "params": [
            _param(param, spec, models, variant) for param in spec.params if param.widget != "asset"
        ],
        "doc": spec.doc,
        "version": spec.version,
    }
    if spec.hidden:
        body["hidden"] = True
    return body


def _port(port: PortSpec) -> dict[str, Any]:
    return {
        "id": port.id,
        "label": port.label,
        "kind": port.kind.value,
        "required": port.required,
    }


def _param(
    param: ParamSpec, spec: NodeSpec, models: Options, variant: Mapping[str, Any]
) -> dict[str, Any]:
    default = param.default
    if param.variant_default is not None:
        default = variant.get(param.variant_default, default)
    body: dict[str, Any] = {
        "key": param.key,
        "label": param.label,
        "widget": param.widget,
        "default": default,
    }
    limits = {"min": param.min, "max": param.max, "step": param.step}
    body |= {key: value for key, value in limits.items() if value is not None}
    if param.options:
        body["options"] = [
            {"value": option.value, "label": option.label} for option in param.options
        ]
    if param.options_from is not None:
        body["optionsFrom"] = param.options_from
        names = models.options(param.options_from, spec.family)
        if names:
            body["options"] = [{"value": name, "label": name} for name in names]
    if param.advanced:
        body["advanced"] = True
    if param.on_face:
        body["onFace"] = True
    body["kind"] = param.kind
    return body


def take_json(take: Take) -> dict[str, Any]:
    """A take; `uri` is relative to `/v1/` and ends in the extension.

    What does not apply to its kind is left out (`durationMs`, `fps`, `posterUri`, ...).
    """
    body: dict[str, Any] = {
        "id": take.id,
        "runId": take.run_id,
        "nodeId": take.node_id,
        "kind": take.kind.value,
        "uri": take.uri,
        "hash": f"sha256-{take.sha256}",
        "params": dict(take.params),
        "createdAt": take.created_at_ms,
        "bytes": take.size_bytes,
        "width": take.width,
        "height": take.height,
        "provenance": dict(take.provenance),
    }
    if take.duration_s is not None:
        body["durationMs"] = round(take.duration_s * 1000)
    optional = {
        "fps": take.fps,
        "sampleRateHz": take.sample_rate_hz,
        "hasSound": take.has_sound,
        "posterUri": take.poster_uri,
    }
    body |= {key: value for key, value in optional.items() if value is not None}
    if take.deleted_at_ms is not None:
        body["deletedAt"] = take.deleted_at_ms
    return body


def asset_json(asset: AssetRecord) -> dict[str, Any]:
    """An uploaded asset."""
    return {
        "id": asset.id,
        "kind": asset.kind,
        "bytes": asset.size_bytes,
        "mediaType": asset.media_type,
        "width": asset.width,
        "height": asset.height,
        "durationMs": None if asset.duration_s is None else round(asset.duration_s * 1000),
        "name": asset.name,
        "createdAt": asset.created_at_ms,
    }


def _error(error: RunError | None) -> dict[str, Any] | None:
    if error is None:
        return None
    body: dict[str, Any] = {
        "nodeId": error.node_id,
        "message": error.message,
        "code": error.code,
    }
    if error.details:
        body["details"] = dict(error.details)
    return body


def run_fraction(head: RunHead, overview: Overview) -> float:
    """Mean of the node fractions: complete nodes count 1, the current one its progress."""
    if head.status is RunStatus.DONE or head.node_count == 0:
        return 1.0
    if head.status is RunStatus.RUNNING:
        return min(1.0, (overview.finished + overview.current) / head.node_count)
    return min(1.0, head.nodes_complete / head.node_count)


def run_head_json(head: RunHead, overview: Overview) -> dict[str, Any]:
    """A run in a list."""
    return {
        "runId": head.id,
        "status": head.status.value,
        "target": head.target,
        "fraction": run_fraction(head, overview),
        "queuePosition": head.queue_position,
        "priority": head.priority,
        "tags": list(head.tags),
        "meta": dict(head.meta),
        "attempt": head.attempt,
        "error": _error(head.error),
        "createdAt": head.created_at_ms,
        "startedAt": head.started_at_ms,
        "finishedAt": head.finished_at_ms,
    }


def run_json(view: RunView, slots: Mapping[str, NodeProgress]) -> dict[str, Any]:
    """A whole run."""
    head = view.head
    nodes = {node_id: _node_json(view, node_id, slots) for node_id in view.body.order}
    fraction = sum(node["fraction"] for node in nodes.values()) / max(1, len(nodes))
    return {
        "runId": head.id,
        "status": head.status.value,
        "target": head.target,
        "targets": list(view.body.targets),
        "fraction": 1.0 if head.status is RunStatus.DONE else fraction,
        "nodes": nodes,
        "takes": [take_json(take) for take in view.takes],
        "error": _error(head.error),
        "queuePosition": head.queue_position,
        "priority": head.priority,
        "attempt": head.attempt,
        "tags": list(head.tags),
        "meta": dict(head.meta),
        "seeds": dict(view.body.seeds),
        "warnings": [dict(entry) for entry in view.warnings],
        "clientRunId": head.client_run_id,
        "retryOf": head.retry_of,
        "createdAt": head.created_at_ms,
        "startedAt": head.started_at_ms,
        "finishedAt": head.finished_at_ms,
    }


def _node_json(view: RunView, node_id: str, slots: Mapping[str, NodeProgress]) -> dict[str, Any]:
    record = view.nodes.get(node_id)
    state = record.state if record is not None else NodeState.QUEUED
    slot = slots.get(node_id) if view.head.status is RunStatus.RUNNING else None
    if slot is not None and state is NodeState.QUEUED:
        # The walker is ahead of the database by at most one commit.
        state = NodeState.RUNNING
    fraction = 1.0 if state.is_complete else slot.fraction if slot is not None else 0.0
    body: dict[str, Any] = {"state": state.value, "fraction": fraction}
    if slot is not None and state is NodeState.RUNNING:
        body["phase"] = slot.phase
        if slot.step is not None:
            body["step"] = slot.step
            body["stepCount"] = slot.step_count
        body["status"] = slot.status
    if record is not None and record.started_at_ms is not None:
        body["startedAt"] = record.started_at_ms
    if record is not None and record.finished_at_ms is not None:
        body["finishedAt"] = record.finished_at_ms
    return body


def progress_frame(run_id: str, slot: NodeProgress) -> dict[str, Any]:
    """A fleeting progress frame; it has no `seq`."""
    frame: dict[str, Any] = {
        "type": "progress",
        "runId": run_id,
        "nodeId": slot.node_id,
        "phase": slot.phase,
        "fraction": slot.fraction,
        "status": slot.status,
    }
    if slot.step is not None:
        frame["step"] = slot.step
        frame["stepCount"] = slot.step_count
    if slot.eta_ms is not None:
        frame["etaMs"] = slot.eta_ms
    return frame


def event_frame(event: Event, takes: Mapping[str, Take]) -> dict[str, Any]:
    """The frame of a durable event; `takes` has those its payload names."""
    frame: dict[str, Any] = {"type": event.type.value, "runId": event.run_id}
    payload = dict(event.payload)
    if event.type is EventType.NODE_DONE:
        payload["takes"] = [
            take_json(takes[take_id]) for take_id in payload["takes"] if take_id in takes
        ]
    return {**frame, **payload, "seq": event.seq, "at": event.at_ms}


def snapshot_frame(
    view: RunView, slots: Mapping[str, NodeProgress], *, reset: bool = False
) -> dict[str, Any]:
    """The first frame of a stream: the whole run, and the `seq` it is true for."""
    frame: dict[str, Any] = {
        "type": "snapshot",
        "runId": view.head.id,
        "seq": view.seq,
        "state": run_json(view, slots),
    }
    if reset:
        frame["reset"] = True
    return frame
