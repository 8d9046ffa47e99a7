"""Machines that are not here, models, and what is decided for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from inline_core.devices.budget import GIB, Gpu, Machine
from inline_core.devices.split import ModelFacts, SplitDecision, SplitTraits
from inline_core.devices.split_choice import decide
from inline_core.devices.split_setting import wanted_split
from inline_core.devices.topology import read_topology
from inline_core.families.registry import FAMILIES
from tests.unit.devices.fake_nvml import ALL_OF_FOUR, NVLINK_PAIRS, FakeNvml, gpus

LIBRARIES: Mapping[str, str | None] = {
    "torch": "2.13.0",
    "diffusers": "0.42.1",
    "xfuser": "0.7.0",
    "yunchang": "0.6.4",
    "distvae": "0.1.0",
}
FACTS = {
    "z-image": ModelFacts("z.safetensors", "Z-Image", "turbo", 30, 30),
    "flux-1": ModelFacts("flux1-dev.safetensors", "FLUX.1", "dev", 24, 57),
    "flux-2": ModelFacts("flux2-dev.safetensors", "FLUX.2", "dev", 48, 56),
    "qwen-image": ModelFacts("qwen.safetensors", "Qwen-Image", "", 24, 60),
    "wan": ModelFacts("wan.safetensors", "Wan", "t2v-14b", 40, 40),
    "krea-2": ModelFacts("krea2.safetensors", "Krea 2", "raw", 48, 28),
    "sdxl": ModelFacts("sdxl.safetensors", "SDXL", "", 0, 0),
}


@dataclass(frozen=True)
class Host:
    """A machine: GPUs and which of them NVLink joins; none is a processor."""

    gpus: tuple[Gpu, ...] = ()
    nvlink: tuple[tuple[int, int], ...] = ()
    mig: tuple[int, ...] = ()

    def decide(
        self, setting: str, model: ModelFacts, traits: SplitTraits, **more: Any
    ) -> SplitDecision:
        kind = "cuda" if self.gpus else "cpu"
        machine = Machine("cuda" if kind == "cuda" else "cpu", "x", 256 * GIB, self.gpus)
        topology = read_topology(FakeNvml(len(self.gpus), self.nvlink, self.mig), self.gpus)
        wanted = wanted_split(setting, multi_gpu=False)
        options = {"libraries": LIBRARIES, "platform": "linux", **more}
        return decide(wanted, traits, model, machine, topology, **options)


CPU = Host()
ONE = Host(gpus(1))
TWO_PCIE = Host(gpus(2))
TWO_NVLINK = Host(gpus(2), ((0, 1),))
FOUR_PCIE = Host(gpus(4))
FOUR_NVLINK = Host(gpus(4), ALL_OF_FOUR)
PAIRS = Host(gpus(4), NVLINK_PAIRS)
CROSSED = Host(gpus(4), ((0, 2), (1, 3)))
FIVE_NVLINK = Host(gpus(5), tuple((a, b) for a in range(5) for b in range(a + 1, 5)))
HALF_MIG = Host(gpus(4), ALL_OF_FOUR, (1, 2))
ALL_MIG = Host(gpus(2), (), (0, 1))
UNEQUAL = Host((*gpus(2), *(replace(gpu, index=gpu.index + 2) for gpu in gpus(1, "RTX 4090", 24))))
MANY = Host(gpus(16))


def decided(host: Host, setting: str, family: str, **more: Any) -> SplitDecision:
    """A decision for one of our families; `variant`, `heads` and `layers` change its model."""
    changes = {name: more.pop(name) for name in ("variant", "heads", "layers") if name in more}
    traits = more.pop("traits", FAMILIES[family].splits)
    return host.decide(setting, replace(FACTS[family], **changes), traits, **more)


NO_XFUSER = {**LIBRARIES, "xfuser": None}
NO_YUNCHANG = {**LIBRARIES, "yunchang": None, "distvae": None}
OLD_XFUSER = {**LIBRARIES, "xfuser": "0.5.2"}
