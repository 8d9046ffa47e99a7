"""Repeated blocks compiled by torch, and run as they are where that does not work.

Imports torch, so it is imported on the device thread only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import structlog
import torch

from inline_core.errors import InlineError
from inline_core.sampling.memory import is_out_of_memory

_log = structlog.get_logger(__name__)


class CompiledBlocks:
    """Wraps the forward functions of a model's blocks once, when it is loaded.

    Blocks of one class share their compiled code, for all sizes.  Without `active` the blocks run
    as they are: adapters are hooks, and compiled code does not see hooks that come and go.
    `problem` says why compiling failed; nothing is compiled any more then.  Device thread only.
    """

    def __init__(
        self,
        blocks: Sequence[Any],
        compiler: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None,
    ) -> None:
        """`compiler` stands in for torch's."""
        self.active = True
        self.problem = ""
        self._compiler = compiler or _compile
        for block in blocks:
            block.forward = self._wrapped(block.forward)

    def _wrapped(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        compiled = self._compiler(forward)

        def run(*args: Any, **kwargs: Any) -> Any:
            if self.problem or not self.active:
                return forward(*args, **kwargs)
            try:
                return compiled(*args, **kwargs)
            except Exception as error:
                if isinstance(error, InlineError) or is_out_of_memory(error):
                    raise
                self.problem = _in_words(error)
                _log.warning("blocks are not compiled", why=self.problem)
            return forward(*args, **kwargs)

        return run


def _compile(forward: Callable[..., Any]) -> Callable[..., Any]:
    compiled: Callable[..., Any] = torch.compile(forward, dynamic=True)
    return compiled


def _in_words(error: Exception) -> str:
    """The kind of an error and the first two lines of its text."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join((f"{type(error).__name__}:", *lines[:2]))
