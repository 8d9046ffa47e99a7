"""What a process has started, as tests look at it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

import psutil


def children(pid: int | None = None) -> list[psutil.Process]:
    """All processes below one (this one by default), but for those that servers are forked from."""
    found = []
    for child in psutil.Process(pid or os.getpid()).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "from multiprocessing" not in " ".join(child.cmdline()):
                found.append(child)
    return found


def alive(pids: Iterable[int]) -> list[int]:
    """Which of the processes still run; one that nobody has reaped yet does not."""
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.append(pid)
    return found
