from __future__ import annotations

import subprocess
import sys
import time

from inline_core.devices.policy import DevicePolicy, device_summary
from inline_core.devices.probe import probe, ram_free_bytes
from inline_core.settings import MIB, Settings


def policy() -> DevicePolicy:
    return DevicePolicy(Settings(profile="cpu"))


def test_precision_on_the_processor() -> None:
    place = policy().place
    assert place(10 * MIB, "BF16").dtype == "float32"
    assert place(10_000 * MIB, "F16").dtype == "float32"
    assert place(10_000 * MIB, "BF16", precise=True).dtype == "float32"
    big = place(10_000 * MIB, "BF16")
    assert big.dtype == ("bfloat16" if probe(allow_gpu=False).bf16 else "float32")
    assert all(place(1, dtype).device == "cpu" for dtype in ("BF16", "F32"))
    assert place(1, "F32").reason


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
    assert asked.info.kind == "mps"
    assert asked.place(1, "F32", precise=True).dtype == "float32"
    assert asked.place(1, "F32").dtype == "bfloat16"


def test_room_keeps_headroom() -> None:
    assert 0 <= policy().room_bytes() < ram_free_bytes()


def test_probing_does_not_import_torch() -> None:
    code = (
        "import sys; from inline_core.devices.policy import device_summary; "
        "from inline_core.settings import Settings; device_summary(Settings()); "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
