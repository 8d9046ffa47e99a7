"""What a process has started, as tests look at it."""

from __future__ import annotations

import contextlib
import os

import psutil


def children(pid: int | None = None) -> list[psutil.Process]:
    """All processes below one (this one by default), but for those that servers are forked from."""
    found = []
    for child in psutil.Process(pid or os.getpid()).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "from multiprocessing" not in " ".join(child.cmdline()):
                found.append(child)
    return found
