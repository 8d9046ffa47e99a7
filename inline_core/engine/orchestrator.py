"""The life of all runs: claiming, walking, cancelling, recovering, stopping."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from inline_core.engine.cancel import CancelToken
from inline_core.engine.executor import Executor
from inline_core.engine.progress import ProgressBoard
from inline_core.errors import Conflict, DiskFull, InlineError, Internal, RunCancelled, Unavailable
from inline_core.runs.events import Event, EventType
from inline_core.runs.journal import Journal, Recovered
from inline_core.runs.library import Library
from inline_core.runs.queries import Queries
from inline_core.runs.records import RunError
from inline_core.runs.states import RunStatus

_log = structlog.get_logger(__name__)
_TICK_S = 1.0
_HANG_S = 30.0
_RETAIN_EVERY_S = 60.0
_SETTLE_RETRY_S = 1.0
PAUSED_KEY = "paused"


@dataclass(slots=True)
class _Walker:
    run_id: str
    token: CancelToken
    thread: threading.Thread


class Orchestrator:
    """One dispatcher thread, and a walker thread for each running run (at most `walkers`)."""

    def __init__(
        self,
        *,
        journal: Journal,
        library: Library,
        queries: Queries,
        executor: Executor,
        board: ProgressBoard,
        walkers: int,
        keep_runs: int = 0,
        keep_days: float = 0,
    ) -> None:
        self._journal = journal
        self._library = library
        self._queries = queries
        self._executor = executor
        self._board = board
        self._limit = walkers
        self._retention = (keep_runs, keep_days)
        self._walkers: dict[str, _Walker] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._paused = False
        self._retained_at = 0.0
        self._dispatcher = threading.Thread(target=self._dispatch, name="dispatcher", daemon=True)
        self.recovered: Recovered | None = None

    def start(self, *, paused: bool) -> Recovered:
        """Recover what a crash left, then begin to dispatch; `paused` holds the queue back."""
        recovered = self._journal.recover().result()
        self.recovered = recovered
        remembered = self._queries.state(PAUSED_KEY)
        self._paused = paused or bool(remembered)
        if recovered.requeued or recovered.interrupted:
            _log.warning(
                "recovered after an unclean stop",
                requeued=len(recovered.requeued),
                interrupted=len(recovered.interrupted),
                waiting=recovered.queued,
            )
        self._dispatcher.start()
        return recovered

    def committed(self, events: Sequence[Event]) -> None:
        """Wake the dispatcher for new work (a commit listener; writer thread)."""
        if any(event.type is EventType.QUEUED for event in events):
            self._wake.set()

    @property
    def paused(self) -> bool:
        """True while no queued run is started."""
        return self._paused

    def pause(self) -> None:
        """Start no more runs, also after a restart; running ones go on."""
        self._library.set_state(PAUSED_KEY, True).result()
        self._paused = True

    def resume(self) -> None:
        """Start queued runs again."""
        self._library.set_state(PAUSED_KEY, False).result()
        self._paused = False
        self._wake.set()

    @property
    def running(self) -> int:
        """How many runs are being walked."""
        with self._lock:
            return len(self._walkers)

    def cancel(self, run_id: str) -> None:
        """End a run: at once if it is queued, at its next step if it is running.

        Raises: NotFound, Conflict (it is finished; `details.status` says how).
        """
        before = self._journal.cancel_if_queued(run_id).result()
        if before is RunStatus.RUNNING:
            with self._lock:
                walker = self._walkers.get(run_id)
            if walker is not None:
                walker.token.cancel()
                return
            # Between the claim and its walker, or just settled: the database knows.
            self._journal.cancelled(run_id).result()
            before = self._queries.status(run_id)
            if before is RunStatus.CANCELLED:
                return
        if before.is_final:
            message = f"Run {run_id!r} is {before.value} already; it cannot be cancelled."
            raise Conflict(message, details={"status": before.value})

    def stop(self, timeout_s: float = 10.0) -> None:
        """Stop claiming, put running runs back in the queue, and wait for the walkers."""
        self._stopping.set()
        self._wake.set()
        with self._lock:
            walkers = list(self._walkers.values())
        for walker in walkers:
            walker.token.stop()
        deadline = time.monotonic() + timeout_s
        for walker in walkers:
            walker.thread.join(max(0.0, deadline - time.monotonic()))
        if self._dispatcher.is_alive():
            self._dispatcher.join(timeout_s)

    def _dispatch(self) -> None:
        while not self._stopping.is_set():
            self._wake.wait(_TICK_S)
            self._wake.clear()
            try:
                self._start_runs()
                self._replace_hanging()
                self._retain()
            except Unavailable:
                return
            except Exception:  # noqa: BLE001 - logged below
                # The worker-loop border: a full disk or a bug must not end dispatching.
                _log.exception("dispatching failed; it goes on")
                self._stopping.wait(_SETTLE_RETRY_S)

    def _start_runs(self) -> None:
        while not self._paused and not self._stopping.is_set() and self.running < self._limit:
            run_id = self._journal.claim().result()
            if run_id is None:
                return
            token = CancelToken()
            thread = threading.Thread(
                target=self._walk, args=(run_id, token), name=f"walker-{run_id}", daemon=True
            )
            with self._lock:
                self._walkers[run_id] = _Walker(run_id, token, thread)
            thread.start()

    def _walk(self, run_id: str, token: CancelToken) -> None:
        """The worker-loop border of one run: it always ends settled."""
        with structlog.contextvars.bound_contextvars(run=run_id):
            try:
                self._walk_and_settle(run_id, token)
            finally:
                with self._lock:
                    walker = self._walkers.get(run_id)
                    if walker is not None and walker.token is token:
                        del self._walkers[run_id]
                self._board.forget(run_id)
                self._wake.set()

    def _walk_and_settle(self, run_id: str, token: CancelToken) -> None:
        error: RunError | None = None
        ended = False
        try:
            _log.info("run started")
            self._executor.execute(run_id, token)
        except RunCancelled:
            ended = True
        except InlineError as failure:
            where = {"param": failure.param} if failure.param else {}
            details = {**failure.details, **where}
            error = RunError(failure.code, failure.message, failure.node_id, details)
        except Exception:  # noqa: BLE001 - logged, and the run is settled
            _log.exception("run failed")
            message = f"The server failed at run {run_id}; its log has the details."
            error = RunError(Internal.code, message)
        while not self._settle(run_id, token, error, ended=ended):
            # The disk is full: try again until there is room or the server stops.
            if self._stopping.wait(_SETTLE_RETRY_S):
                return

    def _settle(
        self, run_id: str, token: CancelToken, error: RunError | None, *, ended: bool
    ) -> bool:
        try:
            if ended and token.stopping:
                self._journal.requeue(run_id).result()
                _log.info("run put back in the queue")
            elif ended:
                self._journal.cancelled(run_id).result()
                _log.info("run cancelled")
            elif error is not None:
                self._journal.fail(run_id, error).result()
                _log.warning("run failed", code=error.code, node=error.node_id, why=error.message)
            else:
                self._journal.finish(run_id).result()
                _log.info("run done")
        except DiskFull:
            return False
        except Unavailable:
            return True
        return True

    def _replace_hanging(self) -> None:
        """A cancelled run that does not end is settled without it; its slot is free again."""
        now = time.monotonic()
        with self._lock:
            hanging = [
                walker
                for walker in self._walkers.values()
                if walker.token.cancelled_at is not None
                and now - walker.token.cancelled_at > _HANG_S
            ]
            for walker in hanging:
                del self._walkers[walker.run_id]
        for walker in hanging:
            _log.error("a cancelled run did not end; its walker was replaced", run=walker.run_id)
            self._journal.cancelled(walker.run_id).result()

    def _retain(self) -> None:
        keep_runs, keep_days = self._retention
        now = time.monotonic()
        if not (keep_runs or keep_days) or now - self._retained_at < _RETAIN_EVERY_S:
            return
        self._retained_at = now
        removed = self._library.retain(keep_runs=keep_runs, keep_days=keep_days).result()
        if removed:
            _log.info("old runs deleted", count=removed)
