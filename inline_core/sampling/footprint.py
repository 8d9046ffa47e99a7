"""How many values the work needs beside the weights, from sizes alone; no torch.

The figures count what is alive at the largest moment of a forward pass without gradients, with an
attention that never writes its whole score matrix (flash or memory-efficient).  They were measured
on a processor with blocks of the real width (`python -m benchmarks --only footprint`), where the
predictions are 1.0 to 2.0 times the peaks; on a GPU `scripts/gpu_check.py` measures the same.
"""

from __future__ import annotations

from typing import Final

from inline_core.devices.budget import Workload

# Beside the feed-forward part: the input of the block, its normalised copy, the output of the
# attention, what went into the stack, and the picture and text it was joined from.  Measured: 5.0
# above 512 tokens of text; one more for conversions of the input, which count in small pictures.
_BESIDE_FEED_FORWARD: Final = 6
# Both gates, the activation of one, and the product.  Measured: 4.0.
_FEED_FORWARD_COPIES: Final = 4
# The four above (there is no output of attention yet), q, k, v, and one of them turned in float32:
# twice two bfloat16 values, and its copy.  Counted in the code; the feed-forward part is larger.
_ATTENTION_COPIES: Final = 12
# Of a language model: the embedding, activation, gate and product of the feed-forward part (3.8
# times as wide), the normalised input, the output of attention.  Measured: 15.4.
_ENCODER_COPIES: Final = 16
# A feed-forward part of a language model is at most four times as wide.
_ENCODER_FEED_FORWARD: Final = 4
# Widest activations of AutoencoderKL at full resolution: 256 channels.
_DECODER_CHANNELS: Final = 256
# Input, output, and both in the order of the convolution library.  Measured: 3.8 to 3.9; the rest
# is for workspaces.
_DECODER_COPIES: Final = 4.5
TILE_PIXELS: Final = 512
# Of a decoder of sounds, at the full rate: input and output of a residual part, and what the snake
# between them takes apart.  Counted in the code.
_SOUND_COPIES: Final = 6
# Latent frames that such a decoder works on at a time in tiles.
SOUND_TILE_FRAMES: Final = 512
# Video decoders go on latent frame by latent frame: four frames of pixels each.
_FRAMES_AT_ONCE: Final = 4
# Tiles that are done (they overlap, so 1.8 times the picture), their rows, and the picture twice.
_FINISHED_COPIES: Final = 5
_COLOURS: Final = 3
_STEREO: Final = 2


def transformer_values(tokens: int, width: int, ffn_width: int) -> int:
    """Largest moment of a transformer block: its attention or its feed-forward part.

    One matrix of the feed-forward part is added: a weight in int8 or packed is unpacked while it
    is used.
    """
    feed_forward = _BESIDE_FEED_FORWARD * width + _FEED_FORWARD_COPIES * ffn_width
    return tokens * max(_ATTENTION_COPIES * width, feed_forward) + width * ffn_width


def encoder_values(tokens: int, width: int, layers: int) -> int:
    """A language model that keeps the states of all layers, and one unpacked matrix."""
    return tokens * width * (layers + _ENCODER_COPIES) + _ENCODER_FEED_FORWARD * width * width


def decode_values(
    width: int,
    height: int,
    channels: int = _DECODER_CHANNELS,
    frames: int = 1,
    *,
    all_at_once: bool = False,
) -> int:
    """A convolutional decoder at `width` x `height` pixels; its encoder takes less.

    One of videos works on a few of the `frames` at a time, beside all that are done, unless it
    takes them `all_at_once`.
    """
    at_once = frames if all_at_once else min(frames, _FRAMES_AT_ONCE)
    finished = frames * _COLOURS * width * height if frames > 1 else 0
    return int(_DECODER_COPIES * channels * width * height * at_once) + finished


def tiled_decode_values(width: int, height: int, channels: int = _DECODER_CHANNELS) -> int:
    """The same in tiles: one tile, and the finished pixels of all."""
    tile = decode_values(min(width, TILE_PIXELS), min(height, TILE_PIXELS), channels)
    return tile + _FINISHED_COPIES * _COLOURS * width * height


def sound_decode_values(samples: int, channels: int) -> int:
    """A convolutional decoder of sounds, `channels` wide at the full rate."""
    return _SOUND_COPIES * channels * samples


def sound_workload(
    *,
    tokens: int,
    width: int,
    ffn_width: int,
    text: tuple[int, int, int],
    size: tuple[int, int],
    channels: int,
) -> Workload:
    """The same of a sound; `size` is (latent frames, samples in each)."""
    frames, each = size
    tile = min(frames, SOUND_TILE_FRAMES) * each
    return Workload(
        encode_values=encoder_values(*text),
        denoise_values=transformer_values(tokens, width, ffn_width),
        decode_values=sound_decode_values(frames * each, channels),
        tiled_decode_values=sound_decode_values(tile, channels) + _STEREO * frames * each,
    )


def picture_workload(
    *,
    tokens: int,
    width: int,
    ffn_width: int,
    text: tuple[int, int, int],
    size: tuple[int, int],
    channels: int = _DECODER_CHANNELS,
) -> Workload:
    """The work of one forward pass and one decode.

    `tokens` counts all members of the pass; `text` is (tokens, width, layers) of the encoder,
    `size` the picture in pixels, `channels` the width of the decoder at full resolution.
    """
    return Workload(
        encode_values=encoder_values(*text),
        denoise_values=transformer_values(tokens, width, ffn_width),
        decode_values=decode_values(*size, channels),
        tiled_decode_values=tiled_decode_values(*size, channels),
    )


def video_workload(
    *,
    tokens: int,
    width: int,
    ffn_width: int,
    text: tuple[int, int, int],
    size: tuple[int, int, int],
    channels: int = _DECODER_CHANNELS,
) -> Workload:
    """The same of a video; `size` is (width, height, frames)."""
    wide, high, frames = size
    tile = decode_values(min(wide, TILE_PIXELS), min(high, TILE_PIXELS), channels, frames)
    return Workload(
        encode_values=encoder_values(*text),
        denoise_values=transformer_values(tokens, width, ffn_width),
        decode_values=decode_values(wide, high, channels, frames),
        tiled_decode_values=tile + _FINISHED_COPIES * _COLOURS * wide * high * frames,
    )
