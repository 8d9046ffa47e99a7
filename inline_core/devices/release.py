"""Give freed memory back to the system, which neither torch nor the C library does by itself."""

from __future__ import annotations

import ctypes
import sys


def give_back() -> None:
    """Return what was freed: the cache of the GPU allocator, and the C heap on Linux.

    glibc keeps freed weights in its heap, so that a server would look ever bigger.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:  # musl has none
            trim(0)
