"""Keeping the server up: started again after a crash, never after a clean stop."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType

import structlog

_log = structlog.get_logger(__name__)
EXIT_CLEAN = 0
EXIT_CONFIGURATION = 2
_FIRST_DELAY_S = 1.0
_LONGEST_DELAY_S = 60.0
_HEALTHY_AFTER_S = 60.0
_KILL_AFTER_S = 20.0


def next_delay(previous_s: float, ran_for_s: float) -> float:
    """How long to wait before the next start: doubled each time, afresh after a healthy run."""
    if ran_for_s >= _HEALTHY_AFTER_S or previous_s == 0:
        return _FIRST_DELAY_S
    return min(previous_s * 2, _LONGEST_DELAY_S)


class Supervisor:
    """Runs one command until it ends cleanly.  `wait(seconds)` sleeps; True ends it early."""

    def __init__(self, command: Sequence[str], wait: Callable[[float], bool] | None = None) -> None:
        self._command = list(command)
        self._stopping = threading.Event()
        self._wait = wait or self._stopping.wait
        self._child: subprocess.Popen[bytes] | None = None

    def stop(self) -> None:
        """End the child politely; it is not started again."""
        self._stopping.set()
        child = self._child
        if child is not None and child.poll() is None:
            child.terminate()

    def run(self) -> int:
        """Start, wait, start again after a crash; gives the last exit code."""
        delay_s = 0.0
        while True:
            started_at = time.monotonic()
            self._child = subprocess.Popen(self._command)
            code = self._join(self._child)
            if self._stopping.is_set() or code in {EXIT_CLEAN, EXIT_CONFIGURATION}:
                return EXIT_CLEAN if self._stopping.is_set() else code
            delay_s = next_delay(delay_s, time.monotonic() - started_at)
            _log.error("the server crashed; starting it again", exit_code=code, in_s=delay_s)
            if self._wait(delay_s):
                return EXIT_CLEAN

    def _join(self, child: subprocess.Popen[bytes]) -> int:
        while True:
            try:
                return child.wait(timeout=1.0)
            except subprocess.TimeoutExpired:
                if self._stopping.is_set():
                    return self._end(child)

    @staticmethod
    def _end(child: subprocess.Popen[bytes]) -> int:
        try:
            return child.wait(timeout=_KILL_AFTER_S)
        except subprocess.TimeoutExpired:
            child.kill()
            return child.wait()


def supervise(arguments: Sequence[str]) -> int:
    """Run the server with these flags under supervision; SIGINT and SIGTERM end it."""
    supervisor = Supervisor([sys.executable, "-m", "inline_core.server", *arguments])

    def end(_signal: int, _frame: FrameType | None) -> None:
        supervisor.stop()

    for name in ("SIGINT", "SIGTERM"):
        signal.signal(getattr(signal, name), end)
    return supervisor.run()
