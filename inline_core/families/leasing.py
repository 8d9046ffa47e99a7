"""Components and adapters on loan: loaded once for all that need them, where the policy says.

Lives on the device's threads; never imports torch itself.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from inline_core.devices.budget import Weights
from inline_core.devices.placement import BYTES_PER_VALUE, Placement
from inline_core.devices.policy import DevicePolicy
from inline_core.families.demand import OpenedFiles
from inline_core.loading.adapters import MatchedAdapter
from inline_core.loading.component import ComponentRef
from inline_core.loading.pool import ComponentPool, Lease
from inline_core.loading.stream import LoadPlan

if TYPE_CHECKING:
    from inline_core.loading.deltas import LoadedAdapter

_DELTAS: Final = "inline_core.loading.deltas"

Check = Callable[[], None]


class Leasing:
    """Leases by file and place; `opened` are the headers of components, `policy` places them."""

    def __init__(self, opened: OpenedFiles, pool: ComponentPool, policy: DevicePolicy) -> None:
        self.opened = opened
        self.policy = policy
        self._pool = pool

    def plan(self, reference: ComponentRef, placement: Placement, check: Check) -> LoadPlan:
        """How a component is loaded.  Raises: ModelFileInvalid, ModelFileMissing."""
        opened = self.opened.open(reference)
        return LoadPlan(opened.files, opened.identity, placement, reference.name, check)

    def lease(
        self,
        reference: ComponentRef,
        plan: LoadPlan,
        load: Callable[[LoadPlan], Any],
        reader: str = "",
    ) -> Lease[Any]:
        """A component, loaded with `load` unless it is there.

        `reader` tells apart what different modules make of one file.

        Raises: ModelFileInvalid, ModelFileMissing, OutOfMemory, RunCancelled.
        """
        size = self.policy.size_of(plan.placement, self.opened.open(reference).weights)
        role = str(reference.role)
        key = (reference.path, reference.part, reference.stamp, plan.placement.key, role, reader)
        return self._pool.lease(key, reference.name, size, lambda: load(plan))

    def adapter(
        self, matched: MatchedAdapter, model: ComponentRef, device: str, check: Check
    ) -> Lease[LoadedAdapter]:
        """The deltas of an adapter for a component; they stay in float32, as they are small."""
        adapter = matched.adapter
        values = sum(info.element_count for info in matched.files.tensors.values())
        size = self.policy.size_of(Placement(device, "float32"), Weights(values))
        key = (adapter.path, adapter.stamp, model.path, model.part, model.stamp, device)
        load = importlib.import_module(_DELTAS).load_adapter
        return self._pool.lease(key, adapter.name, size, lambda: load(matched, device, check))

    def lacks_room(self, placement: Placement, values: int) -> bool:
        """Say whether so many values are more than there is room for where a component goes."""
        room = self.policy.room(self._pool.held())
        on_host = placement.device == "cpu" or self.policy.machine.kind != "cuda"
        free = room.host_bytes if on_host else room.device_bytes
        return values * BYTES_PER_VALUE[placement.dtype] > free
