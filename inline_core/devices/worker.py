"""The one thread that owns a device: it runs calls in order, and steps the sampler in between."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from inline_core.errors import Unavailable

T = TypeVar("T")


class DeviceThread:
    """Runs `call`s in order of arrival and one slice of background work after each.

    So a decode waits for at most one denoising step, and a denoising step for at most one decode.
    `around` wraps the whole loop on the thread (it may set up the device's library).  `idle` is
    called when nothing happened for `idle_s` seconds.
    """

    def __init__(
        self,
        name: str,
        *,
        around: Callable[[Callable[[], None]], None] | None = None,
        idle: Callable[[], None] | None = None,
        idle_s: float = 10.0,
    ) -> None:
        self._name = name
        self._around = around
        self._idle = idle
        self._idle_s = idle_s
        self._calls: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._slice: Callable[[], bool] | None = None
        self._busy = False
        self._closing = False
        self._failure: Exception | None = None
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None

    def call(self, work: Callable[[], T]) -> Future[T]:
        """Queue `work`; its result or error arrives in the future.  Raises: Unavailable."""
        future: Future[T] = Future()
        with self._wake:
            self._refuse_if_closing()
            self._calls.append((work, future))
            self._ensure_started()
            self._wake.notify()
        return future

    def set_background(self, work: Callable[[], bool]) -> None:
        """Set the slice of background work; it returns True while there is more to do."""
        self._slice = work

    def kick(self) -> None:
        """Say that there is background work.  Raises: Unavailable when closing."""
        with self._wake:
            self._refuse_if_closing()
            self._busy = True
            self._ensure_started()
            self._wake.notify()

    def is_current(self) -> bool:
        """True on the device thread itself."""
        return threading.current_thread() is self._thread

    def close(self, timeout_s: float) -> bool:
        """Refuse new work, fail what waits, and wait for the thread; True when it ended."""
        self._fail_waiting(Unavailable("the render is stopping"))
        if self._thread is None:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _ensure_started(self) -> None:
        if self._thread is None:
            # A daemon: a hung kernel must not keep the process from ending.
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def _run(self) -> None:
        """The border of the thread itself: if its set-up fails, everybody waiting hears of it."""
        try:
            if self._around is None:
                self._loop()
            else:
                self._around(self._loop)
        except Exception as error:  # noqa: BLE001 - delivered to the waiting threads
            self._failure = error
            self._fail_waiting(error)

    def _refuse_if_closing(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closing:
            message = "the render is stopping"
            raise Unavailable(message)

    def _fail_waiting(self, error: BaseException) -> None:
        with self._wake:
            self._closing = True
            waiting = list(self._calls)
            self._calls.clear()
            self._wake.notify()
        for _, future in waiting:
            future.set_exception(error)

    def _loop(self) -> None:
        while True:
            with self._wake:
                idle = not self._wake.wait_for(self._has_work, timeout=self._idle_s)
                if self._closing:
                    return
                item = self._calls.popleft() if self._calls else None
                # Cleared before the slice, so that a `kick` during it is not lost.
                busy, self._busy = self._busy, False
            if idle and self._idle is not None:
                self._idle()
            if item is not None:
                _settle(*item)
                # Nothing may keep the result alive while the thread waits for more work.
                item = None
            if busy and self._slice is not None and self._slice():
                with self._wake:
                    self._busy = True

    def _has_work(self) -> bool:
        return bool(self._calls) or self._busy or self._closing


def _settle(work: Callable[[], Any], future: Future[Any]) -> None:
    """The border of the device thread: whatever happens goes to the one who waits for it."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - delivered to the waiting thread, nothing lost
        future.set_exception(error)
    else:
        future.set_result(result)
