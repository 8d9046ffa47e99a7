"""Splits that are refused, and what to do instead."""

from __future__ import annotations

from typing import Any

import pytest

from inline_core.devices.split import Mode, SplitTraits
from inline_core.devices.split_rules import BROKEN, Defect, installed_libraries
from inline_core.families.registry import FAMILIES
from tests.unit.devices.hosts import (
    ALL_MIG,
    CPU,
    FIVE_NVLINK,
    FOUR_NVLINK,
    FOUR_PCIE,
    HALF_MIG,
    LIBRARIES,
    MANY,
    NO_XFUSER,
    NO_YUNCHANG,
    OLD_XFUSER,
    ONE,
    TWO_PCIE,
    Host,
    decided,
)


@pytest.mark.parametrize(
    ("host", "family", "setting", "more", "problem"),
    [
        (
            TWO_PCIE,
            "z-image",
            "pipefusion=2,ulysses=2",
            {},
            "pipefusion=2,warmup=1 needs 4 ranks, and there are 2 GPUs",
        ),
        (
            FOUR_PCIE,
            "z-image",
            "pipefusion=2,ulysses=2",
            {},
            "Z-Image has no PipeFusion in xfuser 0.7.0: use ulysses=4",
        ),
        (FOUR_PCIE, "wan", "pipefusion=4", {}, "Wan has no PipeFusion in xfuser 0.7.0: use"),
        (
            FOUR_PCIE,
            "flux-2",
            "pipefusion=4",
            {},
            "in xfuser 0.7.0 the PipeFusion of FLUX.2 fails, as its asynchronous part updates the KV cache twice: use ulysses=4",
        ),
        (TWO_PCIE, "krea-2", "ring=2", {}, "Krea 2 has no ring in xfuser 0.7.0: use ulysses=2"),
        (
            TWO_PCIE,
            "krea-2",
            "ulysses=2,backend=diffusers",
            {},
            "Krea 2 has no Ulysses in diffusers 0.42.1: use backend=xdit",
        ),
        (
            TWO_PCIE,
            "z-image",
            "cfg=2,backend=diffusers",
            {},
            "Z-Image has no CFG in diffusers 0.42.1: use backend=xdit",
        ),
        (TWO_PCIE, "flux-1", "cfg=2", {}, "FLUX.1 has no CFG in xfuser 0.7.0: use ulysses=2"),
        (
            TWO_PCIE,
            "z-image",
            "cfg=2",
            {},
            "Z-Image turbo takes no classifier-free guidance, so that cfg has nothing to divide: use ulysses=2",
        ),
        (FOUR_PCIE, "wan", "cfg=4", {}, "cannot be divided over cfg=4: cfg can be 1 or 2"),
        (
            FOUR_PCIE,
            "flux-1",
            "pipefusion=2,ulysses=2",
            {"variant": "schnell"},
            "FLUX.1 schnell takes so few steps that PipeFusion is no use: use ulysses=4",
        ),
        (
            FOUR_PCIE,
            "flux-1",
            "pipefusion=4",
            {"layers": 3},
            "has 3 layers, too few for the stages of pipefusion=4: use ulysses=4",
        ),
        (FOUR_PCIE, "flux-1", "pipefusion=4", {"layers": 5}, "has 5 layers, too few"),
        (
            FOUR_PCIE,
            "flux-1",
            "pipefusion=2,cfg=2",
            {"traits": SplitTraits(frozenset({"ulysses", "pipefusion", "cfg"}))},
            "PipeFusion cannot be had together with cfg=2: use ulysses=4",
        ),
        (
            FIVE_NVLINK,
            "flux-1",
            "ulysses=5,backend=xdit",
            {},
            "flux1-dev.safetensors has 24 heads, which cannot be divided over ulysses=5: use ring=5",
        ),
        (
            FIVE_NVLINK,
            "krea-2",
            "ulysses=5",
            {},
            "krea2.safetensors has 48 heads, which cannot be divided over ulysses=5: use ulysses=4",
        ),
        (TWO_PCIE, "krea-2", "ulysses=2", {"heads": 3}, "has 3 heads, which cannot be divided"),
        (
            CPU,
            "flux-1",
            "ring=2,backend=diffusers",
            {},
            "diffusers has no ring on a processor, as attention gives no LSE there: use ulysses=2",
        ),
        (
            CPU,
            "qwen-image",
            "ulysses=2,ring=2,backend=diffusers",
            {},
            "diffusers has no ring on a processor, as attention gives no LSE there: use ulysses=4",
        ),
        (
            FOUR_NVLINK,
            "qwen-image",
            "ulysses=2,ring=2,backend=diffusers",
            {"heads": 5},
            "has 5 heads, which cannot be divided over ulysses=2: use ulysses=4",
        ),
        (
            TWO_PCIE,
            "krea-2",
            "ulysses=2",
            {"libraries": NO_XFUSER},
            'xfuser is not installed: pip install "inline-core[parallel]"',
        ),
        (
            TWO_PCIE,
            "flux-1",
            "pipefusion=2",
            {"libraries": NO_XFUSER},
            'xfuser is not installed: pip install "inline-core[parallel]"',
        ),
        (
            TWO_PCIE,
            "flux-1",
            "ulysses=2,backend=xdit",
            {"libraries": NO_YUNCHANG},
            "yunchang, distvae are not installed",
        ),
        (
            TWO_PCIE,
            "flux-1",
            "ulysses=2,backend=xdit",
            {"libraries": OLD_XFUSER},
            "xfuser 0.5.2 is too old, 0.6 is needed",
        ),
        (
            TWO_PCIE,
            "flux-1",
            "ulysses=2,backend=diffusers",
            {"libraries": {}},
            "torch, diffusers are not installed",
        ),
        (ONE, "flux-1", "ulysses=2", {}, "ulysses=2 needs 2 ranks, and there is 1 GPU"),
        (
            HALF_MIG,
            "flux-1",
            "ulysses=4",
            {},
            "there are 2 GPUs that can join a group (GPU 1-2 in MIG mode cannot)",
        ),
        (ALL_MIG, "flux-1", "ulysses=2", {}, "there are 0 GPUs that can join a group"),
        (CPU, "z-image", "ulysses=17", {}, "needs 17 ranks, and there are at most 16"),
        (
            FOUR_NVLINK,
            "flux-1",
            "ulysses=3",
            {"hosts": 2},
            "3 ranks cannot be divided evenly over 2 hosts",
        ),
        (
            TWO_PCIE,
            "flux-1",
            "ulysses=6",
            {"hosts": 2},
            "ulysses=6 needs 6 ranks, and there are 2 GPUs on each of 2 hosts",
        ),
        (TWO_PCIE, "flux-1", "ulysses=2", {"platform": "darwin"}, "Linux only, not on darwin"),
    ],
)
def test_degrees_that_cannot_be_had(
    host: Host, family: str, setting: str, more: dict[str, Any], problem: str
) -> None:
    found = decided(host, setting, family, **more)
    assert (found.split, found.gpus) == (None, ())
    assert problem in "; ".join(found.problems)


def test_all_problems_are_told() -> None:
    found = decided(
        TWO_PCIE,
        "pipefusion=3,ulysses=5,backend=xdit",
        "flux-1",
        variant="schnell",
        layers=2,
        libraries=NO_XFUSER,
        platform="win32",
        hosts=2,
    )
    words = [
        "win32",
        "15 ranks",
        "over 2 hosts",
        "not installed",
        "24 heads",
        "2 layers",
        "few steps",
    ]
    assert len(found.problems) == len(words)
    for word, problem in zip(words, found.problems, strict=True):
        assert word in problem


@pytest.mark.parametrize(
    ("version", "broken"),
    [("0.6.0", True), ("0.7.0", True), ("0.7", True), ("0.7.0.dev3", True), ("0.7.1", False),
     ("0.8rc1", False), ("0.10", False), ("1.0.0", False)],
)  # fmt: skip
def test_a_release_that_repairs_it_is_used(version: str, broken: bool) -> None:
    found = decided(TWO_PCIE, "pipefusion=2", "flux-2", libraries={**LIBRARIES, "xfuser": version})
    assert bool(found.problems) is broken
    assert (found.split is None) is broken


@pytest.mark.parametrize(("version", "able"), [("0.7.0", False), ("0.8.0", True)])
def test_what_a_family_will_declare_is_known_not_to_be_there_yet(version: str, able: bool) -> None:
    """A newer xfuser alone brings Z-Image no PipeFusion; its family has to say so as well."""
    libraries = {**LIBRARIES, "xfuser": version}
    assert decided(
        TWO_PCIE, "pipefusion=2", "z-image", libraries=libraries, variant="base"
    ).problems
    traits = SplitTraits(frozenset({"pipefusion"}))
    more = {"libraries": libraries, "traits": traits, "variant": "base"}
    assert (decided(TWO_PCIE, "pipefusion=2", "z-image", **more).split is not None) is able


def test_what_is_broken_is_told_with_a_version() -> None:
    assert all(isinstance(defect, Defect) and defect.up_to for defect in BROKEN.values())
    labels = {family.rules.label for family in FAMILIES.values()}
    assert {family for _, _, family in BROKEN} <= labels


MODES: tuple[Mode, ...] = ("ulysses", "ring", "pipefusion", "cfg")


@pytest.mark.parametrize("degree", range(2, 17))
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("family", ["z-image", "flux-1", "flux-2", "qwen-image", "wan", "krea-2"])
def test_a_remedy_can_be_had(family: str, mode: Mode, degree: int) -> None:
    """Whatever is refused of one degree is refused with something that is not."""
    found = decided(MANY, f"{mode}={degree}", family)
    for problem in found.problems:
        remedy = problem.rpartition(": use ")[2] if ": use " in problem else ""
        if not remedy:
            assert "cfg can be 1 or 2" in problem
            continue
        again = f"{mode}={degree},{remedy}" if remedy.startswith("backend") else remedy
        assert decided(MANY, again, family).split is not None, (problem, again)


def test_versions_are_those_that_are_installed() -> None:
    found = installed_libraries()
    assert set(found) == set(LIBRARIES)
    assert found["torch"] is not None
