"""The device under test: one interface for CUDA and, in a dry run, for the processor."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from inline_core.devices.budget import Machine
from inline_core.devices.placement import DeviceKind
from inline_core.devices.probe import vram_free_bytes
from inline_core.devices.release import give_back


@dataclass(slots=True)
class Peak:
    """Most bytes of tensors, and of what the allocator took, above what was there at the start.

    Both are None where the device does not count (the processor).
    """

    allocated: int | None = None
    reserved: int | None = None


@dataclass(frozen=True, slots=True)
class Accelerator:
    """Calls of a device library, each of them harmless on the processor."""

    name: str
    machine: Machine

    @property
    def is_cuda(self) -> bool:
        """Whether this is a GPU, and not a dry run."""
        return self.name.startswith("cuda")

    @property
    def kind(self) -> DeviceKind:
        """Its kind in the words of the policy."""
        return "cuda" if self.is_cuda else "cpu"

    def synchronize(self) -> None:
        """Wait for all that was queued."""
        if self.is_cuda:
            torch.cuda.synchronize()

    def allocated(self) -> int:
        """Bytes of all tensors on the device; 0 where that is not counted."""
        return torch.cuda.memory_allocated() if self.is_cuda else 0

    def used_by_driver(self) -> int | None:
        """Bytes taken since the start beside torch's own: context, kernels, other programs."""
        gpu = self.machine.gpu
        if not self.is_cuda or gpu is None:
            return None
        free = vram_free_bytes(gpu)
        return None if free is None else gpu.free_bytes - free - torch.cuda.memory_reserved()

    def clean(self) -> None:
        """Let everything go that nobody holds."""
        gc.collect()
        if self.is_cuda:
            torch.cuda.synchronize()
            # What the matrix library keeps for each thread would count as a leak.
            clear: Any = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)  # noqa: SLF001
            if clear is not None:
                clear()
        give_back()

    def seconds(self, work: Callable[[], object]) -> float:
        """Wall time of one call, to the end of what it queued."""
        self.synchronize()
        started = time.perf_counter()
        work()
        self.synchronize()
        return time.perf_counter() - started

    @contextmanager
    def peak(self) -> Iterator[Peak]:
        """Watch the memory of the device during a block."""
        found = Peak()
        if not self.is_cuda:
            yield found
            return
        self.clean()
        torch.cuda.reset_peak_memory_stats()
        allocated, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
        try:
            yield found
        finally:
            torch.cuda.synchronize()
            found.allocated = torch.cuda.max_memory_allocated() - allocated
            found.reserved = torch.cuda.max_memory_reserved() - reserved

    @contextmanager
    def short_of_memory(self, spare_bytes: int) -> Iterator[bool]:
        """Leave only so much to torch; False where that cannot be done."""
        if not self.is_cuda:
            yield False
            return
        total = torch.cuda.get_device_properties(self.name).total_memory
        share = min((torch.cuda.memory_reserved() + spare_bytes) / total, 1.0)
        torch.cuda.set_per_process_memory_fraction(share, self.name)
        try:
            yield True
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0, self.name)


def find(machine: Machine) -> Accelerator | None:
    """The device to measure; None if torch cannot use it."""
    if machine.kind != "cuda":
        return Accelerator("cpu", machine)
    if not torch.cuda.is_available():
        return None
    torch.cuda.set_device(machine.device)
    # The context is made now, so that no section measures it.
    torch.zeros(1, device=machine.device).add_(1)
    torch.cuda.synchronize()
    return Accelerator(machine.device, machine)
