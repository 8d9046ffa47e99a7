"""Starting: time to the first answer and memory before any model, against a bare FastAPI."""

from __future__ import annotations

from benchmarks.measure import Result
from benchmarks.subject import bare, ours


def start_up(*, quick: bool) -> list[Result]:
    """Spawn to first health answer, and what the idle process keeps."""
    seconds = Result("spawn -> first health", "s", "lower", gate=1.5)
    memory = Result("idle memory, no torch", "MB", "lower", gate=1.0, note="limit: 80 MB")
    for _ in range(3 if quick else 5):
        with ours() as server:
            seconds.us.append(server.started_s)
            memory.us.append(server.rss_bytes() / 1e6)
            memory.limit.append(80.0)
        with bare() as limit:
            seconds.limit.append(limit.started_s)
    return [seconds, memory]
