"""What hardware is here, found without importing torch (that happens on the device thread only)."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from inline_core.devices.placement import DeviceKind

_CGROUP: Final = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """The device that will be used.  Memory is None where the device shares the host's memory."""

    kind: DeviceKind
    name: str
    memory_bytes: int | None
    bf16: bool
    torch_build: str | None
    reason: str


def torch_build() -> str | None:
    """The installed torch version (`2.13.0+cpu`), or None; torch is not imported."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None


def probe(*, allow_gpu: bool = True) -> DeviceInfo:
    """Find the best device.  `allow_gpu` False (profile `cpu`) keeps to the processor."""
    build = torch_build()
    if build is None:
        return _cpu(None, "torch is not installed")
    if not allow_gpu:
        return _cpu(build, "the profile is cpu")
    gpu = _nvidia()
    if gpu is not None:
        if _torch_has_cuda():
            name, memory = gpu
            return DeviceInfo("cuda", name, memory, bf16=True, torch_build=build, reason="found")
        return _cpu(build, f"{gpu[0]} is here, but torch {build} is built without CUDA")
    if platform.system() == "Darwin" and platform.machine() == "arm64":
        return DeviceInfo("mps", "Apple GPU", None, bf16=True, torch_build=build, reason="found")
    return _cpu(build, "no GPU was found")


def _cpu(build: str | None, reason: str) -> DeviceInfo:
    flags = _cpu_flags()
    bf16 = bool({"avx512_bf16", "amx_bf16", "bf16"} & flags)
    return DeviceInfo("cpu", _cpu_name(), None, bf16=bf16, torch_build=build, reason=reason)


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


def _nvidia() -> tuple[str, int] | None:
    """Name and memory of the first NVIDIA GPU, asked from the driver."""
    if importlib.util.find_spec("pynvml") is None:
        return None
    import pynvml

    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        name = pynvml.nvmlDeviceGetName(handle)
        return str(name), int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    except pynvml.NVMLError:
        return None


def vram_free_bytes() -> int | None:
    """Free memory of the first NVIDIA GPU, or None."""
    if importlib.util.find_spec("pynvml") is None:
        return None
    import pynvml

    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        return int(pynvml.nvmlDeviceGetMemoryInfo(handle).free)
    except pynvml.NVMLError:
        return None


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


def ram_free_bytes() -> int:
    """Host memory that can be taken, within the limit of the container."""
    free = int(psutil.virtual_memory().available)
    limit, used = _number(_CGROUP / "memory.max"), _number(_CGROUP / "memory.current")
    if limit is None:
        limit = _number(_CGROUP / "memory/memory.limit_in_bytes")
        used = _number(_CGROUP / "memory/memory.usage_in_bytes")
    if limit is not None and used is not None:
        # File pages count as used in a cgroup but are given back under pressure.
        cached = _inactive_file_bytes()
        free = min(free, max(limit - used + cached, 0))
    return free


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
