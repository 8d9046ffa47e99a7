"""Adapters on text encoders, for as long as they read a prompt.

Of families whose runtime has `adapted_encoder(model, position, label)`.  Device thread only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from inline_core.loading.adapters import AdaptedModel, MatchedAdapter, match_adapter
from inline_core.loading.component import ComponentRef, LoraRef
from inline_core.loading.deltas import AdapterSwitch, LoadedAdapter


@dataclass(frozen=True, slots=True, eq=False)
class TextAdapters:
    """The adapters of one job; `lease` loads what an adapter has for a component."""

    adapters: Sequence[LoraRef]
    target: Callable[[Any, int, str], AdaptedModel]
    lease: Callable[[MatchedAdapter, ComponentRef], AbstractContextManager[LoadedAdapter]]
    warnings: list[str]

    @contextlib.contextmanager
    def on(
        self, lease: AbstractContextManager[Any], reference: ComponentRef, position: int
    ) -> Iterator[Any]:
        """The leased text encoder, with the adapters on it within this block.

        Raises: ModelFileInvalid for adapters whose shapes do not fit.
        """
        with lease as encoder, contextlib.ExitStack() as leases:
            target = self.target(encoder.model, position, reference.name)
            loaded = []
            for adapter in self.adapters:
                matched = match_adapter(adapter, target)
                if matched.warning and matched.warning not in self.warnings:
                    self.warnings.append(matched.warning)
                if matched.modules:
                    deltas = leases.enter_context(self.lease(matched, reference))
                    loaded.append((deltas, adapter.strength))
            switch = AdapterSwitch(encoder.model)
            switch.use(loaded)
            try:
                yield encoder
            finally:
                switch.use(())
