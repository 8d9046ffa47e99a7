"""Stopping a long forward pass from outside: modules that ask between their blocks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any


class Interruption:
    """Asks a `check` before each of some modules runs; `check` raises to end the pass.

    One for each loaded model.  Several threads may run the model at once (a decode, and a preview
    of another run); each is asked only what it set up itself.
    """

    def __init__(self, modules: Iterable[Any]) -> None:
        """`modules` are torch modules, at best the repeated blocks of a network."""
        self._own = threading.local()
        for module in modules:
            module.register_forward_pre_hook(self._ask)

    @contextmanager
    def asking(self, check: Callable[[], None]) -> Iterator[None]:
        """Ask `check` in passes of this thread within this block."""
        self._own.check = check
        try:
            yield
        finally:
            del self._own.check

    def _ask(self, *_: object) -> None:
        check: Callable[[], None] | None = getattr(self._own, "check", None)
        if check is not None:
            check()
