"""Writes of the run lifecycle on a real file."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from inline_core.errors import Conflict, NotFound, QueueFull, Unavailable
from inline_core.runs.database import Database, Transaction
from inline_core.runs.journal import Journal, NodeOutcome
from inline_core.runs.log import EventLog
from inline_core.runs.queries import Queries
from inline_core.runs.records import NewRun, RunError
from inline_core.runs.states import NodeState, RunStatus


class Store:
    def __init__(self, path: Path) -> None:
        self.database = Database(path)
        self.database.open()
        self.queries = Queries(self.database)
        self.log = EventLog(self.queries)
        self.database.on_commit(self.log.published)
        self.journal = Journal(self.database, max_queue=5, max_attempts=2)

    def submit(self, **changes: Any) -> str:
        return self.journal.submit([new(**changes)]).result()[0].run_id

    def kinds(self, run_id: str) -> list[str]:
        return [event.type.value for event in self.log.after(run_id, 0)]


def new(**changes: Any) -> NewRun:
    values: dict[str, Any] = {
        "graph": {}, "graph_hash": "h", "target": "a", "order": ("a",), "params": {"a": {}}, "seeds": {},
    }  # fmt: skip
    return NewRun(**{**values, **changes})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "runs.db")
    yield opened
    opened.database.close()


def test_claims_follow_priority_then_age(store: Store) -> None:
    first, second, urgent = store.submit(), store.submit(), store.submit(priority=1)
    claimed = [store.journal.claim().result() for _ in range(4)]
    assert claimed == [urgent, first, second, None]


def test_all_or_none_of_a_batch(store: Store) -> None:
    with pytest.raises(QueueFull):
        store.journal.submit([new() for _ in range(6)]).result()
    assert store.queries.counts()["queued"] == 0
    store.journal.submit([new() for _ in range(5)]).result()
    with pytest.raises(QueueFull):
        store.submit()


def test_recovery_counts_attempts(store: Store) -> None:
    run_id = store.submit()
    waiting = store.submit()
    store.journal.claim().result()
    assert store.journal.recover().result().requeued == (run_id,)
    assert store.journal.claim().result() == run_id
    recovered = store.journal.recover().result()
    assert recovered.interrupted == (run_id,)
    assert recovered.queued == 1
    assert store.queries.run(run_id).head.error is not None
    assert store.kinds(run_id) == ["queued", "run_started", "queued", "run_started", "error"]
    assert store.queries.status(waiting) is RunStatus.QUEUED


def test_a_final_run_never_changes(store: Store) -> None:
    run_id = store.submit()
    store.journal.claim().result()
    assert store.journal.finish(run_id).result() is True
    assert store.journal.fail(run_id, RunError("x", "y", "a")).result() is False
    assert store.journal.cancelled(run_id).result() is False
    outcome = NodeOutcome("a", NodeState.DONE)
    assert store.journal.nodes_changed(run_id, [outcome]).result() is False
    assert store.kinds(run_id) == ["queued", "run_started", "run_done"]


def test_cancelling_says_what_the_run_was(store: Store) -> None:
    queued = store.submit()
    assert store.journal.cancel_if_queued(queued).result() is RunStatus.QUEUED
    assert store.journal.cancel_if_queued(queued).result() is RunStatus.CANCELLED
    with pytest.raises(NotFound):
        store.journal.cancel_if_queued("run_x").result()
    with pytest.raises(Conflict):
        store.journal.reorder([queued]).result()


def test_one_bad_write_does_not_undo_its_neighbours(store: Store) -> None:
    def bad(_: Transaction) -> None:
        message = "bad"
        raise ValueError(message)

    futures: list[Future[Any]] = [store.journal.submit([new()])]
    futures.append(store.database.write(bad))
    futures.append(store.journal.submit([new()]))
    assert futures[0].result()
    assert futures[1].exception() is not None
    assert futures[2].result()
    assert store.queries.counts()["queued"] == 2


def test_sequence_numbers_are_never_used_twice(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.db")
    run_id = store.submit()
    last = store.log.after(run_id, 0)[-1].seq
    store.database.write(
        lambda transaction: transaction.connection.exec_driver_sql("DELETE FROM run_events")
    ).result()
    store.database.close()
    again = Store(tmp_path / "runs.db")
    other = again.submit()
    assert again.log.after(other, 0)[0].seq > last
    again.database.close()


def test_writes_after_close_are_refused(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.db")
    store.database.close()
    with pytest.raises(Unavailable):
        store.submit()


def test_the_log_in_memory_equals_the_log_on_disk(store: Store) -> None:
    run_id = store.submit()
    store.journal.claim().result()
    for number in range(3):
        store.journal.nodes_changed(run_id, [], f"n{number}").result()
    assert store.log.after(run_id, 0) == store.queries.events_after(run_id, 0)
    middle = store.log.after(run_id, 0)[2].seq
    assert store.log.after(run_id, middle) == store.queries.events_after(run_id, middle)
