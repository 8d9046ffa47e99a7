"""Names of the Wan VAEs' weights in original files (2.1: flat lists, 2.2: levels) and in diffusers.

Qwen-Image and Krea 2 use the one of 2.1; ComfyUI keeps its original names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from inline_core.loading.stream import TensorSource

_FLAT_UPS: Final = 4  # three residual blocks and the resampling make a level of the decoder
_OUTER: Final = (
    (r"^conv1\.", "quant_conv."),
    (r"^conv2\.", "post_quant_conv."),
    (r"^(encoder|decoder)\.conv1\.", r"\1.conv_in."),
    (r"^(encoder|decoder)\.head\.0\.", r"\1.norm_out."),
    (r"^(encoder|decoder)\.head\.2\.", r"\1.conv_out."),
    (r"\.middle\.0\.", ".mid_block.resnets.0."),
    (r"\.middle\.1\.", ".mid_block.attentions.0."),
    (r"\.middle\.2\.", ".mid_block.resnets.1."),
)
_INNER: Final = (
    (r"\.residual\.0\.", ".norm1."),
    (r"\.residual\.2\.", ".conv1."),
    (r"\.residual\.3\.", ".norm2."),
    (r"\.residual\.6\.", ".conv2."),
    (r"\.shortcut\.", ".conv_shortcut."),
)


def wan_vae_sources(names: Iterable[str], prefix: str) -> dict[str, TensorSource]:
    """Module name -> place in the file, for original files and those of diffusers alike."""
    inside = {name[len(prefix) :]: name for name in names if name.startswith(prefix)}
    nested = any(name.startswith("encoder.downsamples.0.downsamples.") for name in inside)
    return {_in_diffusers(bare, nested=nested): TensorSource(name) for bare, name in inside.items()}


def _in_diffusers(name: str, *, nested: bool) -> str:
    new = name
    for pattern, replacement in _OUTER:
        new = re.sub(pattern, replacement, new)
    new = _nested(new) if nested else _flat(new)
    for pattern, replacement in _INNER:
        new = re.sub(pattern, replacement, new)
    return new


def _flat(name: str) -> str:
    match = re.match(r"decoder\.upsamples\.(\d+)\.(.+)", name)
    if match is None:
        return name.replace("encoder.downsamples.", "encoder.down_blocks.")
    level, place = divmod(int(match.group(1)), _FLAT_UPS)
    inner = "upsamplers.0" if place == _FLAT_UPS - 1 else f"resnets.{place}"
    return f"decoder.up_blocks.{level}.{inner}.{match.group(2)}"


def _nested(name: str) -> str:
    """A level's blocks; the one that resamples has `resample` or `time_conv` below it."""
    match = re.match(
        r"(encoder\.down|decoder\.up)samples\.(\d+)\.(?:down|up)samples\.(\d+)\.(.+)", name
    )
    if match is None:
        return name
    half, level, place, rest = match.groups()
    resampling = "downsampler" if half.endswith("down") else "upsampler"
    inner = resampling if rest.startswith(("resample", "time_conv")) else f"resnets.{place}"
    return f"{half}_blocks.{level}.{inner}.{rest}"
