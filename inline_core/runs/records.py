"""Rows of the run database as immutable data, and their ids."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from inline_core.runs.states import NodeState, RunStatus
from inline_core.takes.take import Take


def now_ms() -> int:
    """Epoch time in milliseconds."""
    return time.time_ns() // 1_000_000


def new_run_id() -> str:
    """`run_` and 12 hex digits."""
    return f"run_{secrets.token_hex(6)}"


def new_take_id() -> str:
    """`take_` and 12 hex digits."""
    return f"take_{secrets.token_hex(6)}"


@dataclass(frozen=True, slots=True)
class NewRun:
    """A checked submission, ready to be stored.

    `order` lists the node ids of the closure in execution order; `params` are the effective params
    of each of them (defaults and seeds resolved), so that a recovered run does exactly the same.
    `targets` are all that were asked for, where that is more than the one `target`.
    """

    graph: Mapping[str, Any]
    graph_hash: str
    target: str
    order: tuple[str, ...]
    params: Mapping[str, Mapping[str, Any]]
    seeds: Mapping[str, int]
    client_run_id: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    priority: int = 0
    force: bool = False
    warnings: tuple[Mapping[str, Any], ...] = ()
    retry_of: str | None = None
    targets: tuple[str, ...] = ()
    id: str = field(default_factory=new_run_id)


@dataclass(frozen=True, slots=True)
class RunError:
    """Why a run failed; `message` is safe to show."""

    code: str
    message: str
    node_id: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunHead:
    """A run without its graph: what lists and status replies need."""

    id: str
    status: RunStatus
    target: str
    client_run_id: str | None
    priority: int
    position: int
    attempt: int
    node_count: int
    nodes_complete: int
    tags: tuple[str, ...]
    meta: Mapping[str, Any]
    error: RunError | None
    created_at_ms: int
    started_at_ms: int | None
    finished_at_ms: int | None
    retry_of: str | None
    queue_position: int | None = None


@dataclass(frozen=True, slots=True)
class RunBody:
    """What the engine needs to execute a run."""

    graph: Mapping[str, Any]
    order: tuple[str, ...]
    params: Mapping[str, Mapping[str, Any]]
    seeds: Mapping[str, int]
    force: bool
    priority: int = 0
    targets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """The durable state of one node of a run; nodes not yet touched have no row."""

    node_id: str
    state: NodeState
    started_at_ms: int | None = None
    finished_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class RunView:
    """One consistent look at a run; `seq` is the last event it includes."""

    head: RunHead
    body: RunBody
    nodes: Mapping[str, NodeRecord]
    takes: tuple[Take, ...]
    warnings: tuple[Mapping[str, Any], ...]
    seq: int


@dataclass(frozen=True, slots=True)
class AssetRecord:
    """An upload; its id is `sha256-` and the hash of its bytes."""

    id: str
    sha256: str
    kind: str
    media_type: str
    extension: str
    size_bytes: int
    width: int | None
    height: int | None
    duration_s: float | None
    name: str | None
    created_at_ms: int
