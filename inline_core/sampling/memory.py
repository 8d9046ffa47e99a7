"""Recognise "out of memory" in its many shapes and turn it into one error with numbers."""

from __future__ import annotations

import re
import sys

import psutil

from inline_core.errors import InlineError, OutOfMemory


def is_out_of_memory(error: BaseException) -> bool:
    """True for torch's and Python's ways to say that memory ran out."""
    if isinstance(error, (MemoryError, OutOfMemory)):
        return True
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(error, torch.OutOfMemoryError):
        return True
    text = str(error)
    return isinstance(error, RuntimeError) and (
        "can't allocate memory" in text or "not enough memory" in text or "out of memory" in text
    )


def as_out_of_memory(error: BaseException, doing: str) -> BaseException:
    """`OutOfMemory` with numbers and a remedy for an out-of-memory error, else the error itself."""
    if isinstance(error, InlineError) or not is_out_of_memory(error):
        return error
    asked = re.search(r"(?:allocate|tried to allocate) ([\d.]+ ?\w*)", str(error), re.IGNORECASE)
    wanted = f" ({asked.group(1)} asked for)" if asked else ""
    free_mb = psutil.virtual_memory().available // (1024 * 1024)
    message = (
        f"Out of memory while {doing}{wanted}; {free_mb} MB of host memory are free. "
        "Make the picture smaller, lower INLINE_MAX_BATCH, or close other programs"
    )
    result = OutOfMemory(message, details={"ramFreeMb": free_mb})
    result.__cause__ = error
    return result
