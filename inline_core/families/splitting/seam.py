"""Where the loading of models meets the group: what `ModuleSource` asks in a rank's process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from inline_core.devices.ladder import Plan
from inline_core.devices.placement import Placement
from inline_core.loading.component import ComponentRef
from inline_core.loading.stream import LoadPlan

T = TypeVar("T")


class Splitting(Protocol):
    """What is different about a model whose passes are divided.  Device thread of a rank only."""

    def place(self, plan: Plan, model: ComponentRef) -> Plan:
        """The plan with the split in its placement.

        Raises: DoesNotFit if the model cannot be held in a way that can be divided.
        """

    def part(self, plan: LoadPlan) -> LoadPlan:
        """The plan of a model for the part of it that this rank holds."""

    def divide(self, denoiser: Any, placement: Placement) -> None:
        """Divide the network of a family's denoiser that was just loaded.  Raises: InvalidParam."""

    def lead(
        self,
        model: ComponentRef,
        plan: Plan,
        leases: contextlib.ExitStack,
        load: Callable[[], tuple[Any, T]],
    ) -> tuple[Any, T]:
        """Load a model here and on all other ranks; `leases` gives it back on all of them.

        What comes back estimates with all ranks.
        """
