"""How the GPUs of this machine are linked, as the driver tells; torch is not asked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from types import MappingProxyType
from typing import Any, Final, Literal

from inline_core.devices.budget import Gpu
from inline_core.devices.probe import driver_library

Link = Literal["nvlink", "pcie"]

_MIG_PREFIX: Final = "MIG-"
_LINK_WORDS: Final[Mapping[Link, str]] = MappingProxyType({"nvlink": "NVLink", "pcie": "PCIe"})


@dataclass(frozen=True, slots=True)
class Topology:
    """Links between GPUs by pairs of torch's indexes, the lower one first.

    `mig` are the GPUs that are a slice of one, or cut into slices, by NVIDIA's Multi-Instance GPU:
    they cannot join a group.  A pair that is not named is taken for PCIe.
    """

    links: Mapping[tuple[int, int], Link] = field(default_factory=dict)
    mig: frozenset[int] = frozenset()

    def link(self, one: int, other: int) -> Link:
        """How two GPUs are linked."""
        return self.links.get((min(one, other), max(one, other)), "pcie")

    def cliques(self, gpus: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """`gpus` in sets within which all are linked by NVLink, the largest first.

        Each GPU is in one of them, alone where it has no such link.
        """
        left = sorted(gpus)
        found: list[tuple[int, ...]] = []
        while left:
            best = max((self._clique(first, left) for first in left), key=len)
            found.append(best)
            left = [gpu for gpu in left if gpu not in best]
        return tuple(found)

    def _clique(self, first: int, among: Sequence[int]) -> tuple[int, ...]:
        """A set around one GPU; exact for switches and bridges, good enough for rings of links."""
        members = [first]
        for gpu in among:
            linked = (self.link(gpu, member) == "nvlink" for member in members)
            if gpu not in members and all(linked):
                members.append(gpu)
        return tuple(sorted(members))

    def in_words(self, gpus: Sequence[int]) -> str:
        """`4 GPUs, all NVLink`, or `GPU 0-1 NVLink, 2-3 NVLink, else PCIe`."""
        return f"{self._links_in_words(gpus)}{self._mig_in_words(gpus)}"

    def _links_in_words(self, gpus: Sequence[int]) -> str:
        count = f"{len(gpus) or 'no'} {'GPU' if len(gpus) == 1 else 'GPUs'}"
        kinds = {self.link(one, other) for one, other in combinations(gpus, 2)}
        if not kinds:
            return count
        if len(kinds) == 1:
            return f"{count}, all {_LINK_WORDS[kinds.pop()]}"
        cliques = self.cliques(gpus)
        named = ", ".join(f"{gpus_in_words(many)} NVLink" for many in cliques if len(many) > 1)
        within = sum(math.comb(len(clique), 2) for clique in cliques)
        linked = sum(self.link(*pair) == "nvlink" for pair in combinations(gpus, 2))
        return f"GPU {named}, else {'partly NVLink' if linked > within else 'PCIe'}"

    def _mig_in_words(self, gpus: Sequence[int]) -> str:
        sliced = [gpu for gpu in gpus if gpu in self.mig]
        return f"; GPU {gpus_in_words(sliced)} in MIG mode" if sliced else ""


def gpus_in_words(gpus: Sequence[int]) -> str:
    """`0-3`, or `0+2+5` where they do not follow each other."""
    first, last = gpus[0], gpus[-1]
    if len(gpus) > 1 and list(gpus) == list(range(first, last + 1)):
        return f"{first}-{last}"
    return "+".join(str(gpu) for gpu in gpus)


def find_topology(gpus: Sequence[Gpu]) -> Topology:
    """The links of the GPUs that are here; none where there is no driver to ask."""
    nvml = driver_library()
    return Topology() if nvml is None else read_topology(nvml, gpus)


def read_topology(nvml: Any, gpus: Sequence[Gpu]) -> Topology:
    """Ask the driver's library about every pair of `gpus`.

    What it does not answer counts as PCIe and as no MIG: both are true of the GPUs and drivers
    that know neither.
    """
    handles = {gpu.index: _handle(nvml, gpu) for gpu in gpus}
    pairs = combinations(sorted(handles), 2)
    links = {(one, other): _link(nvml, handles[one], handles[other]) for one, other in pairs}
    sliced = (gpu.index for gpu in gpus if _is_mig(nvml, gpu, handles[gpu.index]))
    return Topology(links, frozenset(sliced))


def _handle(nvml: Any, gpu: Gpu) -> Any:
    """The driver's own name for a GPU; by uuid, as a mask renumbers the indexes."""
    try:
        if gpu.uuid:
            return nvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
        return nvml.nvmlDeviceGetHandleByIndex(gpu.index)
    except nvml.NVMLError:
        return None


def _link(nvml: Any, one: Any, other: Any) -> Link:
    if one is None or other is None:
        return "pcie"
    try:
        status = nvml.nvmlDeviceGetP2PStatus(one, other, nvml.NVML_P2P_CAPS_INDEX_NVLINK)
    except nvml.NVMLError:
        return "pcie"
    return "nvlink" if status == nvml.NVML_P2P_STATUS_OK else "pcie"


def _is_mig(nvml: Any, gpu: Gpu, handle: Any) -> bool:
    if gpu.uuid.startswith(_MIG_PREFIX):
        return True
    if handle is None:
        return False
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(handle)
    except nvml.NVMLError:
        return False
    return bool(current == nvml.NVML_DEVICE_MIG_ENABLE)
