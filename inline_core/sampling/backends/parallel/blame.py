"""Which of the signs that a group comes to an end tells the cause of it.

One rank that ends takes the others with it, within a moment: they fail in their exchange with it,
or torchrun ends them.  So the first sign that arrives is often not the cause.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from inline_core.errors import OutOfMemory, WorkerLost

_ERROR_LINE: Final = re.compile(
    r"^(?:\[rank\d+\]: ?)?([A-Za-z_][\w.]*(?:Error|Exception)(?:: .*)?)$"
)
# Lines of torchrun itself, which say that a rank has failed and not why.
_OF_TORCHRUN: Final = re.compile(r"ChildFailedError|^[EWI]\d{4} |^[=-]+$|^\[\d+\]:$")
# Which rank torchrun names as the first that failed, once it ends.
_FIRST_FAILED: Final = re.compile(r"Root Cause.*?rank\s*:\s*(\d+)", re.DOTALL)
_LONGEST_LINE: Final = 300


@dataclass(frozen=True, slots=True)
class Sign:
    """One thing that was seen of a group that ends; `words` name the process and what it did.

    An `echo` is the failure of a rank because another one was gone.
    """

    kind: Literal["refused", "failed", "gone", "agent", "host"]
    words: str
    rank: int = -1
    code: str = WorkerLost.code
    echo: bool = False
    signal: bool = False


def cause_of(signs: Sequence[Sign], silent: Sequence[int], log: str) -> Sign:
    """The sign that tells why, of at least one, in the order they were seen.

    `silent` are ranks that never said hello, `log` is the end of what the processes have printed.
    """
    line = last_error(log)
    failed = {sign.rank for sign in signs if sign.kind == "failed"}
    first = _FIRST_FAILED.search(log)
    if first is not None and int(first.group(1)) in silent:
        silent = [int(first.group(1))]
    unstarted = Sign("gone", f"rank {', '.join(map(str, silent))} could not start: {line}")
    ranked: list[Sequence[Sign]] = [
        [sign for sign in signs if sign.kind == "refused"],
        [sign for sign in signs if sign.kind == "agent" and sign.signal],
        [sign for sign in signs if sign.code == OutOfMemory.code],
        [sign for sign in signs if sign.kind == "failed" and not sign.echo],
        [sign for sign in signs if sign.kind == "host"],
        [unstarted] if silent and line else [],
        [sign for sign in signs if sign.kind == "gone" and sign.rank not in failed],
        signs,
    ]
    return next(found[0] for found in ranked if found)


def last_error(log: str) -> str:
    """The line of a log that says most: the last error, and else the last words of a rank."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    told = [found.group(1) for line in lines if (found := _ERROR_LINE.match(line))]
    told = [line for line in told if not _OF_TORCHRUN.search(line)]
    words = [line for line in lines if not _OF_TORCHRUN.search(line)]
    return (told or words or [""])[-1][:_LONGEST_LINE]
