"""What hardware is here, found without importing torch (that happens on the device thread only)."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import psutil

from inline_core.devices.budget import Gpu, Machine

_CGROUP: Final = Path("/sys/fs/cgroup")


def torch_build() -> str | None:
    """The installed torch version (`2.13.0+cpu`), or None; torch is not imported."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None


def probe(*, allow_gpu: bool = True) -> Machine:
    """Find the best device.  `allow_gpu` False (profile `cpu`) keeps to the processor."""
    build = torch_build()
    if build is None:
        return _cpu(None, "torch is not installed")
    if not allow_gpu:
        return _cpu(build, "the profile is cpu")
    found = nvidia_gpus()
    mask = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = visible(found, mask)
    if gpus and _torch_has_cuda():
        hidden = len(found) - len(gpus)
        reason = f"found; CUDA_VISIBLE_DEVICES={mask} hides {hidden} more" if hidden else "found"
        return Machine("cuda", gpus[0].name, ram_bytes(), gpus, torch_build=build, reason=reason)
    if gpus:
        return _cpu(build, f"{gpus[0].name} is here, but torch {build} is built without CUDA")
    if found:
        return _cpu(build, f"{found[0].name} is hidden by CUDA_VISIBLE_DEVICES={mask}")
    if platform.system() == "Darwin" and platform.machine() == "arm64":
        return Machine("mps", "Apple GPU", ram_bytes(), torch_build=build, reason="found")
    return _cpu(build, "no GPU was found")


def visible(gpus: Sequence[Gpu], mask: str | None) -> tuple[Gpu, ...]:
    """The GPUs a CUDA mask leaves, numbered as torch will number them.

    A mask lists driver indexes or (beginnings of) uuids; what follows an entry that names nothing
    is ignored, as the CUDA driver does.
    """
    if mask is None:
        return tuple(gpus)
    chosen: list[Gpu] = []
    for entry in (part.strip() for part in mask.split(",")):
        by_uuid = [gpu for gpu in gpus if entry.startswith("GPU-") and gpu.uuid.startswith(entry)]
        by_index = [gpu for gpu in gpus if entry.isdigit() and gpu.index == int(entry)]
        match = next(iter(by_uuid or by_index), None)
        if match is None:
            break
        chosen.append(match)
    return tuple(
        Gpu(number, gpu.name, gpu.total_bytes, gpu.free_bytes, gpu.compute, gpu.uuid)
        for number, gpu in enumerate(chosen)
    )


def _cpu(build: str | None, reason: str) -> Machine:
    flags = _cpu_flags()
    bf16 = bool({"avx512_bf16", "amx_bf16", "bf16"} & flags)
    return Machine("cpu", _cpu_name(), ram_bytes(), bf16=bf16, torch_build=build, reason=reason)


def _cpu_info() -> str:
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _cpu_flags() -> set[str]:
    match = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", _cpu_info(), re.MULTILINE)
    return set(match.group(1).split()) if match else set()


def _cpu_name() -> str:
    match = re.search(r"^model name\s*:\s*(.*)$", _cpu_info(), re.MULTILINE)
    return match.group(1).strip() if match else platform.processor() or platform.machine()


def nvidia_gpus() -> tuple[Gpu, ...]:
    """Every NVIDIA GPU the driver knows, with its own index; empty without a driver."""
    nvml = driver_library()
    if nvml is None:
        return ()
    gpus = []
    try:
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            compute = nvml.nvmlDeviceGetCudaComputeCapability(handle)
            gpus.append(
                Gpu(
                    index,
                    str(nvml.nvmlDeviceGetName(handle)),
                    int(memory.total),
                    int(memory.free),
                    (int(compute[0]), int(compute[1])),
                    str(nvml.nvmlDeviceGetUUID(handle)),
                )
            )
    except nvml.NVMLError:
        return tuple(gpus)
    return tuple(gpus)


def vram_free_bytes(gpu: Gpu) -> int | None:
    """Free memory of one GPU now, or None if the driver does not say."""
    nvml = driver_library()
    if nvml is None:
        return None
    try:
        handle = (
            nvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
            if gpu.uuid
            else nvml.nvmlDeviceGetHandleByIndex(gpu.index)
        )
        return int(nvml.nvmlDeviceGetMemoryInfo(handle).free)
    except nvml.NVMLError:
        return None


def driver_library() -> Any:
    """The driver's library, initialised; None where there is no driver."""
    if importlib.util.find_spec("pynvml") is None:
        return None
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


def _torch_has_cuda() -> bool:
    """Read torch's own version file: `cuda = None` is a build for the processor only."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    try:
        text = (Path(spec.origin).parent / "version.py").read_text(encoding="utf-8")
    except OSError:
        return False
    return re.search(r"^cuda\b.*=\s*['\"]", text, re.MULTILINE) is not None


def ram_bytes() -> int:
    """Host memory of the machine, or of the container where that is less."""
    total = int(psutil.virtual_memory().total)
    limit, _ = _cgroup()
    return total if limit is None else min(total, limit)


def ram_free_bytes() -> int:
    """Host memory that can be taken now, within the limit of the container."""
    free = int(psutil.virtual_memory().available)
    limit, used = _cgroup()
    if limit is not None and used is not None:
        # File pages count as used in a cgroup but are given back under pressure.
        free = min(free, max(limit - used + _inactive_file_bytes(), 0))
    return free


def _cgroup() -> tuple[int | None, int | None]:
    """Limit and use of the container (cgroup v2, else v1)."""
    limit, used = _number(_CGROUP / "memory.max"), _number(_CGROUP / "memory.current")
    if limit is None:
        limit = _number(_CGROUP / "memory/memory.limit_in_bytes")
        used = _number(_CGROUP / "memory/memory.usage_in_bytes")
    return limit, used


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _inactive_file_bytes() -> int:
    try:
        text = (_CGROUP / "memory.stat").read_text(encoding="ascii")
    except OSError:
        return 0
    match = re.search(r"^(?:total_)?inactive_file (\d+)$", text, re.MULTILINE)
    return int(match.group(1)) if match else 0
