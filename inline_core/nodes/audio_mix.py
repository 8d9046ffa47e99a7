"""Sounds on each other, beside each other, and none at all."""

from __future__ import annotations

from typing import Annotated, Final

import numpy as np
from numpy.typing import NDArray

from inline_core.errors import InvalidParam
from inline_core.graph.ports import PortKind
from inline_core.media.reading import resampled, waveform_of
from inline_core.media.values import Waveform
from inline_core.nodes.audio import Sound
from inline_core.nodes.base import NodeContext, Param, Port, node

_AUDIO: Final = (Port(PortKind.AUDIO),)
_MOST_SAMPLES: Final = 2**28
_STEREO: Final = 2
_MIXES: Final = (
    ("add", "Add"),
    ("mean", "Mean"),
    ("subtract", "Subtract"),
    ("multiply", "Multiply"),
)
Samples = NDArray[np.float32]


@node(
    "audio/silence",
    title="Silence",
    category="Audio",
    icon="volume-2",
    outputs=_AUDIO,
    output_kind="audio",
)
def silence(
    *,
    duration: Annotated[float, Param(label="Duration (s)", min=0, max=86_400, step=0.01)] = 1.0,
    sample_rate: Annotated[
        int, Param(label="Samples per second", min=1, max=192_000, step=1)
    ] = 44_100,
    channels: Annotated[int, Param(min=1, max=8, step=1)] = 2,
) -> Waveform:
    """Give a sound of silence.  Raises: InvalidParam if it would be too long to hold."""
    count = round(duration * sample_rate)
    if count * channels > _MOST_SAMPLES:
        message = f"{duration:g} s are too long at {sample_rate} samples a second"
        raise InvalidParam(message, param="duration")
    return Waveform(np.zeros((channels, count), np.float32), sample_rate)


@node(
    "audio/mix",
    title="Mix Audio",
    category="Audio",
    icon="audio-lines",
    outputs=_AUDIO,
    output_kind="audio",
)
def mix(
    ctx: NodeContext,
    first: Sound,
    second: Sound,
    *,
    method: Annotated[str, Param(options=_MIXES)] = "add",
) -> Waveform:
    """Lay one sound on another; the result is as long as the first.

    The second is brought to the sample rate of the first, cut or continued in silence; mono goes to
    all channels.  What would be beyond full scale makes all of it quieter.
    Raises: InvalidParam if their channels cannot be matched; InvalidAsset.
    """
    one = waveform_of(first, check=ctx.check_cancelled)
    other = resampled(waveform_of(second, check=ctx.check_cancelled), one.sample_rate_hz)
    length = one.samples.shape[1]
    channels = max(one.channels, other.channels)
    if {one.channels, other.channels} - {1, channels}:
        message = f"sounds of {one.channels} and {other.channels} channels cannot be mixed"
        raise InvalidParam(message, port="second")
    over = np.zeros((channels, length), np.float32)
    over[:, : other.samples.shape[1]] = other.samples[:, :length]
    samples = _mixed(one.samples, over, method)
    peak = float(np.abs(samples).max(initial=0))
    if peak > 1:
        samples = samples / np.float32(peak)
    return Waveform(samples, one.sample_rate_hz, dict(one.provenance))


def _mixed(one: Samples, over: Samples, method: str) -> Samples:
    if method == "multiply":
        return one * over
    if method == "subtract":
        return one - over
    total = one + over
    return total / np.float32(2) if method == "mean" else total


@node(
    "audio/split-channels",
    title="Split Channels",
    category="Audio",
    icon="audio-lines",
    outputs=[Port(PortKind.AUDIO, id="left"), Port(PortKind.AUDIO, id="right")],
)
def split_channels(ctx: NodeContext, audio: Sound) -> tuple[Waveform, Waveform]:
    """Give the two channels of a stereo sound as mono sounds.

    Raises: InvalidParam if it is not stereo; InvalidAsset.
    """
    sound = waveform_of(audio, check=ctx.check_cancelled)
    if sound.channels != _STEREO:
        message = f"the sound has {sound.channels} channels: only stereo is split"
        raise InvalidParam(message, port="audio")
    left, right = (
        Waveform(sound.samples[index : index + 1], sound.sample_rate_hz, dict(sound.provenance))
        for index in range(_STEREO)
    )
    return left, right


@node(
    "audio/join-channels",
    title="Join Channels",
    category="Audio",
    icon="audio-lines",
    outputs=_AUDIO,
    output_kind="audio",
)
def join_channels(ctx: NodeContext, left: Sound, right: Sound) -> Waveform:
    """Make a stereo sound of two; of each the first channel, the shorter one ends in silence.

    The right one is brought to the sample rate of the left one.  Raises: InvalidAsset.
    """
    one = waveform_of(left, check=ctx.check_cancelled)
    other = resampled(waveform_of(right, check=ctx.check_cancelled), one.sample_rate_hz)
    length = max(one.samples.shape[1], other.samples.shape[1])
    samples = np.zeros((_STEREO, length), np.float32)
    for row, sound in enumerate((one, other)):
        samples[row, : sound.samples.shape[1]] = sound.samples[0]
    return Waveform(samples, one.sample_rate_hz, dict(one.provenance))
