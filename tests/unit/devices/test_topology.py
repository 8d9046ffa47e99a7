from __future__ import annotations

import pytest

from inline_core.devices.budget import GIB, Gpu
from inline_core.devices.probe import visible
from inline_core.devices.topology import Topology, gpus_in_words, read_topology
from tests.unit.devices.fake_nvml import ALL_OF_FOUR, NVLINK_PAIRS, FakeNvml, gpus

# A ring of links: 0-1-2-3-0, so that no three are all linked.
RING = ((0, 1), (1, 2), (2, 3), (0, 3))


@pytest.mark.parametrize(
    ("nvml", "cliques", "words"),
    [
        (FakeNvml(0), (), "no GPUs"),
        (FakeNvml(1), ((0,),), "1 GPU"),
        (FakeNvml(2), ((0,), (1,)), "2 GPUs, all PCIe"),
        (FakeNvml(2, [(0, 1)]), ((0, 1),), "2 GPUs, all NVLink"),
        (FakeNvml(4), ((0,), (1,), (2,), (3,)), "4 GPUs, all PCIe"),
        (FakeNvml(4, ALL_OF_FOUR), ((0, 1, 2, 3),), "4 GPUs, all NVLink"),
        (FakeNvml(4, NVLINK_PAIRS), ((0, 1), (2, 3)), "GPU 0-1 NVLink, 2-3 NVLink, else PCIe"),
        (
            FakeNvml(4, [(0, 2), (1, 3)]),
            ((0, 2), (1, 3)),
            "GPU 0+2 NVLink, 1+3 NVLink, else PCIe",
        ),
        (
            FakeNvml(4, RING),
            ((0, 1), (2, 3)),
            "GPU 0-1 NVLink, 2-3 NVLink, else partly NVLink",
        ),
        (FakeNvml(3, [(1, 2)]), ((1, 2), (0,)), "GPU 1-2 NVLink, else PCIe"),
        (
            FakeNvml(4, [(1, 2), (1, 3), (2, 3)]),
            ((1, 2, 3), (0,)),
            "GPU 1-3 NVLink, else PCIe",
        ),
        (
            FakeNvml(2, [(0, 1)], mig=[1]),
            ((0, 1),),
            "2 GPUs, all NVLink; GPU 1 in MIG mode",
        ),
        (FakeNvml(2, mig=[0, 1]), ((0,), (1,)), "2 GPUs, all PCIe; GPU 0-1 in MIG mode"),
    ],
)
def test_links_are_read_and_told(
    nvml: FakeNvml, cliques: tuple[tuple[int, ...], ...], words: str
) -> None:
    found = read_topology(nvml, gpus(nvml.count))
    assert found.cliques(range(nvml.count)) == cliques
    assert found.in_words(range(nvml.count)) == words
    assert found.mig == frozenset(nvml.mig)


def test_every_pair_is_asked_once() -> None:
    nvml = FakeNvml(4, ALL_OF_FOUR)
    assert set(read_topology(nvml, gpus(4)).links) == set(ALL_OF_FOUR)
    assert sorted(nvml.asked) == list(ALL_OF_FOUR)


@pytest.mark.parametrize(
    ("refused", "links", "mig"),
    [
        ("nvmlDeviceGetP2PStatus", "pcie", {0}),
        ("nvmlDeviceGetMigMode", "nvlink", set()),
        ("nvmlDeviceGetHandleByUUID", "pcie", set()),
    ],
)
def test_what_the_driver_does_not_say_is_pcie_and_no_mig(
    refused: str, links: str, mig: set[int]
) -> None:
    found = read_topology(FakeNvml(2, [(0, 1)], mig=[0], refuses=[refused]), gpus(2))
    assert found.link(0, 1) == links
    assert found.mig == mig


def test_a_masked_gpu_is_found_by_its_uuid() -> None:
    """Under `CUDA_VISIBLE_DEVICES=3,0,2` torch's 0 and 2 are the driver's 3 and 2."""
    nvml = FakeNvml(4, NVLINK_PAIRS, mig=[3])
    found = read_topology(nvml, visible(gpus(4), "3,0,2"))
    assert found.links == {(0, 1): "pcie", (0, 2): "nvlink", (1, 2): "pcie"}
    assert found.mig == {0}


def test_a_gpu_without_uuid_is_found_by_its_index() -> None:
    nameless = [Gpu(index, "x", GIB, GIB) for index in range(2)]
    assert read_topology(FakeNvml(2, [(0, 1)]), nameless).link(1, 0) == "nvlink"


def test_a_slice_of_a_gpu_tells_by_its_uuid() -> None:
    """The driver does not know the handle of a slice by this name, and needs not."""
    slices = [Gpu(index, "H100 MIG 3g.40gb", GIB, GIB, uuid=f"MIG-{index}") for index in range(2)]
    found = read_topology(FakeNvml(1), slices)
    assert found.mig == {0, 1}
    assert found.link(0, 1) == "pcie"


def test_unknown_pairs_are_pcie() -> None:
    assert Topology().link(5, 2) == "pcie"
    assert Topology({(0, 1): "nvlink"}).link(1, 0) == "nvlink"


@pytest.mark.parametrize(
    ("indexes", "words"),
    [((3,), "3"), ((0, 1), "0-1"), ((2, 3, 4), "2-4"), ((0, 2), "0+2"), ((2, 1), "2+1")],
)
def test_gpus_are_named_in_short(indexes: tuple[int, ...], words: str) -> None:
    assert gpus_in_words(indexes) == words
