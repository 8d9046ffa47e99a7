"""Sounds: parts, joins, loudness."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import numpy as np

from inline_core.errors import InvalidParam
from inline_core.graph.ports import PortKind
from inline_core.media.reading import read_waveform, resampled, waveform_of
from inline_core.media.values import MediaFile, Waveform
from inline_core.nodes.base import NodeContext, Param, Port, node
from inline_core.nodes.spans import Duration, Start

Sound = Annotated[Waveform | MediaFile, Port(PortKind.AUDIO)]

_MAX_DECIBELS = 60.0
_DECIBELS_PER_DECADE = 20.0


@node(
    "audio/trim",
    title="Cut Audio",
    category="Audio",
    icon="scissors",
    outputs=[Port(PortKind.AUDIO)],
    output_kind="audio",
)
def trim(
    ctx: NodeContext,
    audio: Sound,
    *,
    start: Start = 0.0,
    duration: Duration = 0.0,
) -> Waveform:
    """Take the part of a sound from `start` on, `duration` seconds long; less if it ends earlier.

    Raises: InvalidParam if it ends before `start`; InvalidAsset.
    """
    if isinstance(audio, MediaFile):
        return read_waveform(
            audio, start_s=start, duration_s=duration or None, check=ctx.check_cancelled
        )
    sound = waveform_of(audio)
    found = cut(sound, start, duration or None)
    if not found.samples.shape[1] and sound.samples.shape[1]:
        message = f"the sound ends before {start:g} s (it lasts {sound.duration_s:.3f} s)"
        raise InvalidParam(message, param="start")
    return found


def cut(sound: Waveform, start_s: float, duration_s: float | None) -> Waveform:
    """A part of a sound, times rounded to samples; it may be shorter, down to nothing."""
    first = round(start_s * sound.sample_rate_hz)
    last = None if duration_s is None else first + round(duration_s * sound.sample_rate_hz)
    return replace(sound, samples=sound.samples[:, first:last])


@node(
    "audio/join",
    title="Join Audio",
    category="Audio",
    icon="audio-lines",
    outputs=[Port(PortKind.AUDIO)],
    output_kind="audio",
)
def join(ctx: NodeContext, first: Sound, second: Sound) -> Waveform:
    """Play one sound after the other, at the sample rate of the first; mono becomes stereo.

    Raises: InvalidParam if their channels cannot be matched (stereo and 5.1); InvalidAsset.
    """
    one = waveform_of(first, check=ctx.check_cancelled)
    other = waveform_of(second, check=ctx.check_cancelled)
    other = resampled(other, one.sample_rate_hz)
    channels = max(one.channels, other.channels)
    parts = []
    for sound in (one, other):
        if sound.channels not in {1, channels}:
            message = (
                f"sounds of {one.channels} and {other.channels} channels cannot be joined; "
                "give both the same number"
            )
            raise InvalidParam(message, param="second")
        parts.append(np.broadcast_to(sound.samples, (channels, sound.samples.shape[1])))
    return Waveform(
        np.concatenate(parts, axis=1), one.sample_rate_hz, dict(one.provenance)
    )  # (channels, n of both)


@node(
    "audio/gain",
    title="Gain",
    category="Audio",
    icon="volume-2",
    outputs=[Port(PortKind.AUDIO)],
    output_kind="audio",
)
def gain(
    ctx: NodeContext,
    audio: Sound,
    *,
    decibels: Annotated[
        float, Param(label="Gain (dB)", min=-_MAX_DECIBELS, max=_MAX_DECIBELS, step=0.1)
    ] = 0.0,
) -> Waveform:
    """Make a sound louder or quieter; 6 dB are about twice as loud in amplitude.

    What gets beyond full scale is cut in a 16-bit file, and the run says so.
    Raises: InvalidAsset.
    """
    sound = waveform_of(audio, check=ctx.check_cancelled)
    factor = np.float32(10 ** (decibels / _DECIBELS_PER_DECADE))
    return replace(sound, samples=sound.samples * factor)
