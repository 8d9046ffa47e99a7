"""What the driver says about itself."""

from __future__ import annotations

import importlib.util
from typing import Any


def driver_version() -> str:
    """The version of the NVIDIA driver, or "none"."""
    nvml = _nvml()
    return "none" if nvml is None else str(nvml.nvmlSystemGetDriverVersion())


def _nvml() -> Any:
    if importlib.util.find_spec("pynvml") is None:
        return None
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml
