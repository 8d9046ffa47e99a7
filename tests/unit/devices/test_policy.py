from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from inline_core.devices import probe as probe_module
from inline_core.devices.budget import (
    CONTEXT_BYTES,
    GIB,
    MIB,
    Demand,
    Gpu,
    Machine,
    Weights,
    Workload,
    capacity_bytes,
)
from inline_core.devices.policy import DevicePolicy, Room, device_summary
from inline_core.devices.probe import ram_bytes, ram_free_bytes, visible
from inline_core.devices.split import Split
from inline_core.devices.topology import Topology, read_topology
from inline_core.errors import InvalidRequest
from inline_core.families.registry import FAMILIES
from inline_core.settings import Settings
from tests.unit.devices.fake_nvml import ALL_OF_FOUR, NVLINK_PAIRS, FakeNvml, gpus
from tests.unit.devices.hosts import FACTS, LIBRARIES, UNEQUAL


def policy() -> DevicePolicy:
    return DevicePolicy(Settings(profile="cpu"))


def test_summary_has_the_keys_of_the_contract() -> None:
    summary = device_summary(Settings(profile="cpu"))
    assert summary["kind"] == summary["profile"] == "cpu"
    assert summary["vramBudgetMb"] is None
    assert summary["vramFreeMb"] is None
    assert summary["ramFreeMb"] > 0
    assert {"name", "torchBuild", "reason"} <= summary.keys()


def test_summary_is_cheap() -> None:
    asked = policy()
    asked.summary()
    start = time.perf_counter()
    for _ in range(20):
        asked.summary()
    assert (time.perf_counter() - start) / 20 < 0.005


def test_confirm_corrects_the_probe() -> None:
    asked = policy()
    asked.confirm("mps", "said so")
    assert asked.machine.kind == "mps"
    assert asked.place_vae(Weights(1)).dtype == "float32"


def test_room_keeps_headroom_and_counts_what_is_held() -> None:
    asked = policy()
    room = asked.room(Room())
    assert 0 <= room.host_bytes < ram_free_bytes()
    cap = capacity_bytes(asked.machine, "cpu")
    assert asked.room(Room(0, cap - MIB)).host_bytes <= MIB
    assert asked.room(Room(0, 2 * cap)).host_bytes == 0


def test_the_budget_caps_the_room() -> None:
    asked = DevicePolicy(Settings(profile="cpu", vram_budget=1000))
    context = CONTEXT_BYTES["cpu"]
    assert asked.room(Room()).host_bytes <= 1000 * MIB - context
    assert asked.room(Room(0, 1000 * MIB - context)).host_bytes == 0


GPUS = (
    Gpu(0, "a", 24 * GIB, 24 * GIB, (8, 6), "GPU-aaaa"),
    Gpu(1, "b", 48 * GIB, 48 * GIB, (8, 9), "GPU-bbbb"),
)


@pytest.mark.parametrize(
    ("mask", "names"),
    [
        (None, "ab"),
        ("", ""),
        ("1", "b"),
        ("1,0", "ba"),
        ("0, 1", "ab"),
        ("GPU-bb", "b"),
        ("7", ""),
        ("0,7,1", "a"),  # what follows an unknown entry is ignored, as CUDA does
        ("-1", ""),
    ],
)
def test_the_cuda_mask_decides_what_is_seen_and_numbered(mask: str | None, names: str) -> None:
    seen = visible(GPUS, mask)
    assert "".join(gpu.name for gpu in seen) == names
    assert [gpu.index for gpu in seen] == list(range(len(names)))


def test_the_biggest_gpu_is_used_and_named_as_torch_names_it() -> None:
    assert Machine("cuda", "x", 64 * GIB, visible(GPUS, "1,0")).device == "cuda:0"
    assert Machine("cuda", "x", 64 * GIB, GPUS).device == "cuda:1"
    assert Machine("cpu", "x", 64 * GIB).device == "cpu"


def test_a_container_limit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "memory.max").write_text(str(2 * GIB))
    (tmp_path / "memory.current").write_text(str(GIB))
    (tmp_path / "memory.stat").write_text("anon 5\ninactive_file 1048576\n")
    monkeypatch.setattr(probe_module, "_CGROUP", tmp_path)
    assert ram_bytes() == 2 * GIB
    assert ram_free_bytes() == GIB + MIB
    (tmp_path / "memory.max").write_text("max")
    assert ram_bytes() > 2 * GIB


def of_gpus(
    count: int,
    nvlink: tuple[tuple[int, int], ...] = (),
    mig: tuple[int, ...] = (),
    memory_gib: int = 48,
    **settings: Any,
) -> DevicePolicy:
    """The policy of a machine with GPUs; none: of a processor."""
    found = gpus(count, memory_gib=memory_gib)
    machine = Machine("cuda" if count else "cpu", "x", 256 * GIB, found)
    links = read_topology(FakeNvml(count, nvlink, mig), found)
    return DevicePolicy(Settings(**settings), machine, links, LIBRARIES)


@pytest.mark.parametrize(
    ("count", "links", "words"),
    [
        (0, (), "no GPUs"),
        (1, (), "1 GPU"),
        (4, ALL_OF_FOUR, "4 GPUs, all NVLink"),
        (4, NVLINK_PAIRS, "GPU 0-1 NVLink, 2-3 NVLink, else PCIe"),
    ],
)
def test_the_summary_tells_links(
    count: int, links: tuple[tuple[int, int], ...], words: str
) -> None:
    assert of_gpus(count, links).summary()["links"] == words


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "off"),
        ({"multi_gpu": True}, "auto"),
        ({"parallel": "auto"}, "auto"),
        ({"parallel": "off", "multi_gpu": True}, "off"),
        ({"parallel": " ULYSSES=2, ring=2"}, "ulysses=2,ring=2"),
        ({"parallel": "pipefusion=2"}, "pipefusion=2,warmup=1"),
        ({"parallel": "ulysses=two"}, "ulysses=two"),
    ],
)
def test_the_summary_tells_the_setting_in_effect(settings: dict[str, Any], words: str) -> None:
    assert of_gpus(2, **settings).summary()["parallel"] == words


def test_links_are_those_of_gpus_in_use() -> None:
    asked = of_gpus(2, ((0, 1),))
    assert asked.topology.link(0, 1) == "nvlink"
    asked.confirm("cpu", "torch found none")
    assert asked.topology == Topology()
    assert DevicePolicy(Settings(profile="cpu")).topology == Topology()


@pytest.mark.parametrize(
    ("settings", "split"),
    [
        ({}, None),
        ({"multi_gpu": True}, Split("xdit", ulysses=4)),
        ({"parallel": "auto"}, Split("xdit", ulysses=4)),
        ({"parallel": "off", "multi_gpu": True}, None),
        ({"parallel": "ulysses=2,backend=diffusers"}, Split("diffusers", ulysses=2)),
        ({"parallel": "auto", "parallel_hosts": 2}, Split("xdit", ulysses=4, ring=2)),
    ],
)
def test_settings_decide_about_splits(settings: dict[str, Any], split: Split | None) -> None:
    found = of_gpus(4, ALL_OF_FOUR, **settings).split(FAMILIES["z-image"].splits, FACTS["z-image"])
    assert (found.split, found.problems) == (split, ())


def big(values: int, denoise_values: int = 0) -> Demand:
    weights = Weights(values, values, values // 4096, values // 60)
    return Demand(weights, work=Workload(denoise_values=denoise_values))


BILLION = 10**9


@pytest.mark.parametrize(
    ("setting", "demand", "split", "reason"),
    [
        ("auto", big(6 * BILLION), Split("xdit", ulysses=4), ""),
        # As int8 it fits into 24 GiB, where it would be streamed at 48 GB.
        ("auto", big(18 * BILLION), Split("xdit", ulysses=4), ""),
        ("auto", big(40 * BILLION), None, "pipefusion=4 would hold a share of it on each"),
        ("ulysses=4", big(40 * BILLION), Split("xdit", ulysses=4), "the whole model does not fit"),
        ("pipefusion=4", big(40 * BILLION), Split("xdit", pipefusion=4), ""),
        (
            "pipefusion=2",
            big(90 * BILLION),
            Split("xdit", pipefusion=2),
            "a stage's share of the model does not fit",
        ),
        # Work that one GPU has no room for is divided; its half has none either.
        ("auto", big(BILLION, 14 * BILLION), Split("xdit", ulysses=4), ""),
        ("ulysses=2", big(BILLION, 14 * BILLION), Split("xdit", ulysses=2), "does not fit"),
        ("off", big(6 * BILLION), None, "--multi-gpu would use xdit, Ulysses 4"),
        ("off", big(40 * BILLION), None, "off, also with --multi-gpu: the whole model does not"),
    ],
)
def test_ranks_must_have_room(
    setting: str, demand: Demand, split: Split | None, reason: str
) -> None:
    asked = of_gpus(4, ALL_OF_FOUR, memory_gib=24, parallel=setting)
    found = asked.split(FAMILIES["flux-1"].splits, FACTS["flux-1"], demand)
    text = "; ".join(found.reasons)
    assert (found.split, found.problems) == (split, ())
    assert reason in text
    assert ("does not" in text) is ("does not" in reason or "would hold" in reason)


@pytest.mark.parametrize(("setting", "fits"), [("ulysses=2", True), ("ulysses=3", False)])
def test_the_smallest_rank_must_have_room(setting: str, fits: bool) -> None:
    """Two of 48 GiB and one of 24, for 28 GB in int8."""
    machine = Machine("cuda", "x", 256 * GIB, UNEQUAL.gpus)
    asked = DevicePolicy(Settings(parallel=setting), machine, Topology(), LIBRARIES)
    found = asked.split(FAMILIES["flux-1"].splits, FACTS["flux-1"], big(28 * BILLION))
    assert found.split is not None
    assert ("does not fit" in "; ".join(found.reasons)) is not fits


def test_ranks_on_a_processor_share_its_memory() -> None:
    asked = of_gpus(0, parallel="ulysses=4")
    family = FAMILIES["z-image"].splits
    small = asked.split(family, FACTS["z-image"], big(BILLION))
    large = asked.split(family, FACTS["z-image"], big(70 * BILLION))
    assert small.split == large.split == Split("xdit", ulysses=4)
    assert "does not fit" not in "; ".join(small.reasons)
    assert "does not fit" in "; ".join(large.reasons)


@pytest.mark.parametrize(
    ("count", "settings", "problem"),
    [
        (2, {"parallel": "ulysses=two"}, "ulysses=two: not a whole number"),
        (2, {"parallel": "pipefusion=3"}, "needs 3 ranks, and there are 2 GPUs"),
        (2, {"parallel": "pipefusion=2,ulysses=2"}, "needs 4 ranks, and there are 2 GPUs"),
        (1, {"parallel": "ulysses=2"}, "needs 2 ranks, and there is 1 GPU"),
        (0, {"parallel": "ulysses=17"}, "at most 16 on a processor"),
        (2, {"parallel": "ulysses=3", "parallel_hosts": 2}, "divided evenly over 2 hosts"),
        (2, {"parallel": "ulysses=2", "mig": (1,)}, "GPU 1 in MIG mode"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_at_start(
    count: int, settings: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidRequest, match="INLINE_PARALLEL") as caught:
        of_gpus(count, **settings).check_parallel()
    assert problem in caught.value.message


@pytest.mark.parametrize(
    ("count", "settings"),
    [
        (0, {}),
        (0, {"parallel": "auto"}),
        (0, {"multi_gpu": True}),
        (0, {"parallel": "ulysses=2,ring=2"}),
        (1, {"parallel": "auto"}),
        (2, {"parallel": "ulysses=2"}),
        (2, {"parallel": "ulysses=4", "parallel_hosts": 2}),
        (2, {"parallel": "off"}),
    ],
)
def test_other_settings_let_the_server_start(count: int, settings: dict[str, Any]) -> None:
    of_gpus(count, **settings).check_parallel()


def test_probing_does_not_import_torch() -> None:
    code = (
        "import sys; from inline_core.devices.policy import device_summary; "
        "from inline_core.settings import Settings; device_summary(Settings()); "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
