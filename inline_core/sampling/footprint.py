"""How many values the work needs beside the weights, from sizes alone; no torch.

The figures count what is alive at the largest moment of a forward pass without gradients, with an
attention that never writes its whole score matrix (flash or memory-efficient).
"""

from __future__ import annotations

from inline_core.devices.budget import Workload

# Widest activations of AutoencoderKL at full resolution: 256 channels, three of them at once
# (input, normalised, output of a convolution).
_DECODER_CHANNELS = 256
_DECODER_COPIES = 3
TILE_PIXELS = 512


def transformer_values(tokens: int, width: int, ffn_width: int) -> int:
    """Largest moment of a transformer block: its attention or its feed-forward part.

    Attention holds the input, its normalised copy, q, k, v, their rotated copies and the output;
    the feed-forward part the input, its copy, both gates and their product.
    """
    return tokens * max(10 * width, 2 * width + 3 * ffn_width)


def encoder_values(tokens: int, width: int, layers: int) -> int:
    """A language model that keeps the states of all layers; its feed-forward is four times wide."""
    return tokens * width * (layers + 14)


def decode_values(width: int, height: int, channels: int = _DECODER_CHANNELS) -> int:
    """A convolutional decoder at `width` x `height` pixels."""
    return _DECODER_COPIES * channels * width * height


def tiled_decode_values(width: int, height: int, channels: int = _DECODER_CHANNELS) -> int:
    """The same in tiles: one tile, and the finished pixels of all."""
    tile = decode_values(min(width, TILE_PIXELS), min(height, TILE_PIXELS), channels)
    return tile + 2 * 3 * width * height


def picture_workload(
    *, tokens: int, width: int, ffn_width: int, text: tuple[int, int, int], size: tuple[int, int]
) -> Workload:
    """The work of one forward pass and one decode.

    `tokens` counts all members of the pass; `text` is (tokens, width, layers) of the encoder,
    `size` the picture in pixels.
    """
    return Workload(
        encode_values=encoder_values(*text),
        denoise_values=transformer_values(tokens, width, ffn_width),
        decode_values=decode_values(*size),
        tiled_decode_values=tiled_decode_values(*size),
    )
