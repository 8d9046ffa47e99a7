"""Sounds on each other and beside each other, against the sums by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from inline_core.errors import InvalidParam
from inline_core.media.values import Waveform
from inline_core.nodes import audio_mix
from tests.unit.nodes.pictures import context

CTX: Any = context()


def sound(*rows: list[float], rate: int = 8000) -> Waveform:
    return Waveform(np.array(rows, np.float32), rate, {"seed": 3})


@pytest.mark.parametrize(
    ("method", "wanted"),
    [
        ("add", [0.5, 0.5, 0.25]),
        ("mean", [0.25, 0.25, 0.125]),
        ("subtract", [-0.25, 0.0, 0.25]),
        ("multiply", [0.046875, 0.0625, 0.0]),
    ],
)
def test_mixing(method: str, wanted: list[float]) -> None:
    one, other = sound([0.125, 0.25, 0.25]), sound([0.375, 0.25])
    mixed = audio_mix.mix(CTX, one, other, method=method)
    assert mixed.samples.tolist() == [wanted]
    assert mixed.provenance == {"seed": 3}


def test_a_mix_is_as_long_as_the_first_and_never_clips() -> None:
    mixed = audio_mix.mix(CTX, sound([1.0, -0.5]), sound([1.0, 0.5, 0.5], [0.0, 0.5, 0.5]))
    assert mixed.samples.tolist() == [[1.0, 0.0], [0.5, 0.0]]
    with pytest.raises(InvalidParam, match="2 and 3 channels"):
        audio_mix.mix(CTX, sound([0.0], [0.0]), sound([0.0], [0.0], [0.0]))


def test_silence() -> None:
    silent = audio_mix.silence(duration=0.5, sample_rate=100, channels=3)
    assert silent.samples.shape == (3, 50)
    assert not silent.samples.any()
    assert silent.sample_rate_hz == 100
    with pytest.raises(InvalidParam, match="too long"):
        audio_mix.silence(duration=86_400, sample_rate=192_000)


def test_channels_apart_and_together() -> None:
    stereo = sound([0.1, 0.2], [0.3, 0.4])
    left, right = audio_mix.split_channels(CTX, stereo)
    assert np.array_equal(left.samples, stereo.samples[:1])
    assert np.array_equal(right.samples, stereo.samples[1:])
    again = audio_mix.join_channels(CTX, left, right)
    assert np.array_equal(again.samples, stereo.samples)
    longer = audio_mix.join_channels(CTX, left, sound([0.5, 0.5, 0.5]))
    assert longer.samples.tolist()[0][2] == 0
    with pytest.raises(InvalidParam, match="only stereo"):
        audio_mix.split_channels(CTX, left)
