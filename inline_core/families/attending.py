"""Which kernel computes attention: one of diffusers' backends, chosen for each pass.

Imports torch and diffusers, so it is imported on the device thread only.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch
from diffusers.models.attention_dispatch import (
    AttentionBackendName,
    attention_backend,
    dispatch_attention_fn,
)

from inline_core.errors import RuntimeMissing
from inline_core.sampling.memory import is_out_of_memory

SETTING = "INLINE_ATTENTION"
_FETCHED = "_hub"


def attending(backend: str) -> AbstractContextManager[None]:
    """Use a backend within this block; the default of the process stays as it is."""
    chosen: AbstractContextManager[None] = attention_backend(backend)
    return chosen


def backend_names() -> tuple[str, ...]:
    """Every backend that diffusers knows; most need a package or a GPU of their own.

    Without those that fetch their code from a hub: nothing is downloaded as a side effect.
    """
    return tuple(name.value for name in AttentionBackendName if _FETCHED not in name.value)


def check_backend(backend: str, device: str, dtype: str) -> None:
    """Compute a small attention with a backend.

    Raises: RuntimeMissing if it is unknown, or does not work here.
    """
    if backend not in backend_names():
        names = ", ".join(sorted(backend_names()))
        message = f"{SETTING}={backend}: there is no such attention backend; there are {names}"
        raise RuntimeMissing(message)
    sample = torch.zeros(1, 64, 1, 64, device=device, dtype=getattr(torch, dtype))
    try:
        with attending(backend):
            # (rows, tokens, heads, width of a head)
            dispatch_attention_fn(sample, sample, sample)
    except Exception as error:
        if is_out_of_memory(error):
            raise
        working = ", ".join(name for name in ("native", "_native_math") if name != backend)
        message = (
            f"{SETTING}={backend} does not work here ({device}, {dtype}): "
            f"{_first_line(error)}. These always do: {working}; "
            f"all names: {', '.join(sorted(backend_names()))}"
        )
        raise RuntimeMissing(message) from error


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(".")
