"""Give freed memory back to the system, which neither torch nor the C library does by itself."""

from __future__ import annotations

import ctypes
import sys
from typing import Any, Final

# Parameters of glibc's mallopt(3).
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_MMAP_FROM_BYTES: Final = 256 * 1024


def tune_allocator() -> None:
    """Let the C library map every large block by itself, so that freeing one frees its memory.

    Without it glibc raises its limit with the sizes it sees, and the scratch of loading and
    quantizing stays in the heap: 996M parameters in int8 then take 1.5 GB instead of 1.0 GB.
    """
    libc = _glibc()
    if libc is not None:
        libc.mallopt(_M_MMAP_THRESHOLD, _MMAP_FROM_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, 0)


def give_back() -> None:
    """Return what was freed: the cache of the GPU allocator, and the C heap on Linux.

    glibc keeps freed weights in its heap, so that a server would look ever bigger.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
    libc = _glibc()
    if libc is not None:
        libc.malloc_trim(0)


def _glibc() -> Any:
    """The C library where it is glibc; musl, macOS and Windows have neither function."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "malloc_trim") and hasattr(libc, "mallopt") else None
