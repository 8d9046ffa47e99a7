"""Streamed offload: weights stay in host memory and visit the device block after block.

It is diffusers' group offloading, one block a group; where the device has streams, the next block
is copied while the current one computes.
"""

from __future__ import annotations

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
