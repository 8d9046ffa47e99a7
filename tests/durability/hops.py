"""Places where a server process can be made to die: the hops of design section 5.

`INLINE_TEST_DIE_AT=<hop>:<count>` lets the process kill itself (SIGKILL) the count-th time the hop
is reached.  The real functions run; only death is added.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import os
import signal
from collections.abc import Callable
from typing import Any

from inline_core.engine.executor import Executor
from inline_core.engine.orchestrator import Orchestrator
from inline_core.engine.saving import TakeSaver
from inline_core.runs.database import Database
from inline_core.runs.journal import Journal
from inline_core.takes.files import ContentFiles

# hop -> (class, method, die before or after the call)
HOPS: dict[str, tuple[type, str, str]] = {
    "submit-before-commit": (Database, "_commit", "before"),
    "submit-after-commit": (Database, "_commit", "after"),
    "claimed": (Journal, "claim", "after"),
    "planned": (Executor, "_visit", "before"),
    "node-called": (Executor, "_call", "before"),
    "node-returned": (Executor, "_call", "after"),
    "file-before-rename": (ContentFiles, "_settle", "before"),
    "file-after-rename": (ContentFiles, "_settle", "after"),
    "take-saved": (TakeSaver, "save", "after"),
    "node-done-queued": (Journal, "nodes_changed", "after"),
    "before-settle": (Orchestrator, "_settle", "before"),
    "after-settle": (Orchestrator, "_settle", "after"),
}


# The hops of a real picture, imported only when one is armed, since the sampler brings torch.
RENDER_HOPS: dict[str, tuple[str, str, str, str]] = {
    "sample-submitted": ("inline_core.engine.render", "TorchRender", "sample", "before"),
    "batch-joined": (
        "inline_core.sampling.backends.inprocess",
        "InProcessSampler",
        "_start",
        "after",
    ),
    "stepped": ("inline_core.sampling.backends.inprocess", "InProcessSampler", "_step", "after"),
    "decoding": ("inline_core.engine.render", "TorchRender", "decode", "before"),
    "decoded": ("inline_core.engine.render", "TorchRender", "decode", "after"),
    "woken": ("inline_core.runs.log", "EventLog", "notify", "after"),
    "socket-opened": ("inline_core.server.streaming", "StreamHub", "_opening", "after"),
}


def install(wanted: str | None) -> None:
    """Arm the hop named by the environment, if any."""
    if not wanted:
        return
    name, _, count = wanted.partition(":")
    if name in RENDER_HOPS:
        module, owner_name, method, when = RENDER_HOPS[name]
        owner = getattr(importlib.import_module(module), owner_name)
    else:
        owner, method, when = HOPS[name]
    setattr(owner, method, _deadly(getattr(owner, method), when, int(count or 1)))


def _deadly(original: Callable[..., Any], when: str, count: int) -> Callable[..., Any]:
    calls = itertools.count(1)

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        fatal = next(calls) == count
        if fatal and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*args, **kwargs)
        if fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return wrapped
