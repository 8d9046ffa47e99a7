"""A job of the server in a group, from its handing over to its end."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field

from inline_core.errors import Unavailable
from inline_core.sampling.backends.parallel.group import HostState
from inline_core.sampling.job import SampleJob, SampleResult


@dataclass(slots=True, eq=False)
class Entry:
    """A job of the server; `alone` after memory ran out with others beside it.

    `unsure` are the other hosts that have not said yet that they have the same files, `steps`
    tells that its models are loaded and steps are made.
    """

    number: int
    job: SampleJob
    future: Future[SampleResult]
    tries: int = 0
    alone: bool = False
    unsure: set[HostState] = field(default_factory=set)
    steps: bool = False
    asked_to_cancel: BaseException | None = None
    sent_s: float = 0.0
    picture: Future[bytes | None] | None = None


def end(entry: Entry) -> None:
    """Nobody waits for a picture of a job that is over."""
    waiting, entry.picture = entry.picture, None
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


def fail(entry: Entry, error: BaseException | None) -> None:
    """End a job with an error, unless it has ended."""
    if not entry.future.done():
        entry.future.set_exception(error or Unavailable("the render is stopping"))
    end(entry)
