"""A loaded upscaler: built in, or one of spandrel's.  Imports torch; device thread only."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch.nn import functional

from inline_core.errors import ModelFileInvalid, NotFinite, RuntimeMissing
from inline_core.families.upscalers.keys import RGB, UpscalerShape, upscaler_shape
from inline_core.families.upscalers.networks import CompactNetwork, RrdbNetwork
from inline_core.families.upscalers.tiling import in_tiles
from inline_core.loading.interruption import Interruption
from inline_core.loading.reader import TensorReader
from inline_core.loading.stream import LoadPlan, TensorSource, fill

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

INSTALL_LINE: Final = 'pip install "inline-core[upscale]"'


class Upscaler:
    """Enlarges pictures by `scale`.  `blocks` are modules that are asked whether to go on."""

    def __init__(
        self,
        enlarge: Callable[[Tensor], Tensor],
        scale: int,
        label: str,
        placement: tuple[torch.device, torch.dtype],
        blocks: list[Any],
        multiple: int = 1,
    ) -> None:
        self.scale = scale
        self.interruption = Interruption(blocks)
        self._enlarge = enlarge
        self._label = label
        self._device, self._dtype = placement
        self._multiple = multiple

    def upscale(
        self,
        pixels: NDArray[np.uint8],
        *,
        tile: int,
        overlap: int,
        report: Callable[[int, int], None],
    ) -> NDArray[np.uint8]:
        """Pixels (height, width, 3) uint8 -> (height * scale, width * scale, 3) uint8.

        A picture with a side above `tile` is done in overlapping tiles, which bounds the memory.
        `report(done, count)` is called after each tile and may raise to stop.  Raises: NotFinite.
        """
        overlap = min(overlap, tile // 2)
        return in_tiles(pixels, self.scale, tile, overlap, self._part, report)

    def _part(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        height, width = pixels.shape[:2]
        values = torch.from_numpy(pixels.astype(np.float32) / 255).permute(2, 0, 1)[None]
        values = values.to(self._device, self._dtype)  # (1, 3, height, width)
        missing = (-width % self._multiple, -height % self._multiple)
        if any(missing):
            values = functional.pad(values, (0, missing[0], 0, missing[1]), mode="replicate")
        large = self._enlarge(values)[0, :, : height * self.scale, : width * self.scale]
        if not bool(torch.isfinite(large).all()):
            message = f"NaN or infinity in what {self._label} made: no picture was made"
            raise NotFinite(message)
        unit: NDArray[np.float32] = large.float().permute(1, 2, 0).cpu().numpy()
        return np.array(unit.clip(0, 1), np.float32)  # (height * scale, width * scale, 3)


def load_upscaler(plan: LoadPlan) -> Upscaler:
    """The upscaler of a file, ready to be used.

    ESRGAN and Real-ESRGAN are built in; for others spandrel is asked.
    Raises: ModelFileInvalid, RuntimeMissing, RunCancelled.
    """
    shape = upscaler_shape(plan.logical.tensors)
    return _from_spandrel(plan) if shape is None else _built_in(plan, shape)


def _built_in(plan: LoadPlan, shape: UpscalerShape) -> Upscaler:
    make = RrdbNetwork if shape.kind == "rrdb" else CompactNetwork
    with torch.device("meta"):
        network = make(shape)
    fill(network, {name: TensorSource(tensor) for name, tensor in shape.sources.items()}, plan)
    blocks = list(network.body)
    return Upscaler(
        network.eval(), shape.scale, plan.label, _place(plan), blocks, multiple=shape.shuffle
    )


def _from_spandrel(plan: LoadPlan) -> Upscaler:
    try:
        import spandrel
    except (ImportError, OSError, RuntimeError) as error:
        message = (
            f"{plan.label} is an upscaler that is not built in (ESRGAN and Real-ESRGAN are): "
            f"spandrel knows more, but cannot be used here ({error}). {INSTALL_LINE}, with a "
            "torchvision made for the torch that is installed"
        )
        raise RuntimeMissing(message, details={"missing": ["spandrel"]}) from error
    with TensorReader(plan.files, plan.label) as reader:
        state = {name: reader.mapped(name).clone() for name in reader.names()}
    device, dtype = _place(plan)
    try:
        found = spandrel.ModelLoader(device=device).load_from_state_dict(state)
    except spandrel.UnsupportedModelError as error:
        message = f"{plan.label} is of no architecture that spandrel or this program knows"
        raise ModelFileInvalid(message) from error
    single = isinstance(found, spandrel.ImageModelDescriptor)
    if not single or (found.input_channels, found.output_channels) != (RGB, RGB):
        message = f"{plan.label} does not turn one colour picture into another: use an upscaler"
        raise ModelFileInvalid(message)
    found.to(device=device, dtype=dtype).eval()
    return Upscaler(found, found.scale, plan.label, (device, dtype), [])


def _place(plan: LoadPlan) -> tuple[torch.device, torch.dtype]:
    dtype: torch.dtype = getattr(torch, plan.placement.dtype)
    return torch.device(plan.placement.device), dtype
