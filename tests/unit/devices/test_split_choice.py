"""Which split a model gets on machines that are not here, and why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from inline_core.devices.budget import GIB, Gpu
from inline_core.devices.split import Split
from inline_core.families.registry import FAMILIES
from tests.unit.devices.fake_nvml import gpus
from tests.unit.devices.hosts import (
    ALL_MIG,
    CPU,
    CROSSED,
    FACTS,
    FIVE_NVLINK,
    FOUR_NVLINK,
    FOUR_PCIE,
    HALF_MIG,
    LIBRARIES,
    NO_XFUSER,
    ONE,
    PAIRS,
    TWO_NVLINK,
    TWO_PCIE,
    UNEQUAL,
    Host,
    decided,
)


@pytest.mark.parametrize(
    ("host", "family", "split", "seats"),
    [
        (TWO_PCIE, "z-image", Split("xdit", ulysses=2), (0, 1)),
        (TWO_NVLINK, "z-image", Split("xdit", ulysses=2), (0, 1)),
        (FOUR_PCIE, "z-image", Split("xdit", ulysses=4), (0, 1, 2, 3)),  # 30 heads, padded
        (FOUR_NVLINK, "z-image", Split("xdit", ulysses=4), (0, 1, 2, 3)),
        (FOUR_NVLINK, "flux-1", Split("xdit", ulysses=4), (0, 1, 2, 3)),
        (FOUR_NVLINK, "flux-2", Split("xdit", ulysses=4), (0, 1, 2, 3)),
        (FOUR_NVLINK, "qwen-image", Split("diffusers", ulysses=4), (0, 1, 2, 3)),
        (FOUR_NVLINK, "wan", Split("xdit", ulysses=4), (0, 1, 2, 3)),
        (FOUR_NVLINK, "krea-2", Split("xdit", ulysses=4), (0, 1, 2, 3)),
        # Five do not divide 24 heads; Z-Image is padded, and diffusers divides unevenly.
        (FIVE_NVLINK, "flux-1", Split("xdit", ulysses=4), (0, 1, 2, 3)),
        (FIVE_NVLINK, "z-image", Split("xdit", ulysses=5), (0, 1, 2, 3, 4)),
        (FIVE_NVLINK, "qwen-image", Split("diffusers", ulysses=5), (0, 1, 2, 3, 4)),
        # Pairs joined by PCIe: a ring between them where there is one.
        (PAIRS, "flux-1", Split("xdit", ulysses=2, ring=2), (0, 1, 2, 3)),
        (CROSSED, "flux-1", Split("xdit", ulysses=2, ring=2), (0, 2, 1, 3)),
        (PAIRS, "qwen-image", Split("diffusers", ulysses=2, ring=2), (0, 1, 2, 3)),
        (PAIRS, "krea-2", Split("xdit", ulysses=4), (0, 1, 2, 3)),
        # One pair and others: the pair.
        (Host(gpus(4), ((1, 3),)), "flux-1", Split("xdit", ulysses=2), (1, 3)),
        (HALF_MIG, "flux-1", Split("xdit", ulysses=2), (0, 3)),
        (UNEQUAL, "flux-1", Split("xdit", ulysses=2), (0, 1)),
    ],
)
def test_auto_takes_the_largest_exact_split(
    host: Host, family: str, split: Split, seats: tuple[int, ...]
) -> None:
    found = decided(host, "auto", family)
    assert (found.split, found.gpus, found.problems) == (split, seats, ())
    assert found.reasons


@pytest.mark.parametrize("family", [name for name, one in FAMILIES.items() if one.splits.backends])
@pytest.mark.parametrize("host", [TWO_PCIE, FOUR_PCIE, FOUR_NVLINK, PAIRS, HALF_MIG, UNEQUAL])
def test_what_auto_takes_can_be_asked_for(host: Host, family: str) -> None:
    """The rules that refuse a setting never refuse what was chosen."""
    facts = replace(FACTS.get(family, FACTS["flux-1"]), family=FAMILIES[family].rules.label)
    traits = FAMILIES[family].splits
    chosen = host.decide("auto", facts, traits)
    assert chosen.split is not None
    assert chosen.split.exact
    key = chosen.split.key.partition(":")[2]
    asked = host.decide(f"{key},backend={chosen.split.backend}", facts, traits)
    assert (asked.split, asked.problems) == (chosen.split, ())
    assert sorted(asked.gpus) == sorted(chosen.gpus)


@pytest.mark.parametrize(
    ("host", "family", "more", "reason"),
    [
        (CPU, "z-image", {}, "no NVIDIA GPUs"),
        (ONE, "z-image", {}, "there is one GPU"),
        (Host(gpus(1), mig=(0,)), "z-image", {}, "there is one GPU"),
        (FOUR_NVLINK, "sdxl", {}, "passes of SDXL cannot be divided"),
        (ALL_MIG, "z-image", {}, "GPU 0-1 in MIG mode cannot join a group"),
        (Host(UNEQUAL.gpus[1:]), "z-image", {}, "no two GPUs are alike"),
        (TWO_PCIE, "z-image", {"platform": "win32"}, "on Linux only, not on win32"),
        (TWO_PCIE, "z-image", {"plan_fits_whole": False}, "does not fit on each GPU"),
        (TWO_PCIE, "krea-2", {"heads": 3}, "not xdit: 3 heads cannot be divided"),
        (
            TWO_PCIE,
            "krea-2",
            {"libraries": {**LIBRARIES, "xfuser": None}},
            'not xdit: xfuser is not installed: pip install "inline-core[parallel]"',
        ),
    ],
)
def test_auto_says_why_there_is_none(
    host: Host, family: str, more: dict[str, Any], reason: str
) -> None:
    found = decided(host, "auto", family, **more)
    assert (found.split, found.gpus, found.problems) == (None, (), ())
    assert reason in "; ".join(found.reasons)


@pytest.mark.parametrize(
    ("host", "family", "more", "reason"),
    [
        (FOUR_NVLINK, "z-image", {}, "4 GPUs, all NVLink"),
        (TWO_PCIE, "z-image", {}, "2 GPUs, all PCIe"),
        (PAIRS, "flux-1", {}, "Ulysses within what NVLink joins, a ring over that"),
        (FIVE_NVLINK, "flux-1", {}, "4 of 5 GPUs, as 24 heads cannot be divided over more"),
        (Host(gpus(4), ((1, 3),)), "flux-1", {}, "2 of 4 GPUs, as the others have no NVLink"),
        (HALF_MIG, "flux-1", {}, "GPU 1-2 in MIG mode cannot join"),
        (UNEQUAL, "flux-1", {}, "GPU 2 left out, as the others are not like it"),
        (FOUR_NVLINK, "flux-1", {}, "PipeFusion is not chosen by itself"),
        (FOUR_NVLINK, "flux-1", {"heads": 25, "traits": FAMILIES["wan"].splits}, "a ring, as 25"),
        (FOUR_NVLINK, "flux-1", {"hosts": 2}, "Ulysses within what is in one host, a ring"),
        (
            FOUR_NVLINK,
            "z-image",
            {"libraries": {**LIBRARIES, "xfuser": None}},
            "not xdit: xfuser is not installed",
        ),
    ],
)
def test_auto_says_why_it_is_this_one(
    host: Host, family: str, more: dict[str, Any], reason: str
) -> None:
    found = decided(host, "auto", family, **more)
    assert found.split is not None
    assert reason in "; ".join(found.reasons)


@pytest.mark.parametrize("family", ["z-image", "flux-2", "krea-2"])
def test_pipefusion_is_not_spoken_of_where_there_is_none(family: str) -> None:
    found = decided(FOUR_NVLINK, "auto", family)
    assert "PipeFusion" not in "; ".join(found.reasons)


@pytest.mark.parametrize(
    ("family", "host", "told"),
    [
        ("flux-1", FOUR_PCIE, "INLINE_PARALLEL=pipefusion=4 would hold a share"),
        ("z-image", FOUR_PCIE, ""),
        ("flux-2", FOUR_PCIE, ""),
    ],
)
def test_a_model_too_big_for_each_gpu_is_not_split_by_itself(
    family: str, host: Host, told: str
) -> None:
    found = decided(host, "auto", family, plan_fits_whole=False)
    text = "; ".join(found.reasons)
    assert found.split is None
    assert "the whole model does not fit on each GPU" in text
    assert told in text
    assert ("pipefusion" in text) is bool(told)


@pytest.mark.parametrize(
    ("hosts", "host", "family", "split", "seats"),
    [
        (2, FOUR_NVLINK, "flux-1", Split("xdit", ulysses=4, ring=2), (0, 1, 2, 3)),
        (2, PAIRS, "flux-1", Split("xdit", ulysses=2, ring=4), (0, 1, 2, 3)),
        (2, ONE, "flux-1", Split("xdit", ring=2), (0,)),
        (2, TWO_PCIE, "krea-2", Split("xdit", ulysses=4), (0, 1)),
        (3, ONE, "krea-2", Split("xdit", ulysses=3), (0,)),
        # Eight would divide 48 heads, but not over three hosts.
        (3, Host(gpus(3)), "krea-2", Split("xdit", ulysses=6), (0, 1)),
    ],
)
def test_auto_over_hosts_is_a_ring_over_them(
    hosts: int, host: Host, family: str, split: Split, seats: tuple[int, ...]
) -> None:
    found = decided(host, "auto", family, hosts=hosts)
    assert (found.split, found.gpus) == (split, seats)


@pytest.mark.parametrize(
    ("host", "family", "words"),
    [
        (CPU, "z-image", ["off"]),
        (ONE, "z-image", ["off"]),
        (FOUR_NVLINK, "sdxl", ["off"]),
        (
            FOUR_NVLINK,
            "z-image",
            ["off: 4 GPUs are here; --multi-gpu would use xdit, Ulysses 4 on 4 ranks: 4 GPUs, all"],
        ),
        (ALL_MIG, "z-image", ["off, also with --multi-gpu: ", "MIG mode"]),
    ],
)
def test_off_says_what_there_would_be(host: Host, family: str, words: list[str]) -> None:
    found = decided(host, "off", family)
    assert (found.split, found.gpus, found.problems) == (None, (), ())
    (reason,) = found.reasons
    assert all(word in reason for word in words)
    assert reason == "off" or len(words[0]) > 3


@pytest.mark.parametrize(
    ("host", "family", "setting", "split", "seats"),
    [
        (CPU, "z-image", "ulysses=2", Split("xdit", ulysses=2), ()),
        (CPU, "z-image", "ulysses=2,backend=diffusers", Split("diffusers", ulysses=2), ()),
        (CPU, "flux-1", "ring=2", Split("xdit", ring=2), ()),
        (CPU, "flux-1", "pipefusion=2,ulysses=2", Split("xdit", ulysses=2, pipefusion=2), ()),
        (CPU, "z-image", "ulysses=16", Split("xdit", ulysses=16), ()),
        (FOUR_PCIE, "flux-1", "ulysses=2", Split("xdit", ulysses=2), (0, 1)),
        (
            FOUR_PCIE,
            "flux-1",
            "pipefusion=4,warmup=2,patches=8",
            Split("xdit", pipefusion=4, warmup=2, patches=8),
            (0, 1, 2, 3),
        ),
        (CROSSED, "flux-1", "ulysses=2,ring=2", Split("xdit", ulysses=2, ring=2), (0, 2, 1, 3)),
        (CROSSED, "flux-1", "ulysses=2", Split("xdit", ulysses=2), (0, 2)),
        (
            Host(gpus(5), ((0, 1), (0, 2), (1, 2), (3, 4))),
            "flux-1",
            "ulysses=2,ring=2",
            Split("xdit", ulysses=2, ring=2),
            (0, 1, 3, 4),
        ),
        # Qwen-Image prefers diffusers, which has no CFG.
        (TWO_PCIE, "qwen-image", "ulysses=2", Split("diffusers", ulysses=2), (0, 1)),
        (TWO_PCIE, "qwen-image", "cfg=2", Split("xdit", cfg=2), (0, 1)),
        (TWO_PCIE, "wan", "cfg=2", Split("xdit", cfg=2), (0, 1)),
        # Not divisible: xDiT refuses, diffusers does it.
        (FIVE_NVLINK, "flux-1", "ulysses=5", Split("diffusers", ulysses=5), (0, 1, 2, 3, 4)),
        (UNEQUAL, "flux-1", "ulysses=3", Split("xdit", ulysses=3), (0, 1, 2)),
        (UNEQUAL, "flux-1", "ulysses=2", Split("xdit", ulysses=2), (0, 1)),
        (HALF_MIG, "flux-1", "ulysses=2", Split("xdit", ulysses=2), (0, 3)),
    ],
)
def test_degrees_that_can_be_had(
    host: Host, family: str, setting: str, split: Split, seats: tuple[int, ...]
) -> None:
    found = decided(host, setting, family)
    assert (found.split, found.gpus, found.problems) == (split, seats, ())
    assert found.reasons[0].startswith("INLINE_PARALLEL=")


@pytest.mark.parametrize(
    ("host", "setting", "family", "more", "reason"),
    [
        (UNEQUAL, "ulysses=3", "flux-1", {}, "not alike: the slowest and the smallest"),
        (FOUR_PCIE, "pipefusion=2", "flux-1", {}, "not quite that of one GPU"),
        (FOUR_PCIE, "ulysses=2", "flux-1", {}, "2 GPUs, all PCIe"),
        (
            FOUR_PCIE,
            "ulysses=2",
            "flux-1",
            {"libraries": NO_XFUSER},
            "not xdit: xfuser is not installed",
        ),
        (
            FOUR_PCIE,
            "ulysses=2",
            "flux-1",
            {"plan_fits_whole": False},
            "the whole model does not fit on each GPU",
        ),
        (
            FOUR_PCIE,
            "pipefusion=2",
            "flux-1",
            {"plan_fits_whole": False},
            "a stage's share of the model does not fit on each GPU",
        ),
    ],
)
def test_degrees_come_with_what_is_to_be_known(
    host: Host, setting: str, family: str, more: dict[str, Any], reason: str
) -> None:
    found = decided(host, setting, family, **more)
    assert found.split is not None
    assert reason in "; ".join(found.reasons)


def test_degrees_of_one_split_nothing() -> None:
    found = decided(FOUR_PCIE, "ulysses=1,ring=1", "flux-1")
    assert (found.split, found.problems) == (None, ())
    assert "nothing is divided" in found.reasons[0]


@pytest.mark.parametrize("setting", ["auto", "ulysses=2", "pipefusion=2,ulysses=16"])
def test_a_setting_for_the_server_does_not_break_families_that_cannot(setting: str) -> None:
    found = decided(FOUR_PCIE, setting, "sdxl")
    assert (found.split, found.problems) == (None, ())
    assert found.reasons == ("passes of SDXL cannot be divided: one device makes each picture",)


def test_gpus_of_one_name_with_other_memory_are_not_alike() -> None:
    sizes = (48, 46, 40)
    mixed = tuple(
        Gpu(index, "A", size * GIB, size * GIB, (8, 0), f"GPU-{index}")
        for index, size in enumerate(sizes)
    )
    found = decided(Host(mixed), "auto", "flux-1")
    assert found.gpus == (0, 1)


def test_of_equal_sets_the_linked_one_is_taken() -> None:
    other = tuple(replace(gpu, index=gpu.index + 2, name="B") for gpu in gpus(2, memory_gib=80))
    named = tuple(replace(gpu, uuid=f"GPU-{gpu.index}") for gpu in (*gpus(2), *other))
    assert decided(Host(named, ((0, 1),)), "auto", "flux-1").gpus == (0, 1)
    assert decided(Host(named), "auto", "flux-1").gpus == (2, 3)  # else the one of more memory
