"""What the denoisers of all families share: the network, and which of its blocks are what.

Imports no torch itself, as its subclasses do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class NetworkDenoiser:
    """A loaded network; subclasses add `predict` (see `Denoiser`).  Device thread only.

    `two_streams` says that its blocks give (text, picture), not one tensor.
    """

    two_streams: bool = False

    def __init__(self, model: Any) -> None:
        self._model = model

    @property
    def module(self) -> Any:
        """The network, for what is put on it (adapters)."""
        return self._model

    def replace_network(self, network: Any) -> None:
        """Call `network` from now on, which stands in for the one there was."""
        self._model = network

    @property
    def blocks(self) -> Sequence[Any]:
        """The repeated blocks in order, which may be reused or left out (see `families.blocks`)."""
        return []

    @property
    def other_blocks(self) -> Sequence[Any]:
        """Blocks that are only asked whether to go on."""
        return []
