"""Nodes around videos and sounds, on values in memory and on files: both give the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inline_core.errors import InvalidAsset, InvalidParam
from inline_core.media.audio import write_wav
from inline_core.media.reading import read_clip
from inline_core.media.values import Clip, Image, MediaFile, Waveform
from inline_core.media.video import encode_mp4
from inline_core.nodes import audio, video
from tests.unit.media.clips import media_file, moving, tone


class Context:
    def check_cancelled(self) -> None:
        """Nothing is cancelled here."""


CTX: Any = Context()


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[MediaFile, Clip]:
    """A file of 40 frames at 12.5 a second with sound, and what is in it."""
    path = tmp_path_factory.mktemp("nodes") / "in.mp4"
    encode_mp4(Clip(moving(40).frames, 12.5, tone(3.2)), path)
    file = media_file(path)
    return file, read_clip(file)


def same(one: Clip, other: Clip) -> None:
    assert one.fps == other.fps
    assert np.array_equal(one.frames, other.frames)
    assert one.sound is not None
    assert other.sound is not None
    assert one.sound.samples.shape == other.sound.samples.shape
    assert np.abs(one.sound.samples - other.sound.samples).max(initial=0) < 1e-3


@pytest.mark.parametrize(
    ("start", "duration", "first", "count"),
    [(0, 0, 0, 40), (0.4, 0.8, 5, 10), (0.41, 0.01, 5, 1), (2.8, 9, 35, 5), (3.12, 0, 39, 1)],
)
def test_a_part_of_a_video(
    both: tuple[MediaFile, Clip], start: float, duration: float, first: int, count: int
) -> None:
    file, clip = both
    of_clip = video.part(CTX, clip, start=start, duration=duration)
    assert np.array_equal(of_clip.frames, clip.frames[first : first + count])
    assert of_clip.sound is not None
    assert of_clip.sound.samples.shape[1] == round(count / 12.5 * 48_000)
    same(video.part(CTX, file, start=start, duration=duration), of_clip)


def test_behind_the_end_is_told(both: tuple[MediaFile, Clip]) -> None:
    for source in both:
        with pytest.raises(InvalidParam, match=r"ends before 3\.2 s"):
            video.part(CTX, source, start=3.2)
        for wrong in (40, -41):
            with pytest.raises(InvalidParam, match=f"no frame {wrong}"):
                video.frame(CTX, source, index=wrong)
        with pytest.raises(InvalidParam, match="at 7 s"):
            video.frame(CTX, source, by="time", time=7)


@pytest.mark.parametrize(
    ("params", "number"),
    [
        ({"index": 0}, 0), ({"index": 33}, 33), ({"index": -1}, 39), ({"index": -40}, 0),
        ({"by": "time", "time": 0.0}, 0), ({"by": "time", "time": 0.079}, 0),
        ({"by": "time", "time": 0.08}, 1), ({"by": "time", "time": 3.19}, 39),
    ],
)  # fmt: skip
def test_one_frame(both: tuple[MediaFile, Clip], params: dict[str, Any], number: int) -> None:
    for source in both:
        assert np.array_equal(video.frame(CTX, source, **params).pixels, both[1].frames[number])


def test_made_and_taken_apart(both: tuple[MediaFile, Clip]) -> None:
    for source in both:
        images, sound = video.components(CTX, source)
        assert sound is not None
        again = video.make(CTX, list(images.images), sound, fps=12.5)
        same(again, both[1])
    silent = Clip(both[1].frames, 23.976)
    images, none = video.components(CTX, silent)
    assert none is None
    assert video.make(CTX, list(images.images), none, fps=23.976).fps == 24000 / 1001


def test_pictures_that_make_no_video() -> None:
    small = Image(np.zeros((4, 6, 4), np.uint8))
    large = Image(np.zeros((6, 6, 3), np.uint8))
    assert video.make(CTX, [small]).frames.shape == (1, 4, 6, 3)
    with pytest.raises(InvalidParam, match="picture 1 is 6x6 and the first one 6x4"):
        video.make(CTX, [small, large])
    with pytest.raises(InvalidParam, match="at least one picture"):
        video.make(CTX, [])


def test_a_part_of_a_sound(tmp_path: Path) -> None:
    sound = tone(1.0, 8000)
    write_wav(sound, tmp_path / "a.wav", as_float=True)
    for source in (sound, media_file(tmp_path / "a.wav", "audio")):
        found = audio.trim(CTX, source, start=0.25, duration=0.5)
        assert np.array_equal(found.samples, sound.samples[:, 2000:6000])
        assert audio.trim(CTX, source, start=0.75).samples.shape == (2, 2000)
        with pytest.raises(InvalidParam, match="ends before 1 s"):
            audio.trim(CTX, source, start=1.0)


def test_sounds_are_joined_at_the_rate_of_the_first() -> None:
    mono, stereo = tone(0.5, 16_000, 1), tone(0.25, 48_000, 2)
    joined = audio.join(CTX, mono, stereo)
    assert (joined.sample_rate_hz, joined.samples.shape) == (16_000, (2, 12_000))
    assert np.array_equal(joined.samples[:, :8000], np.repeat(mono.samples, 2, axis=0))
    wanted = tone(0.25, 16_000, 2).samples
    assert np.abs(joined.samples[:, 8000:] - wanted)[:, 100:-100].max() < 0.01
    with pytest.raises(InvalidParam, match="2 and 6 channels"):
        audio.join(CTX, stereo, Waveform(np.zeros((6, 4), np.float32), 48_000))
    with pytest.raises(InvalidAsset, match="A sound is needed"):
        audio.join(CTX, mono, None)


def test_gain_is_in_decibels() -> None:
    sound = tone(0.1)
    louder = audio.gain(CTX, sound, decibels=20.0).samples
    assert louder.dtype == np.float32
    assert np.allclose(louder, sound.samples * 10)
    assert np.allclose(audio.gain(CTX, sound, decibels=-6.0206).samples, sound.samples / 2)
