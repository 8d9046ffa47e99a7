"""Placement in the process of a rank: its own device, planned for the smallest of the group."""

from __future__ import annotations

from dataclasses import replace

from inline_core.devices.budget import Demand, Machine, Weights
from inline_core.devices.ladder import Plan
from inline_core.devices.placement import Placement
from inline_core.devices.policy import DevicePolicy, Room
from inline_core.devices.probe import probe
from inline_core.devices.split import Split, split_demand, split_weights
from inline_core.settings import Settings


def rank_machine(settings: Settings, local_rank: int) -> Machine:
    """The machine as a rank may use it: one GPU, counted as the smallest there is.

    So all ranks come to the same plan.
    """
    machine = probe(allow_gpu=settings.profile != "cpu")
    if machine.kind != "cuda":
        return machine
    mine = machine.gpus[local_rank]
    least_total = min(gpu.total_bytes for gpu in machine.gpus)
    least_free = min(gpu.free_bytes for gpu in machine.gpus)
    return replace(
        machine,
        name=mine.name,
        gpus=(replace(mine, total_bytes=least_total, free_bytes=least_free),),
    )


class RankPolicy(DevicePolicy):
    """Plans for one rank; `in_use` is the split of the job that is prepared.  Device thread."""

    def __init__(self, settings: Settings, machine: Machine) -> None:
        super().__init__(settings, machine)
        self.in_use: Split | None = None

    def plan(self, demand: Demand) -> Plan:
        """See `DevicePolicy.plan`: a part of the work, and with PipeFusion of the weights."""
        if self.in_use is None:
            return super().plan(demand)
        return super().plan(split_demand(demand, self.in_use))

    def size_of(self, placement: Placement, weights: Weights) -> Room:
        """See `DevicePolicy.size_of`: with PipeFusion a rank holds its part of a model."""
        if placement.parallel and self.in_use is not None:
            weights = split_weights(weights, self.in_use)
        return super().size_of(placement, weights)
