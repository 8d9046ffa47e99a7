"""Between table rows and records: the one place that knows both."""

from __future__ import annotations

from typing import Any

from sqlalchemy import RowMapping

from inline_core.media.kinds import MediaKind
from inline_core.runs.events import Event, EventType
from inline_core.runs.records import (
    AssetRecord,
    NewRun,
    NodeRecord,
    RunBody,
    RunError,
    RunHead,
)
from inline_core.runs.states import NodeState, RunStatus
from inline_core.runs.tables import runs
from inline_core.takes.take import Take

HEAD_COLUMNS = tuple(
    runs.c[name]
    for name in (
        "id",
        "status",
        "target",
        "client_run_id",
        "priority",
        "position",
        "attempt",
        "node_count",
        "nodes_complete",
        "meta",
        "error_code",
        "error_message",
        "error_node_id",
        "error_details",
        "created_at_ms",
        "started_at_ms",
        "finished_at_ms",
        "retry_of",
    )
)


def run_values(new: NewRun, position: int, at_ms: int) -> dict[str, Any]:
    """The row of a fresh, queued run."""
    return {
        "id": new.id,
        "client_run_id": new.client_run_id,
        "status": RunStatus.QUEUED.value,
        "target": new.target,
        "targets": list(new.targets) or None,
        "graph": new.graph,
        "graph_hash": new.graph_hash,
        "node_order": list(new.order),
        "params": new.params,
        "seeds": new.seeds,
        "meta": new.meta,
        "warnings": list(new.warnings),
        "force": int(new.force),
        "priority": new.priority,
        "position": position,
        "attempt": 0,
        "node_count": len(new.order),
        "nodes_complete": 0,
        "retry_of": new.retry_of,
        "created_at_ms": at_ms,
    }


def head_from(row: RowMapping, tags: tuple[str, ...], queue_position: int | None) -> RunHead:
    """A run without its graph."""
    error = None
    if row["error_code"] is not None:
        error = RunError(
            row["error_code"],
            row["error_message"] or "",
            row["error_node_id"],
            row["error_details"] or {},
        )
    return RunHead(
        id=row["id"],
        status=RunStatus(row["status"]),
        target=row["target"],
        client_run_id=row["client_run_id"],
        priority=row["priority"],
        position=row["position"],
        attempt=row["attempt"],
        node_count=row["node_count"],
        nodes_complete=row["nodes_complete"],
        tags=tags,
        meta=row["meta"],
        error=error,
        created_at_ms=row["created_at_ms"],
        started_at_ms=row["started_at_ms"],
        finished_at_ms=row["finished_at_ms"],
        retry_of=row["retry_of"],
        queue_position=queue_position,
    )


def body_from(row: RowMapping) -> RunBody:
    """What the engine executes."""
    return RunBody(
        graph=row["graph"],
        order=tuple(row["node_order"]),
        params=row["params"],
        seeds=row["seeds"],
        force=bool(row["force"]),
        priority=int(row["priority"]),
        targets=tuple(row["targets"] or (row["target"],)),
    )


def node_from(row: RowMapping) -> NodeRecord:
    """The durable state of one node."""
    return NodeRecord(
        row["node_id"], NodeState(row["state"]), row["started_at_ms"], row["finished_at_ms"]
    )


def event_from(row: RowMapping) -> Event:
    """One event of the log."""
    return Event(row["seq"], row["run_id"], EventType(row["type"]), row["payload"], row["at_ms"])


def take_values(take: Take) -> dict[str, Any]:
    """The row of a take."""
    return {
        "id": take.id,
        "run_id": take.run_id,
        "node_id": take.node_id,
        "kind": take.kind.value,
        "port": take.port,
        "extension": take.extension,
        "sha256": take.sha256,
        "size_bytes": take.size_bytes,
        "width": take.width,
        "height": take.height,
        "duration_s": take.duration_s,
        "params": take.params,
        "provenance": take.provenance,
        "created_at_ms": take.created_at_ms,
        "deleted_at_ms": take.deleted_at_ms,
        "fps": take.fps,
        "sample_rate_hz": take.sample_rate_hz,
        "has_sound": None if take.has_sound is None else int(take.has_sound),
        "poster": take.poster,
    }


def take_from(row: RowMapping) -> Take:
    """A take as stored."""
    return Take(
        id=row["id"],
        run_id=row["run_id"],
        node_id=row["node_id"],
        kind=MediaKind(row["kind"]),
        extension=row["extension"],
        sha256=row["sha256"],
        size_bytes=row["size_bytes"],
        params=row["params"],
        created_at_ms=row["created_at_ms"],
        provenance=row["provenance"],
        port=row["port"],
        width=row["width"],
        height=row["height"],
        duration_s=row["duration_s"],
        deleted_at_ms=row["deleted_at_ms"],
        fps=row["fps"],
        sample_rate_hz=row["sample_rate_hz"],
        has_sound=None if row["has_sound"] is None else bool(row["has_sound"]),
        poster=row["poster"],
    )


def asset_from(row: RowMapping) -> AssetRecord:
    """An upload as stored."""
    return AssetRecord(
        id=row["id"],
        sha256=row["sha256"],
        kind=row["kind"],
        media_type=row["media_type"],
        extension=row["extension"],
        size_bytes=row["size_bytes"],
        width=row["width"],
        height=row["height"],
        duration_s=row["duration_s"],
        name=row["name"],
        created_at_ms=row["created_at_ms"],
    )
