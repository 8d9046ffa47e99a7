"""All sections in order, with their time limits."""

from __future__ import annotations

import argparse
import gc
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import torch

from device_check import (
    accelerator,
    batching,
    devices,
    eviction,
    loading,
    memory,
    rungs,
    several,
    weights,
)
from device_check.accelerator import Accelerator
from device_check.bench import Bench, Deadline
from device_check.report import Report
from inline_core.devices.budget import Machine

_FOLDER: Final = "inline-gpu-check"
_ROOT: Final = Path(__file__).resolve().parent.parent.parent
# Name, what it does, most seconds.  The most telling ones come first, in case time runs out.
_SECTIONS: Final[tuple[tuple[str, Callable[[Bench], None], float], ...]] = (
    (loading.NAME, loading.load_to_device, 40),
    (memory.NAME, memory.memory, 40),
    (rungs.NAME, rungs.rungs, 130),
    (batching.NAME, batching.batches, 70),
    (batching.EQUALITY, batching.equality, 40),
    (eviction.NAME, eviction.eviction, 60),
    (eviction.OUT_OF_MEMORY, eviction.out_of_memory, 40),
)
# With --multi.
_OF_SEVERAL: Final[tuple[tuple[str, Callable[[Bench], None], float], ...]] = (
    (several.NAME, several.several, 240),
    (several.FAULTS, several.lost_rank, 90),
)


def measure(machine: Machine, asked: argparse.Namespace) -> int:
    """Run every section; 0 if all gates hold, 1 if not, 2 if torch cannot use the GPU."""
    device = accelerator.find(machine)
    if device is None:
        print("There is no usable GPU: torch finds no CUDA device.", file=sys.stderr)
        return 2
    report = Report(environment(device))
    for name, value in report.env.items():
        print(f"{name}: {value}")
    watchdog = _watch(report, asked)
    files = _files(report, asked)
    if files is not None:
        # What the libraries made at import stays anyway; else every collection walks through it.
        gc.freeze()
        with torch.inference_mode():
            sections = _OF_SEVERAL if asked.multi else _SECTIONS
            _run(_bench(device, files, report, asked), sections, asked.only)
    watchdog.cancel()
    return _end(report, asked)


def environment(device: Accelerator) -> dict[str, Any]:
    """What is measured on."""
    gpu = device.machine.gpu
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],  # noqa: S607 - whichever git is there
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "device": torch.cuda.get_device_name() if device.is_cuda else device.machine.name,
        "driver": devices.driver_version(),
        "memoryBytes": gpu.total_bytes if gpu else device.machine.ram_bytes,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "commit": commit.stdout.strip() or "unknown",
    }


def _bench(
    device: Accelerator, files: weights.Files, report: Report, asked: argparse.Namespace
) -> Bench:
    deadline = Deadline(report.started_s + asked.limit_s - 10)
    if asked.cpu_dry_run:
        torch.set_num_threads(1)
        small: dict[str, Any] = {
            "side": 64,
            "large": 96,
            "small": 48,
            "batches": (1, 2),
            "tokens": 32,
            "steps": 1,
        }
        return Bench(device, files, report, deadline, **small)
    return Bench(device, files, report, deadline)


def _files(report: Report, asked: argparse.Namespace) -> weights.Files | None:
    """Write the models, or take those of an earlier run."""
    sizes = weights.small_sizes() if asked.cpu_dry_run else weights.real_sizes(asked.text_layers)
    root = asked.folder or Path(tempfile.gettempdir()) / _FOLDER
    root = root / f"{sizes.label}-{weights.FORMAT}"
    started = time.monotonic()
    try:
        plans = weights.plan_files(sizes)
        print(f"{weights.bytes_needed(plans) / 1e9:.1f} GB of disk are used in {root}", flush=True)
        files, written = weights.write_files(root, plans)
    except Exception as error:  # noqa: BLE001 - every failure is named and reported
        report.fail("files", f"{type(error).__name__}: {error}")
        return None
    took = time.monotonic() - started
    report.seconds["files"] = took
    print(f"{written / 1e9:.1f} GB written in {took:.1f} s", flush=True)
    return files


def _run(
    bench: Bench,
    sections: Sequence[tuple[str, Callable[[Bench], None], float]],
    only: list[str] | None,
) -> None:
    """Every section with its own time; a failure is kept and the next one starts clean."""
    for name, section, most_s in sections:
        if only and name[0] not in only:
            continue
        print(name, flush=True)
        started = time.monotonic()
        bench.deadline.start(most_s)
        try:
            bench.deadline.check()
            section(bench)
        except Exception as error:  # noqa: BLE001 - every failure is named and reported
            traceback.print_exc()
            bench.report.fail(name, f"{type(error).__name__}: {error}")
        # Outside of `except`: the error's traceback holds the tensors of the failed section.
        try:
            bench.device.clean()
        except RuntimeError as error:
            bench.report.fail(name, f"the device did not recover: {error}")
        bench.report.seconds[name] = time.monotonic() - started


def _watch(report: Report, asked: argparse.Namespace) -> threading.Timer:
    """End the process, and so free the device, if a kernel hangs; what was measured is shown."""

    def stop() -> None:
        report.fail("run", f"stopped after {asked.limit_s:.0f} s")
        _end(report, asked)
        sys.stdout.flush()
        os._exit(1)

    timer = threading.Timer(asked.limit_s, stop)
    timer.daemon = True
    timer.start()
    return timer


def _end(report: Report, asked: argparse.Namespace) -> int:
    print("\n" + report.table())
    if asked.json:
        report.save(asked.json)
    return 0 if report.ok else 1
