"""One load of a model file in a process of its own: `python -m benchmarks.load_subject WAY FILE`.

Prints JSON: seconds to load, seconds to load and touch every weight, and peaks in bytes above what
the process had before (anonymous memory, all resident memory).
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from diffusers import ZImageTransformer2DModel
from safetensors import safe_open

from inline_core.devices.placement import Placement
from inline_core.devices.release import tune_allocator
from inline_core.families.z_image.components import load_denoiser
from inline_core.loading.files import open_weights
from inline_core.loading.identify import identify
from inline_core.loading.reader import TensorReader
from inline_core.loading.stream import LoadPlan

_SAMPLE_S = 0.002


@dataclass(slots=True)
class Memory:
    """Bytes from /proc/self/status."""

    anonymous: int
    resident: int


def memory() -> Memory:
    """What this process has now."""
    text = Path("/proc/self/status").read_text(encoding="ascii")
    found = {
        key: int(size) * 1024
        for key, size in re.findall(r"^(RssAnon|VmRSS):\s+(\d+)", text, re.MULTILINE)
    }
    return Memory(found["RssAnon"], found["VmRSS"])


@contextmanager
def peaks() -> Iterator[Memory]:
    """The highest values above those of the start."""
    start, most, done = memory(), Memory(0, 0), threading.Event()

    def watch() -> None:
        while not done.wait(_SAMPLE_S):
            now = memory()
            most.anonymous = max(most.anonymous, now.anonymous - start.anonymous)
            most.resident = max(most.resident, now.resident - start.resident)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield most
    finally:
        done.set()
        thread.join()


def plan_of(path: Path, placement: Placement) -> LoadPlan:
    """How the file is loaded."""
    files = open_weights(path)
    return LoadPlan(files, identify(files.headers), placement, path.name, lambda: None)


def ours(placement: Placement) -> Callable[[Path], Any]:
    """Our loader with this placement."""
    return lambda path: load_denoiser(plan_of(path, placement))._model  # noqa: SLF001


def bare(path: Path) -> Any:
    """The least that could be done: a meta module, mapped tensors, assign; diffusers names."""
    with torch.device("meta"):
        model = ZImageTransformer2DModel(
            **plan_of(path, Placement("cpu", "bfloat16")).identity.config
        )
    with safe_open(str(path), framework="pt") as file:
        state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    model.load_state_dict(state, assign=True)
    return model


def stream(path: Path) -> Any:
    """Every tensor through the reusable buffer, kept nowhere."""
    plan = plan_of(path, Placement("cpu", "bfloat16"))
    total = 0.0
    with TensorReader(plan.files, plan.label) as reader:
        for name in sorted(reader.names(), key=reader.position):
            total += float(reader.buffered(name).view(torch.uint8)[..., ::4096].sum())
    return total


def copy(path: Path) -> Any:
    """What `stream` is compared with: read() of the same bytes into one buffer."""
    header = open_weights(path).headers[0]
    room = memoryview(bytearray(64 << 20))
    with path.open("rb", buffering=0) as file:
        file.seek(header.data_start)
        while file.readinto(room):
            pass
    return None


WAYS: dict[str, Callable[[Path], Any]] = {
    "ours": ours(Placement("cpu", "bfloat16")),
    "ours-float32": ours(Placement("cpu", "float32")),
    "ours-int8": ours(Placement("cpu", "bfloat16", "int8")),
    "bare": bare,
    "stream": stream,
    "copy": copy,
}


def touch(module: Any) -> None:
    """Read one value of every page."""
    if isinstance(module, torch.nn.Module):
        for tensor in (*module.parameters(), *module.buffers()):
            tensor.view(-1).view(torch.uint8)[::4096].sum()


def main() -> None:
    """Load once and print."""
    way, path = sys.argv[1], Path(sys.argv[2])
    torch.set_num_threads(1)
    tune_allocator()
    with torch.inference_mode(), peaks() as most:
        started = time.perf_counter()
        module = WAYS[way](path)
        loaded = time.perf_counter() - started
        touch(module)
        touched = time.perf_counter() - started
    print(
        json.dumps(
            {
                "load_s": loaded,
                "touch_s": touched,
                "anonymous": most.anonymous,
                "resident": most.resident,
            }
        )
    )


if __name__ == "__main__":
    main()
