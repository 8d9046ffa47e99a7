from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from inline_core.devices.worker import DeviceThread
from inline_core.errors import RunCancelled, Unavailable


def test_calls_run_in_order_on_one_named_thread() -> None:
    worker = DeviceThread("device-9")
    names = [worker.call(lambda: threading.current_thread().name) for _ in range(3)]
    assert {future.result(5) for future in names} == {"device-9"}
    assert worker.call(worker.is_current).result(5)
    assert not worker.is_current()
    assert worker.close(5)


@pytest.mark.parametrize("error", [ValueError("x"), RunCancelled()])
def test_errors_reach_the_one_who_waits(error: BaseException) -> None:
    worker = DeviceThread("d")

    def fail() -> None:
        raise error

    with pytest.raises(type(error)):
        worker.call(fail).result(5)
    assert worker.call(lambda: 1).result(5) == 1
    worker.close(5)


def test_background_work_and_calls_take_turns() -> None:
    worker = DeviceThread("d")
    log: list[str] = []
    gate, started = threading.Event(), threading.Event()

    def step() -> bool:
        log.append("step")
        return log.count("step") < 3

    def wait() -> bool:
        started.set()
        return gate.wait(5)

    worker.set_background(step)
    first = worker.call(wait)
    # Only now is it certain that the first call began without background work.
    assert started.wait(5)

    def note() -> None:
        log.append("call")

    calls = [worker.call(note) for _ in range(2)]
    worker.kick()
    gate.set()
    assert first.result(5)
    for future in calls:
        future.result(5)
    done = threading.Event()
    worker.call(done.set)
    assert done.wait(5)
    assert log[:4] == ["call", "step", "call", "step"]
    worker.close(5)


def test_a_kick_during_a_slice_is_not_lost() -> None:
    worker = DeviceThread("d")
    runs = threading.Semaphore(0)
    kicked = threading.Event()

    def step() -> bool:
        if not kicked.is_set():
            kicked.set()
            worker.kick()
        runs.release()
        return False

    worker.set_background(step)
    worker.kick()
    assert runs.acquire(timeout=5)
    assert runs.acquire(timeout=5)
    worker.close(5)


def test_idle_is_called_when_nothing_happens() -> None:
    idle = threading.Event()
    worker = DeviceThread("d", idle=idle.set, idle_s=0.01)
    worker.call(lambda: None).result(5)
    assert idle.wait(5)
    worker.close(5)


def test_closing_refuses_and_fails_what_waits() -> None:
    worker = DeviceThread("d")
    gate = threading.Event()
    started = threading.Event()

    def block() -> bool:
        started.set()
        return gate.wait(5)

    running = worker.call(block)
    assert started.wait(5)
    waiting = worker.call(lambda: None)
    assert not worker.close(0)
    with pytest.raises(Unavailable):
        waiting.result(5)
    with pytest.raises(Unavailable):
        worker.call(lambda: None)
    gate.set()
    assert running.result(5)
    assert worker.close(5)


def test_a_failing_set_up_is_told() -> None:
    def around(loop: Callable[[], None]) -> None:
        message = "no torch"
        raise ImportError(message)

    worker = DeviceThread("d", around=around)
    for _ in range(2):
        with pytest.raises(ImportError, match="no torch"):
            worker.call(lambda: None).result(5)
