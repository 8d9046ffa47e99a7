"""Outputs give on what they get; measures say what is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inline_core.errors import InvalidAsset
from inline_core.media.audio import write_wav
from inline_core.media.values import Clip, Image, ImageBatch, Mask, MediaFile, Waveform
from inline_core.media.video import encode_mp4
from inline_core.nodes import measures, outputs
from tests.unit.media.clips import media_file, moving, tone
from tests.unit.nodes.pictures import context, scene, spots

CTX: Any = context()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> MediaFile:
    path = tmp_path_factory.mktemp("outputs") / "in.mp4"
    encode_mp4(Clip(moving(5).frames, 12.5, tone(0.4)), path)
    return media_file(path)


def test_pictures_are_the_same_objects() -> None:
    batch = ImageBatch(tuple(scene(8, 6) for _ in range(3)))
    assert outputs.image(batch, filename_prefix="x", preview=True) is batch
    assert outputs.image(batch.images[0]) is batch.images[0]


def test_videos_and_sounds_are_read_where_they_are_files(file: MediaFile, tmp_path: Path) -> None:
    clip, sound = moving(3), tone(0.5)
    assert outputs.video(CTX, clip) is clip
    assert outputs.audio(CTX, sound) is sound
    assert outputs.video(CTX, file, filename_prefix="x").frame_count == 5
    write_wav(sound, tmp_path / "a.wav")
    read = outputs.audio(CTX, media_file(tmp_path / "a.wav", "audio"))
    assert read.samples.shape == sound.samples.shape
    with pytest.raises(InvalidAsset, match="A video is needed"):
        outputs.video(CTX, None)
    with pytest.raises(InvalidAsset, match="without sound"):
        outputs.audio(CTX, None)


def test_everything_has_a_text(file: MediaFile) -> None:
    picture = scene(8, 6)
    cases: list[tuple[Any, str]] = [
        ("a", "a"),
        (3, "3"),
        (1.5, "1.5"),
        (True, "True"),
        (np.float32(0.5), "0.5"),
        (None, "nothing"),
        ([1, "ä"], '[1, "ä"]'),
        (picture, "picture of 8x6"),
        (ImageBatch((picture, picture)), "2 pictures, the first a picture of 8x6"),
        (spots(4, 3), "mask of 4x3"),
        (tone(0.5), "sound of 0.500 s at"),
        (moving(3), "video of 3 frames of"),
        (file, "video 'in.mp4'"),
        (object(), "object"),
    ]
    for value, wanted in cases:
        assert outputs.text(value).startswith(wanted)
    assert len(outputs.text("x" * 200_000)) == 100_000


def test_sizes() -> None:
    pictures = ImageBatch((scene(8, 6), scene(8, 6)))
    assert measures.image_size(pictures) == (8, 6, 2)
    assert measures.image_size(Image(np.zeros((3, 5, 4), np.uint8))) == (5, 3, 1)
    assert measures.mask_size(Mask(np.zeros((3, 5), np.uint8))) == (5, 3)


def test_what_videos_and_sounds_say(file: MediaFile, tmp_path: Path) -> None:
    clip = Clip(moving(5).frames, 12.5, None)
    of_clip, of_file = measures.video_info(clip), measures.video_info(file)
    assert of_clip == (12.5, 0.4, clip.width, clip.height)
    assert of_file == pytest.approx(of_clip)
    sound = Waveform(np.zeros((2, 4410), np.float32), 44_100)
    assert measures.audio_info(CTX, sound) == (0.1, 44_100, 2)
    write_wav(sound, tmp_path / "a.wav")
    assert measures.audio_info(CTX, media_file(tmp_path / "a.wav", "audio")) == (0.1, 44_100, 2)
    unknown = MediaFile("video", tmp_path / "x.mp4", "0", None, 4, 4, 24.0)
    with pytest.raises(InvalidAsset, match="does not say how long"):
        measures.video_info(unknown)
    silent = MediaFile("audio", tmp_path / "a.wav", "0")
    assert measures.audio_info(CTX, silent) == (0.1, 44_100, 2)
