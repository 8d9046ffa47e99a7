"""What the driver says about its GPUs, and about the links between several."""

from __future__ import annotations

import contextlib
import importlib.util
from typing import Any

_LINKS_AT_MOST = 18


def driver_version() -> str:
    """The version of the NVIDIA driver, or "none"."""
    nvml = _nvml()
    return "none" if nvml is None else str(nvml.nvmlSystemGetDriverVersion())


def about_several() -> str:
    """What can be said today about a machine with several GPUs."""
    words = (
        "The parallel group arrives with another issue: nothing is measured on several GPUs yet."
    )
    nvml = _nvml()
    if nvml is None:
        return words
    count = nvml.nvmlDeviceGetCount()
    if count < 2:
        return words
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
    lines = [words]
    for index, handle in enumerate(handles):
        peers = [
            f"{other}"
            for other in range(count)
            if other != index and _reads(nvml, handle, handles[other])
        ]
        name = nvml.nvmlDeviceGetName(handle)
        links = _links(nvml, handle)
        lines.append(
            f"GPU {index} {name}: {links} NVLinks, peer access to {', '.join(peers) or 'none'}"
        )
    return "\n".join(lines)


def _reads(nvml: Any, one: Any, other: Any) -> bool:
    """Whether one GPU can read the memory of the other."""
    with contextlib.suppress(nvml.NVMLError, AttributeError):
        status = nvml.nvmlDeviceGetP2PStatus(one, other, nvml.NVML_P2P_CAPS_INDEX_READ)
        return bool(status == nvml.NVML_P2P_STATUS_OK)
    return False


def _links(nvml: Any, handle: Any) -> int:
    active = 0
    for link in range(_LINKS_AT_MOST):
        with contextlib.suppress(nvml.NVMLError):
            active += int(nvml.nvmlDeviceGetNvLinkState(handle, link))
    return active


def _nvml() -> Any:
    if importlib.util.find_spec("pynvml") is None:
        return None
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml
