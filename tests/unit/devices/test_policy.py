from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from inline_core.devices import probe as probe_module
from inline_core.devices.budget import (
    CONTEXT_BYTES,
    GIB,
    MIB,
    Gpu,
    Machine,
    Weights,
    capacity_bytes,
)
from inline_core.devices.policy import DevicePolicy, Room, device_summary
from inline_core.devices.probe import ram_bytes, ram_free_bytes, visible
from inline_core.settings import Settings


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


def test_probing_does_not_import_torch() -> None:
    code = (
        "import sys; from inline_core.devices.policy import device_summary; "
        "from inline_core.settings import Settings; device_summary(Settings()); "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
