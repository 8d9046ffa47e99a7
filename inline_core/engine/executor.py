"""Walking one run: node by node, reusing what exists, storing each result as it comes."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import structlog

from inline_core.engine.cache import ValueCache
from inline_core.engine.cancel import CancelToken
from inline_core.engine.context import RunContext
from inline_core.engine.plan import Plan, make_plan
from inline_core.engine.progress import ProgressBoard
from inline_core.engine.saving import TakeSaver, TakeSource
from inline_core.engine.take_files import values_of
from inline_core.engine.wiring import wired, wired_params
from inline_core.errors import DiskFull, InlineError, NodeFailed, OutOfMemory, RunCancelled
from inline_core.graph.fingerprint import ContentStamps
from inline_core.graph.model import Edge, Node
from inline_core.graph.spec import NodeSpec
from inline_core.media.kinds import MediaKind
from inline_core.media.png import decode_image
from inline_core.media.values import Image, ImageBatch
from inline_core.nodes.base import Components, Media, Render
from inline_core.runs.journal import Journal, NodeOutcome
from inline_core.runs.queries import Queries
from inline_core.runs.records import now_ms
from inline_core.runs.states import NodeState
from inline_core.takes.files import ContentFiles
from inline_core.takes.take import Take

_log = structlog.get_logger(__name__)
_FLUSH_AFTER_S = 0.05
_FLUSH_COUNT = 256
_MAX_TEXT = 100_000


@dataclass(frozen=True, slots=True)
class Workshop:
    """Everything a walker needs; shared by all walkers."""

    specs: Mapping[str, NodeSpec]
    journal: Journal
    queries: Queries
    render: Render
    components: Components
    media: Media
    stamps: ContentStamps
    files: ContentFiles
    saver: TakeSaver
    cache: ValueCache
    board: ProgressBoard
    max_pixels: int


@dataclass(slots=True)
class _Walk:
    """The moving parts of one run."""

    run_id: str
    token: CancelToken
    plan: Plan
    priority: int = 0
    values: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    readers: dict[str, int] = field(default_factory=dict)
    outcomes: list[NodeOutcome] = field(default_factory=list)
    writes: list[Future[bool]] = field(default_factory=list)
    flushed_at: float = field(default_factory=time.monotonic)


class Executor:
    """Executes runs, one per call of `execute`, on the calling walker thread."""

    def __init__(self, workshop: Workshop) -> None:
        self._shop = workshop

    def execute(self, run_id: str, token: CancelToken) -> None:
        """Run everything that is needed and store it; the caller settles the run.

        Raises: RunCancelled, or an `InlineError` with the node's id.
        """
        body = self._shop.queries.body(run_id)
        plan = make_plan(body, self._shop.specs, self._shop.stamps, self._existing_takes)
        walk = _Walk(run_id, token, plan, body.priority, readers=dict(plan.readers))
        for node_id in plan.order:
            token.check()
            with structlog.contextvars.bound_contextvars(node=node_id):
                self._visit(walk, node_id)
        self._flush(walk)
        for write in walk.writes:
            _confirm(write)

    def _existing_takes(self, fingerprints: list[str]) -> Mapping[str, tuple[Take, ...]]:
        """Takes made before whose files are really there."""
        found = self._shop.queries.cached_takes(fingerprints)
        return {
            fingerprint: takes
            for fingerprint, takes in found.items()
            if all(self._shop.files.path(take.sha256, take.extension).exists() for take in takes)
        }

    def _visit(self, walk: _Walk, node_id: str) -> None:
        plan, fingerprint = walk.plan, walk.plan.fingerprints[node_id]
        if node_id in plan.reused or node_id not in plan.needed:
            takes = () if node_id in plan.inner else plan.reused.get(node_id, ())
            self._finish(walk, NodeOutcome(node_id, NodeState.CACHED, takes=takes))
            return
        spec = plan.specs[plan.graph.by_id[node_id].type]
        keep = spec.cacheable and not plan.makes_takes(node_id)
        if keep and not spec.family:
            known = self._shop.cache.get(fingerprint)
            if known is not None:
                walk.values[node_id] = known
                text = _shown_text(plan, node_id, known)
                self._finish(walk, NodeOutcome(node_id, NodeState.CACHED, text=text))
                return
        self._run(walk, node_id, spec, keep=keep)

    def _run(self, walk: _Walk, node_id: str, spec: NodeSpec, *, keep: bool) -> None:
        node = walk.plan.graph.by_id[node_id]
        started_at_ms = now_ms()
        heavy = bool(spec.needs)
        if heavy:
            self._flush(walk, started=node_id)
        context = self._context(walk, node_id)
        inputs, params = self._arriving(walk, node, spec)
        outputs = self._call(walk, node, spec, context, (inputs, params))
        takes = self._save(walk, node, params, context, outputs)
        if context.warnings:
            notes = [{"nodeId": node_id, "message": text} for text in context.warnings]
            self._shop.journal.warn(walk.run_id, notes)
        if walk.readers.get(node_id):
            walk.values[node_id] = {**outputs, **values_of(takes, self._shop.files)}
        if keep:
            self._shop.cache.put(walk.plan.fingerprints[node_id], outputs)
        # An inner node has no takes to be found again by; an empty entry would hide real ones.
        remembered = spec.cacheable and node_id not in walk.plan.inner
        outcome = NodeOutcome(
            node_id,
            NodeState.DONE,
            announced=heavy,
            started_at_ms=started_at_ms,
            finished_at_ms=now_ms(),
            takes=takes,
            fingerprint=walk.plan.fingerprints[node_id] if remembered else None,
            text=_shown_text(walk.plan, node_id, outputs),
        )
        self._finish(walk, outcome)

    def _context(self, walk: _Walk, node_id: str) -> RunContext:
        shop = self._shop
        return RunContext(
            walk.run_id,
            node_id,
            token=walk.token,
            board=shop.board,
            render=shop.render,
            components=shop.components,
            media=shop.media,
            priority=walk.priority,
        )

    def _arriving(
        self, walk: _Walk, node: Node, spec: NodeSpec
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The values of a node's ports and of its params."""

        def value_of(edge: Edge) -> Any:
            return self._value(walk, edge)

        values = wired(node, spec, value_of)
        params = {**walk.plan.params[node.id], **wired_params(node, spec, value_of)}
        for edges in node.inputs.values():
            for edge in edges:
                self._read(walk, edge.source)
        return values, params

    def _value(self, walk: _Walk, edge: Edge) -> Any:
        outputs = walk.values.get(edge.source)
        if outputs is None:
            outputs = self._load_takes(walk.plan.reused[edge.source])
            walk.values[edge.source] = outputs
        return outputs[edge.output]

    def _load_takes(self, takes: tuple[Take, ...]) -> Mapping[str, Any]:
        """Outputs of a node from its stored takes; PNG is lossless, so the pixels are the same."""
        by_port: dict[str, list[Image]] = {}
        for take in takes:
            if take.kind is not MediaKind.IMAGE:
                continue
            data = self._shop.files.path(take.sha256, take.extension).read_bytes()
            image = decode_image(data, max_pixels=self._shop.max_pixels, name=f"Take {take.id}")
            by_port.setdefault(take.port, []).append(Image(image.pixels, dict(take.provenance)))
        pictures = {
            port: images[0] if len(images) == 1 else ImageBatch(tuple(images))
            for port, images in by_port.items()
        }
        return {**pictures, **values_of(takes, self._shop.files)}

    @staticmethod
    def _read(walk: _Walk, source: str) -> None:
        """One reader fewer; the value is let go after the last."""
        walk.readers[source] = walk.readers.get(source, 1) - 1
        if walk.readers[source] <= 0:
            walk.values.pop(source, None)

    def _call(
        self,
        walk: _Walk,
        node: Node,
        spec: NodeSpec,
        context: RunContext,
        arriving: tuple[Mapping[str, Any], Mapping[str, Any]],
    ) -> Mapping[str, Any]:
        """The node-call border: whatever a node raises becomes an error that names it."""
        try:
            return spec.run(context, *arriving)
        except InlineError as error:
            error.node_id = error.node_id or node.id
            raise
        except MemoryError as error:
            message = f"{spec.title} ran out of host memory. Use a smaller size or batch."
            raise OutOfMemory(message, node_id=node.id) from error
        except Exception as error:
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                message = "The disk is full. Free some space and retry."
                raise DiskFull(message, node_id=node.id) from error
            _log.exception("node failed", type=spec.type)
            message = (
                f"{spec.title} failed unexpectedly ({type(error).__name__}); the server's log has "
                f"the details under run {walk.run_id}."
            )
            raise NodeFailed(message, node_id=node.id) from error

    def _save(
        self,
        walk: _Walk,
        node: Node,
        params: Mapping[str, Any],
        context: RunContext,
        outputs: Mapping[str, Any],
    ) -> tuple[Take, ...]:
        if not walk.plan.makes_takes(node.id):
            return ()
        context.progress("save", 0.97, "Saving")
        params = {key: value for key, value in params.items() if value is not None}
        try:
            for note in self._shop.saver.notes(outputs):
                context.warn(note)
            source = TakeSource(
                walk.run_id, node.id, {**params, **context.facts}, tuple(context.warnings)
            )
            walk.token.check()
            return self._shop.saver.save(walk.plan, source, outputs, walk.token.check)
        except InlineError as error:
            error.node_id = error.node_id or node.id
            raise

    def _finish(self, walk: _Walk, outcome: NodeOutcome) -> None:
        walk.outcomes.append(outcome)
        self._shop.board.finish(walk.run_id, outcome.node_id)
        waited = time.monotonic() - walk.flushed_at
        if outcome.announced or waited > _FLUSH_AFTER_S or len(walk.outcomes) >= _FLUSH_COUNT:
            self._flush(walk)

    def _flush(self, walk: _Walk, started: str | None = None) -> None:
        """Hand finished nodes to the writer; it is not waited for, so order is kept for free."""
        if not walk.outcomes and started is None:
            return
        while walk.writes and walk.writes[0].done():
            _confirm(walk.writes.pop(0))
        outcomes, walk.outcomes = walk.outcomes, []
        write = self._shop.journal.nodes_changed(walk.run_id, outcomes, started)
        walk.writes.append(write)
        fresh = tuple(
            take
            for outcome in outcomes
            if outcome.state is NodeState.DONE
            for take in outcome.takes
        )
        if fresh:
            write.add_done_callback(_releaser(self._shop.saver, fresh))
        walk.flushed_at = time.monotonic()


def _confirm(write: Future[bool]) -> None:
    """A write that found the run settled by somebody else ends the walk."""
    if not write.result():
        raise RunCancelled


def _shown_text(plan: Plan, node_id: str, outputs: Mapping[str, Any]) -> str | None:
    """What a node shows, if that is all it is for."""
    if node_id not in plan.shown:
        return None
    return "\n".join(str(value) for value in outputs.values())[:_MAX_TEXT]


def _releaser(saver: TakeSaver, takes: tuple[Take, ...]) -> Callable[[Future[bool]], None]:
    def release(_: Future[bool]) -> None:
        saver.release(takes)

    return release
