"""What a running node gets to work with: one per node execution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from inline_core.engine.cancel import CancelToken
from inline_core.engine.progress import ProgressBoard
from inline_core.nodes.base import Components, Media, Render


class RunContext:
    """The engine's `NodeContext`; used on one walker thread (progress also on the device's)."""

    def __init__(
        self,
        run_id: str,
        node_id: str,
        *,
        token: CancelToken,
        board: ProgressBoard,
        render: Render,
        components: Components,
        media: Media,
        priority: int = 0,
    ) -> None:
        self.run_id = run_id
        self.node_id = node_id
        self.render = render
        self.components = components
        self.media = media
        self.priority = priority
        self.warnings: list[str] = []
        self.facts: dict[str, Any] = {}
        self._token = token
        self._board = board

    def check_cancelled(self) -> None:
        """Raise `RunCancelled` if the run shall end."""
        self._token.check()

    def check(self) -> None:
        """The same, under the name that the sampler knows (`CancelCheck`)."""
        self._token.check()

    def progress(
        self,
        phase: str,
        fraction: float,
        status: str = "",
        *,
        step: int | None = None,
        step_count: int | None = None,
        eta_ms: int | None = None,
    ) -> None:
        """Say how far this node is; `fraction` in 0..1."""
        self._board.update(
            self.run_id,
            self.node_id,
            phase,
            fraction,
            status,
            step=step,
            step_count=step_count,
            eta_ms=eta_ms,
        )

    def preview(self, encode: Callable[[], bytes]) -> None:
        """Offer a live preview; `encode` runs only if somebody watches."""
        self._board.offer_preview(self.run_id, self.node_id, encode)

    def warn(self, message: str) -> None:
        """Attach a warning to the run and to the takes of this node."""
        if message not in self.warnings:
            self.warnings.append(message)

    def describe(self, **facts: object) -> None:
        """Add to the effective params that the takes of this node will carry."""
        self.facts.update(facts)
