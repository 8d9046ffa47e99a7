"""The server comes back after a crash, with growing pauses, and not after a clean stop."""

from __future__ import annotations

import sys
import threading

import pytest

from inline_core.launch.supervise import Supervisor, next_delay


@pytest.mark.parametrize("code", [0, 2])
def test_a_clean_or_configuration_exit_is_final(code: int) -> None:
    waits: list[float] = []
    supervisor = Supervisor([sys.executable, "-c", f"raise SystemExit({code})"], waits.append)  # type: ignore[arg-type]
    assert supervisor.run() == code
    assert waits == []


def test_a_crash_is_answered_with_growing_pauses() -> None:
    waits: list[float] = []

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        return len(waits) == 4

    code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert Supervisor([sys.executable, "-c", code], wait).run() == 0
    assert waits == [1.0, 2.0, 4.0, 8.0]


def test_delays_start_afresh_after_a_healthy_run() -> None:
    assert next_delay(32, 5) == 60
    assert next_delay(60, 5) == 60
    assert next_delay(60, 61) == 1


def test_stop_ends_the_child_and_is_clean() -> None:
    supervisor = Supervisor(
        [sys.executable, "-c", "import time; print(flush=True); time.sleep(60)"]
    )
    result: list[int] = []
    thread = threading.Thread(target=lambda: result.append(supervisor.run()))
    thread.start()
    pause = threading.Event()
    while supervisor._child is None:
        pause.wait(0.01)
    supervisor.stop()
    thread.join(30)
    assert result == [0]
