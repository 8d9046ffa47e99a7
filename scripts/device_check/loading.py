"""Section a: from the file to the device through the loader's pinned buffer."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil
import torch

from device_check.bench import Bench
from device_check.report import Row
from inline_core.loading.files import open_weights
from inline_core.loading.reader import TensorReader

NAME: Final = "a load"
_SPARE_BYTES: Final = 256 << 20
_LEAST_SPEED: Final = 0.8
_SAMPLE_S: Final = 0.002


def load_to_device(bench: Bench) -> None:
    """GB/s of all tensors of the model, against what the hardware could do with the same bytes."""
    files = open_weights(bench.files.model)
    size = sum(info.size_bytes for info in files.tensors.values())
    largest = max(info.size_bytes for info in files.tensors.values())
    _warm(bench.files.model)
    times: dict[str, float] = {}
    with TensorReader(files, "model", pinned=bench.device.is_cuda) as reader:
        names = sorted(reader.names(), key=reader.position)

        def ours() -> None:
            for name in names:
                reader.buffered(name).to(bench.device.name, copy=True)

        with _resident() as most:
            times["ours"] = bench.device.seconds(ours)
    bench.deadline.check()
    times["read"] = bench.device.seconds(lambda: _read(bench.files.model))
    times["copy"] = _copy_seconds(bench, size)
    speed = {name: size / seconds / 1e9 for name, seconds in times.items()}
    add = bench.report.add
    # The reader has one buffer, so reading and copying take turns.
    bare = size / (times["read"] + times["copy"]) / 1e9
    what, least = "reader to device, against read + copy alone", bench.bound(_LEAST_SPEED)
    add(Row(NAME, what, speed["ours"], "GB/s", bare, least))
    add(Row(NAME, "reader to device, against a pinned copy", speed["ours"], "GB/s", speed["copy"]))
    add(Row(NAME, "reading the warm file alone", speed["read"], "GB/s"))
    add(
        Row(
            NAME,
            "host memory above the start, against twice the largest tensor + 256 MB",
            most[0] / 1e6,
            "MB",
            (2 * largest + _SPARE_BYTES) / 1e6,
            at_most=1.0,
            note=f"largest tensor {largest / 1e6:.0f} MB",
        )
    )


def _warm(path: Path) -> None:
    """Bring the file into the page cache."""
    _read(path)


def _read(path: Path) -> None:
    room = memoryview(bytearray(min(64 << 20, path.stat().st_size)))
    with path.open("rb", buffering=0) as file:
        while file.readinto(room):
            pass


def _copy_seconds(bench: Bench, size: int) -> float:
    """Time to copy so many bytes from page-locked memory."""
    pinned = bench.device.is_cuda
    piece = min(size, 256 << 20)
    source = torch.empty(piece, dtype=torch.uint8, pin_memory=pinned)
    target = torch.empty(piece, dtype=torch.uint8, device=bench.device.name)
    target.copy_(source)
    count = max(1, round(size / piece))

    def copy() -> None:
        for _ in range(count):
            target.copy_(source, non_blocking=True)

    return bench.device.seconds(copy) * size / (count * piece)


@contextmanager
def _resident() -> Iterator[list[int]]:
    """Most resident host memory above the start, in bytes, as the only item of a list."""
    process, most, done = psutil.Process(os.getpid()), [0], threading.Event()
    read: Callable[[], int] = lambda: int(process.memory_info().rss)  # noqa: E731 - one line
    start = read()

    def watch() -> None:
        while not done.wait(_SAMPLE_S):
            most[0] = max(most[0], read() - start)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield most
    finally:
        done.set()
        thread.join()
