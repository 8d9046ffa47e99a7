"""The one owner of placement: which device, which precision, and how much memory may be used."""

from __future__ import annotations

import os
import sys
import threading
import time
from dataclasses import dataclass, replace
from typing import Any, Final

from inline_core.devices.budget import (
    LOW_VRAM_BYTES,
    MIB,
    Demand,
    Machine,
    Profile,
    Weights,
    capacity_bytes,
    headroom_bytes,
)
from inline_core.devices.ladder import Plan, make_plan, place_vae
from inline_core.devices.placement import DeviceKind, Placement, Rung
from inline_core.devices.probe import probe, ram_free_bytes, vram_free_bytes
from inline_core.devices.split import ModelFacts, SplitDecision, SplitTraits, split_demand
from inline_core.devices.split_choice import decide
from inline_core.devices.split_rules import Libraries, Site, installed_libraries, site_problems
from inline_core.devices.split_setting import AUTO, Wanted, wanted_split
from inline_core.devices.topology import Topology, find_topology
from inline_core.errors import InvalidRequest
from inline_core.settings import Settings

_SUMMARY_FRESH_S: Final = 1.0
_IN_PLACE: Final[frozenset[Rung]] = frozenset({"resident", "int8"})


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes on the device and bytes of host memory; on the processor all counts as host."""

    device_bytes: int = 0
    host_bytes: int = 0


class DevicePolicy:
    """Names devices and precisions for everybody else.  Safe to use from any thread.

    `machine` stands in for the hardware that is found, `topology` for its links and `libraries` for
    the versions that are installed (tests plan for machines they do not have).
    """

    def __init__(
        self,
        settings: Settings,
        machine: Machine | None = None,
        topology: Topology | None = None,
        libraries: Libraries | None = None,
    ) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._machine = machine
        self._topology = topology
        self._libraries = libraries
        self._free: tuple[float, int | None, int] | None = None

    @property
    def machine(self) -> Machine:
        """The hardware in use; probed once."""
        with self._lock:
            if self._machine is None:
                self._machine = probe(allow_gpu=self._settings.profile != "cpu")
            return self._machine

    @property
    def topology(self) -> Topology:
        """How the GPUs are linked; probed once, empty where there are none of NVIDIA."""
        machine = self.machine
        if machine.kind != "cuda":
            return Topology()
        with self._lock:
            if self._topology is None:
                self._topology = find_topology(machine.gpus)
            return self._topology

    @property
    def device_key(self) -> str:
        """The device and the threads it works with: what measured speeds hold for."""
        machine = self.machine
        gpu = machine.gpu
        name = gpu.name if gpu is not None else machine.name
        threads = self._settings.threads or len(os.sched_getaffinity(0))
        return f"{name} x{threads}" if gpu is None else name

    @property
    def profile(self) -> Profile:
        """The memory profile; `auto` is decided by the device."""
        machine = self.machine
        if machine.kind == "cpu":
            return "cpu"
        if self._settings.profile in {"gpu-max", "lowvram"}:
            return "lowvram" if self._settings.profile == "lowvram" else "gpu-max"
        gpu = machine.gpu
        return "lowvram" if gpu is not None and gpu.total_bytes < LOW_VRAM_BYTES else "gpu-max"

    @property
    def budget_bytes(self) -> int | None:
        """The cap of device memory from `INLINE_VRAM_BUDGET`, or None."""
        budget = self._settings.vram_budget
        return None if budget is None else budget * MIB

    def confirm(self, kind: DeviceKind, reason: str) -> None:
        """Correct the probe by what torch itself found on the device thread."""
        machine = self.machine
        if machine.kind != kind:
            with self._lock:
                self._machine = replace(machine, kind=kind, gpus=(), reason=reason)

    def plan(self, demand: Demand) -> Plan:
        """Where the components of one job go; the same demand always gives the same plan."""
        return make_plan(self.machine, self.profile, demand, self.budget_bytes)

    def split(
        self, traits: SplitTraits, facts: ModelFacts, demand: Demand | None = None
    ) -> SplitDecision:
        """How passes of a model are split over ranks by the settings, or why they are not.

        `demand` is that of a whole pass; without it each rank is taken to have room.
        Raises: InvalidRequest for a setting that cannot be read.
        """
        wanted = self._wanted()
        # What would be done says what has to fit, also where it is only told about.
        planned = self._decide(wanted or AUTO, traits, facts, fits=True)
        fits = demand is None or self._has_room(planned, facts, demand)
        return self._decide(wanted, traits, facts, fits=fits)

    @property
    def may_split(self) -> bool:
        """Whether there can be a group at all: it was asked for, and there is more than one device.

        A setting that cannot be read counts: each run is told.
        """
        try:
            wanted = self._wanted()
        except InvalidRequest:
            return True
        return wanted is not None and (not wanted.auto or len(self.machine.gpus) > 1)

    def check_parallel(self) -> None:
        """Look at the setting for splits before anything starts, without any model.

        Raises: InvalidRequest if it cannot be read, or asks for more than this machine has.
        """
        wanted = self._wanted()
        if wanted is None or wanted.auto:
            return
        problems = site_problems(wanted.world, wanted.in_words, self._site())
        if problems:
            message = f"INLINE_PARALLEL cannot be used here: {'; '.join(problems)}"
            raise InvalidRequest(message)

    def _wanted(self) -> Wanted | None:
        return wanted_split(self._settings.parallel, multi_gpu=self._settings.multi_gpu)

    def _parallel_in_words(self) -> str:
        """The setting in effect; one that cannot be read is told as it is."""
        try:
            wanted = self._wanted()
        except InvalidRequest:
            return self._settings.parallel
        return wanted.in_words if wanted else "off"

    def _site(self) -> Site:
        if self._libraries is None:
            self._libraries = installed_libraries()
        hosts = self._settings.parallel_hosts
        return Site(self.machine, self.topology, self._libraries, hosts, sys.platform)

    def _decide(
        self, wanted: Wanted | None, traits: SplitTraits, facts: ModelFacts, *, fits: bool
    ) -> SplitDecision:
        site = self._site()
        place = (site.machine, site.topology, site.libraries, site.hosts)
        return decide(wanted, traits, facts, *place, plan_fits_whole=fits, platform=site.platform)

    def _has_room(self, planned: SplitDecision, facts: ModelFacts, demand: Demand) -> bool:
        """Whether the smallest rank has room for its part; weights cannot be streamed to ranks."""
        split, machine = planned.split, self.machine
        if split is None:
            return True
        if machine.kind == "cuda":
            ranks = (gpu for gpu in machine.gpus if gpu.index in planned.gpus)
            machine = replace(machine, gpus=(min(ranks, key=lambda gpu: gpu.total_bytes),))
        else:
            here = max(split.world // self._settings.parallel_hosts, 1)
            machine = replace(machine, ram_bytes=machine.ram_bytes // here)
        part = split_demand(demand, split, facts.layers)
        return make_plan(machine, self.profile, part, self.budget_bytes).rung in _IN_PLACE

    def place_vae(self, weights: Weights) -> Placement:
        """Where a VAE goes, whatever model it is used with."""
        return place_vae(self.machine, weights)

    def room(self, held: Room) -> Room:
        """Memory that a new component may take now, while `held` is taken by loaded ones."""
        machine, profile = self.machine, self.profile
        cap = capacity_bytes(machine, profile, self.budget_bytes)
        host_free = ram_free_bytes() - headroom_bytes(machine.ram_bytes, profile)
        gpu = machine.gpu
        if machine.kind != "cuda" or gpu is None:
            return Room(0, max(min(cap - held.host_bytes, host_free), 0))
        free = vram_free_bytes(gpu)
        device = cap - held.device_bytes
        if free is not None:
            device = min(device, free)
        return Room(max(device, 0), max(host_free, 0))

    def size_of(self, placement: Placement, weights: Weights) -> Room:
        """What a component takes once it is loaded there."""
        whole = weights.bytes_at(placement.dtype, placement.quantization)
        if self.machine.kind != "cuda":
            return Room(0, whole)
        if placement.offload == "none":
            return Room(whole, 0)
        return Room(weights.streamed_bytes(placement.dtype, placement.quantization), whole)

    def memory(self) -> dict[str, int | None]:
        """Total and free megabytes in the words of the contract's estimate."""
        machine = self.machine
        gpu = machine.gpu
        total = gpu.total_bytes if machine.kind == "cuda" and gpu else None
        vram_free, ram_free = self._free_now()
        return {
            "totalVramMb": total // MIB if total else None,
            "freeVramMb": vram_free // MIB if vram_free is not None else None,
            "freeRamMb": ram_free // MIB,
        }

    def summary(self) -> dict[str, Any]:
        """The `device` object of `/v1/health`; cheap, never imports torch."""
        machine, memory = self.machine, self.memory()
        budget = self._settings.vram_budget if machine.kind == "cuda" else None
        return {
            "kind": machine.kind,
            "profile": self.profile,
            "vramBudgetMb": budget or memory["totalVramMb"],
            "vramFreeMb": memory["freeVramMb"],
            "ramFreeMb": memory["freeRamMb"],
            "name": machine.name,
            "torchBuild": machine.torch_build,
            "reason": machine.reason,
            "device": machine.device,
            "ramTotalMb": machine.ram_bytes // MIB,
            "capacityMb": capacity_bytes(machine, self.profile, self.budget_bytes) // MIB,
            "gpus": [
                {
                    "index": gpu.index,
                    "name": gpu.name,
                    "uuid": gpu.uuid,
                    "totalMb": gpu.total_bytes // MIB,
                    "computeCapability": f"{gpu.compute[0]}.{gpu.compute[1]}",
                }
                for gpu in machine.gpus
            ],
            "links": self.topology.in_words([gpu.index for gpu in machine.gpus]),
            "parallel": self._parallel_in_words(),
        }

    def _free_now(self) -> tuple[int | None, int]:
        """Free device and host memory, asked at most once a second."""
        now = time.monotonic()
        if self._free is None or now - self._free[0] > _SUMMARY_FRESH_S:
            gpu = self.machine.gpu if self.machine.kind == "cuda" else None
            self._free = (now, vram_free_bytes(gpu) if gpu else None, ram_free_bytes())
        return self._free[1], self._free[2]


def device_summary(settings: Settings) -> dict[str, Any]:
    """One-off `device` object of `/v1/health`, where no render exists to ask."""
    return DevicePolicy(settings).summary()
