"""Streamed offload: weights stay in host memory and visit the device block after block.

It is diffusers' group offloading, one block a group; where the device has streams, the next block
is copied while the current one computes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

    from inline_core.devices.placement import Placement


def offload(module: nn.Module, placement: Placement) -> None:
    """Let a filled module be streamed if its placement says so; device thread."""
    if placement.offload == "none":
        return
    import torch
    from diffusers.hooks import apply_group_offloading

    device = torch.device(placement.device)
    apply_group_offloading(
        module,
        onload_device=device,
        offload_device=torch.device(placement.storage),
        offload_type="block_level",
        num_blocks_per_group=1,
        use_stream=device.type == "cuda",
    )


@contextmanager
def whole(module: nn.Module) -> Iterator[None]:
    """What lies in no block of a streamed module is on its device within.

    For who calls parts of a module without calling the module: its blocks come by themselves.
    """
    registry = getattr(module, "_diffusers_hook", None)
    hook = registry.get_hook("group_offloading") if registry is not None else None
    if hook is None:
        yield
        return
    hook.group.onload_()
    try:
        yield
    finally:
        hook.group.offload_()
