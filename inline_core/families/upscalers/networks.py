"""The networks of ESRGAN and of Real-ESRGAN's small models.  Imports torch.

Wang et al. 2018 (ESRGAN: residual in residual dense blocks) and Wang et al. 2021 (Real-ESRGAN:
pixels folded into channels for small factors, and the compact network with PReLU).
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from inline_core.families.upscalers.keys import RGB, UpscalerShape

_SLOPE: Final = 0.2
_RESIDUAL: Final = 0.2  # how much of a block is added to what went in
_CONVOLUTIONS: Final = 5


def _conv(inputs: int, outputs: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, padding=1)


def _lively(values: Tensor) -> Tensor:
    return functional.leaky_relu(values, _SLOPE, inplace=True)


class DenseBlock(nn.Module):
    """Five convolutions, each of which sees what went in and what those before it made."""

    def __init__(self, width: int, growth: int) -> None:
        super().__init__()
        for index in range(_CONVOLUTIONS):
            outputs = growth if index < _CONVOLUTIONS - 1 else width
            self.add_module(f"conv{index + 1}", _conv(width + index * growth, outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Features (n, width, h, w) to the same."""
        seen = x
        *first, last = self.children()
        for conv in first:
            seen = torch.cat([seen, _lively(conv(seen))], 1)  # (n, width + growth * i, h, w)
        added: Tensor = last(seen)  # (n, width, h, w)
        return x + added * _RESIDUAL


class ResidualBlock(nn.Module):
    """Three dense blocks in a residual one (RRDB)."""

    def __init__(self, width: int, growth: int) -> None:
        super().__init__()
        self.rdb1 = DenseBlock(width, growth)
        self.rdb2 = DenseBlock(width, growth)
        self.rdb3 = DenseBlock(width, growth)

    def forward(self, x: Tensor) -> Tensor:
        """Features (n, width, h, w) to the same."""
        added: Tensor = self.rdb3(self.rdb2(self.rdb1(x)))
        return x + added * _RESIDUAL


class RrdbNetwork(nn.Module):
    """ESRGAN's generator, with pixels folded into channels first where `shuffle` is above 1."""

    def __init__(self, shape: UpscalerShape) -> None:
        super().__init__()
        width = shape.width
        self._shuffle = shape.shuffle
        self.conv_first = _conv(RGB * shape.shuffle**2, width)
        self.body = nn.Sequential(
            *(ResidualBlock(width, shape.growth) for _ in range(shape.blocks))
        )
        self.conv_body = _conv(width, width)
        self.conv_ups = nn.ModuleList(_conv(width, width) for _ in range(shape.ups))
        self.conv_hr = _conv(width, width)
        self.conv_last = _conv(width, RGB)

    def forward(self, x: Tensor) -> Tensor:
        """Pixels (n, 3, h, w) in 0..1, sides multiples of `shuffle`, to (n, 3, sh, sw)."""
        if self._shuffle > 1:
            x = functional.pixel_unshuffle(x, self._shuffle)
        first = self.conv_first(x)  # (n, width, h, w)
        features = first + self.conv_body(self.body(first))  # (n, width, h, w)
        for conv in self.conv_ups:
            doubled = functional.interpolate(features, scale_factor=2, mode="nearest")
            features = _lively(conv(doubled))  # (n, width, 2h, 2w)
        pixels: Tensor = self.conv_last(_lively(self.conv_hr(features)))  # (n, 3, sh, sw)
        return pixels


class CompactNetwork(nn.Module):
    """Real-ESRGAN's small network: what it adds to the picture with its pixels repeated."""

    def __init__(self, shape: UpscalerShape) -> None:
        super().__init__()
        self._scale = shape.scale
        layers: list[nn.Module] = [_conv(RGB, shape.width), nn.PReLU(shape.width)]
        for _ in range(shape.blocks):
            layers += [_conv(shape.width, shape.width), nn.PReLU(shape.width)]
        layers.append(_conv(shape.width, RGB * shape.scale**2))
        self.body = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        """Pixels (n, 3, h, w) in 0..1 to (n, 3, sh, sw)."""
        features = x
        for layer in self.body:
            features = layer(features)
        added = functional.pixel_shuffle(features, self._scale)  # (n, 3, sh, sw)
        return added + functional.interpolate(x, scale_factor=self._scale, mode="nearest")
