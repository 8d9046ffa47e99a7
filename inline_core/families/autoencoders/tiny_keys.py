"""Tiny autoencoders (TAESD) told by their header: where the decoder lies and how it is built.

Never imports torch.  The structure of the decoder is that of diffusers' `DecoderTiny`: a
convolution, then stages of residual blocks, each but the last followed by an enlargement by two and
a convolution; a last convolution gives the colours.  The original files number the same modules
from 1 up, as their first module (a clamp) has no weights.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from inline_core.loading.header import TensorInfo

# (prefix of the decoder, number of its first convolution), in the order they are tried.
_LAYOUTS: Final = (("decoder.layers.", 0), ("decoder.", 1), ("", 1))
_CONVOLUTION: Final = re.compile(r"layers\.(\d+)\.weight")
_BLOCK: Final = re.compile(r"layers\.(\d+)\.conv\.0\.weight")
_IMAGE_DIMS: Final = 4
_LEAST_CONVOLUTIONS: Final = 2
_COLOURS: Final = 3


@dataclass(frozen=True, slots=True)
class TinyShape:
    """A decoder found in a file: constructor arguments, and file names by module names."""

    latent_channels: int
    factor: int
    config: Mapping[str, Any]
    sources: Mapping[str, str]


def tiny_shape(tensors: Mapping[str, TensorInfo]) -> TinyShape | None:
    """The tiny decoder of a file by names and shapes, or None if there is none."""
    for prefix, first in _LAYOUTS:
        start = tensors.get(f"{prefix}{first}.weight")
        block = tensors.get(f"{prefix}{first + 2}.conv.0.weight")
        if start is None or block is None or len(start.shape) != _IMAGE_DIMS:
            continue
        numbered = re.compile(re.escape(prefix) + r"(\d+)\.(.+)")
        sources = {
            f"layers.{int(match.group(1)) - first}.{match.group(2)}": name
            for name in tensors
            if (match := numbered.fullmatch(name))
        }
        return _shape({ours: tensors[name] for ours, name in sources.items()}, sources)
    return None


def _shape(tensors: Mapping[str, TensorInfo], sources: Mapping[str, str]) -> TinyShape | None:
    convolutions = _numbers(tensors, _CONVOLUTION)
    if len(convolutions) < _LEAST_CONVOLUTIONS:
        return None
    blocks = _numbers(tensors, _BLOCK)
    stages = list(pairwise(convolutions))
    counts = tuple(sum(start < block < end for block in blocks) for start, end in stages)
    shapes = [tensors[f"layers.{number}.weight"].shape for number in convolutions]
    if shapes[-1][0] != _COLOURS:
        return None
    config = {
        "in_channels": shapes[0][1],
        "out_channels": _COLOURS,
        "num_blocks": counts,
        "block_out_channels": tuple(shape[0] for shape in shapes[:-1]),
    }
    return TinyShape(shapes[0][1], 2 ** (len(stages) - 1), config, sources)


def _numbers(tensors: Mapping[str, TensorInfo], pattern: re.Pattern[str]) -> list[int]:
    return sorted(int(match.group(1)) for name in tensors if (match := pattern.fullmatch(name)))
