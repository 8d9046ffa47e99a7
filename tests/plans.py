"""Load plans for files of the tests, and for headers without a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import torch

from inline_core.devices.placement import Placement
from inline_core.loading.files import WeightFiles, open_weights
from inline_core.loading.header import Header, TensorInfo
from inline_core.loading.identify import identify
from inline_core.loading.stream import LoadPlan

FLOAT32: Final = Placement("cpu", "float32")


def plan_of(
    path: Path, placement: Placement = FLOAT32, check: Callable[[], None] = lambda: None
) -> LoadPlan:
    """How `path` would be loaded."""
    files = open_weights(path)
    return LoadPlan(files, identify(files.headers), placement, path.name, check)


def plan_of_shapes(shapes: Mapping[str, tuple[int, ...]]) -> LoadPlan:
    """Files that exist only as a header: real sizes need no real bytes."""
    tensors = {
        name: TensorInfo("BF16", shape, 0, 2 * torch.Size(shape).numel())
        for name, shape in shapes.items()
    }
    path = Path("real.safetensors")
    files = WeightFiles(path, (Header(path, 0, 0, tensors, {}, "", 0),))
    return LoadPlan(files, identify(files.headers), FLOAT32, path.name, lambda: None)
