"""Videos as other programs write them: turned, uneven, cut off, late, silent, too large."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path

import av
import numpy as np
import pytest

from inline_core.errors import InvalidAsset, InvalidParam, RunCancelled
from inline_core.media.audio import write_wav
from inline_core.media.probe import probe
from inline_core.media.reading import clip_of, read_clip, read_frames, read_waveform, waveform_of
from inline_core.media.values import Clip, MediaFile
from inline_core.media.video import encode_mp4
from tests.unit.media.clips import ffmpeg, media_file, moving, tone


def levels(clip: Clip) -> list[int]:
    """The brightness of the upper half of each frame: which frame of `moving` it is."""
    return [round(float(frame[8 : clip.height // 2 - 8].mean())) for frame in clip.frames]


@pytest.fixture
def file(tmp_path: Path) -> MediaFile:
    """Five seconds at 20 fps with sound."""
    encode_mp4(Clip(moving(100, fps=20).frames, 20.0, tone(5)), tmp_path / "in.mp4")
    return media_file(tmp_path / "in.mp4")


@pytest.mark.parametrize("start", [0, 1, 37, 63, 99])
def test_a_part_begins_at_its_frame(file: MediaFile, start: int) -> None:
    whole = levels(read_clip(file))
    part = read_clip(file, start_s=start / 20, max_frames=10)
    assert levels(part) == whole[start : start + 10]
    assert part.sound is not None
    assert part.sound.samples.shape[1] == round(part.duration_s * 48_000)
    drawn = tone(5).samples[:, round(start / 20 * 48_000) :][:, : part.sound.samples.shape[1]]
    assert np.abs(part.sound.samples - drawn).mean() < 0.01


def test_another_frame_rate_drops_or_repeats(file: MediaFile) -> None:
    whole = levels(read_clip(file))
    assert levels(read_clip(file, fps=10)) == pytest.approx(whole[::2], abs=3)
    twice = read_clip(file, fps=40)
    assert (twice.fps, twice.frame_count) == (40.0, 200)
    assert levels(twice)[::2] == pytest.approx(whole, abs=3)


def test_frames_come_one_by_one_and_stop_when_told(file: MediaFile) -> None:
    asked = []

    def check() -> None:
        asked.append(1)
        if len(asked) > 30:
            raise RunCancelled

    assert len(list(islice(read_frames(file, check=check), 5))) == 5
    with pytest.raises(RunCancelled):
        list(read_frames(file, check=check))


@pytest.mark.parametrize("degrees", [90, 180, 270])
def test_a_turned_video_is_shown_upright(tmp_path: Path, degrees: int) -> None:
    frames = np.zeros((4, 32, 64, 3), np.uint8)
    frames[:, :16, :32] = 230  # bright at the upper left
    encode_mp4(Clip(frames, 10.0), tmp_path / "a.mp4")
    turned, baked = tmp_path / "b.mp4", tmp_path / "c.mp4"
    rotate = ["-display_rotation", str(degrees)]
    ffmpeg(*rotate, "-i", str(tmp_path / "a.mp4"), "-c", "copy", str(turned))
    ffmpeg("-i", str(turned), "-crf", "1", str(baked))  # ffmpeg's own idea of upright
    back, wanted = read_clip(media_file(turned)), read_clip(media_file(baked))
    assert back.frames.shape == wanted.frames.shape
    assert np.abs(back.frames.astype(int) - wanted.frames).mean() < 3
    found = media_file(turned)
    assert (found.width, found.height) == (back.width, back.height)


def test_pauses_between_frames_hold_the_last_one(tmp_path: Path) -> None:
    path = tmp_path / "uneven.mkv"
    times = [0, 1, 2, 3, 10, 11, 12, 13, 14, 19]  # in twentieths of a second
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=20, options={"crf": "4"})
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for index, time in enumerate(times):
            pixels = np.full((48, 64, 3), 20 * index + 20, np.uint8)
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            frame.pts = time
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    clip = read_clip(media_file(path), fps=20)
    shown = [max(i for i, time in enumerate(times) if time <= slot) for slot in range(20)]
    assert levels(clip)[:20] == pytest.approx([20 * i + 20 for i in shown], abs=3)
    assert clip.frame_count in {20, 21}


@pytest.mark.parametrize("part", [0.3, 0.6, 0.98, 0.999])
def test_a_file_that_is_cut_off_is_named(file: MediaFile, part: float) -> None:
    data = file.path.read_bytes()
    file.path.write_bytes(data[: int(len(data) * part)])
    with pytest.raises(InvalidAsset, match=r"in\.mp4"):
        read_clip(file)


def test_a_file_that_ends_between_two_frames_is_named(file: MediaFile) -> None:
    """Nothing in what is left is damaged: only the index tells."""
    with av.open(str(file.path)) as container:
        end = list(container.streams.video[0].index_entries)[-3].pos
    file.path.write_bytes(file.path.read_bytes()[:end])
    with pytest.raises(InvalidAsset, match=r"in\.mp4.*index"):
        read_clip(file)


def test_a_file_that_is_damaged_or_gone_is_named(file: MediaFile) -> None:
    file.path.write_bytes(b"ftyp or not" * 50)
    with pytest.raises(InvalidAsset, match=r"in\.mp4"):
        read_clip(file)
    file.path.unlink()
    with pytest.raises(InvalidAsset, match=r"in\.mp4"):
        read_clip(file)


def test_a_sound_in_an_mp4_is_no_video(tmp_path: Path) -> None:
    write_wav(tone(1), tmp_path / "a.wav")
    ffmpeg("-i", str(tmp_path / "a.wav"), "-f", "mp4", str(tmp_path / "only.mp4"))
    found = media_file(tmp_path / "only.mp4")
    with pytest.raises(InvalidAsset, match=r"only\.mp4.*only sound"):
        read_clip(replace(found, fps=24.0))
    assert probe(found.path, max_pixels=10**6, name="it").format.extension == "m4a"


def test_a_cover_is_no_video(tmp_path: Path) -> None:
    write_wav(tone(1), tmp_path / "a.wav")
    ffmpeg("-f", "lavfi", "-i", "color=red:s=64x64", "-frames:v", "1", str(tmp_path / "c.png"))
    ffmpeg(
        "-i", str(tmp_path / "a.wav"), "-i", str(tmp_path / "c.png"), "-map", "0", "-map", "1",
        "-disposition:v", "attached_pic", "-c:v", "png", str(tmp_path / "b.m4a"),
    )  # fmt: skip
    assert probe(tmp_path / "b.m4a", max_pixels=10**6, name="it").format.extension == "m4a"
    assert read_waveform(media_file(tmp_path / "b.m4a", "audio")).channels == 2


def test_late_sound_keeps_its_place(tmp_path: Path) -> None:
    encode_mp4(moving(40, fps=20), tmp_path / "v.mp4")
    write_wav(tone(1), tmp_path / "a.wav")
    ffmpeg(
        "-i", str(tmp_path / "v.mp4"), "-itsoffset", "0.5", "-i", str(tmp_path / "a.wav"),
        "-map", "0", "-map", "1", "-c:v", "copy", "-c:a", "flac", str(tmp_path / "b.mkv"),
    )  # fmt: skip
    sound = read_clip(media_file(tmp_path / "b.mkv")).sound
    assert sound is not None
    assert np.abs(sound.samples[:, : 24_000 - 60]).max() == 0
    begins = int(np.argmax(np.abs(sound.samples[0]) > 0.05))
    assert begins == pytest.approx(24_000, abs=120)


def test_too_much_is_refused_before_it_is_read(file: MediaFile) -> None:
    with pytest.raises(InvalidAsset, match=r"in\.mp4.*100 frames.*video/slice"):
        read_clip(file, limit_bytes=64 * 48 * 3 * 99)
    silent = replace(file, duration_s=None, width=None)
    with pytest.raises(InvalidAsset, match="video/slice"):
        read_clip(silent, limit_bytes=64 * 48 * 3 * 80)
    assert read_clip(silent).frame_count == 100


def test_behind_the_end_there_is_nothing(file: MediaFile) -> None:
    with pytest.raises(InvalidParam, match="ends before 5 s"):
        read_clip(file, start_s=5)
    with pytest.raises(InvalidAsset, match="frame rate"):
        read_clip(replace(file, fps=None))


def test_one_function_takes_what_comes_on_a_port(file: MediaFile) -> None:
    clip = clip_of(replace(file, provenance={"seed": 3}))
    assert (clip.frame_count, clip.provenance) == (100, {"seed": 3})
    assert clip_of(clip) is clip
    no_videos: list[object] = [None, "text", replace(file, kind="audio"), tone(1)]
    for wrong in no_videos:
        with pytest.raises(InvalidAsset, match="A video is needed"):
            clip_of(wrong)
    sound = tone(1)
    assert waveform_of(sound) is sound
    assert waveform_of(replace(file, kind="audio")).samples.shape == (2, 240_000)
    no_sounds: list[object] = [None, "text", file, clip]
    for wrong in no_sounds:
        with pytest.raises(InvalidAsset, match="A sound is needed"):
            waveform_of(wrong)


def test_untagged_colours_are_taken_as_players_take_them(tmp_path: Path) -> None:
    """BT.601 in small videos, BT.709 from 720 lines on: the other way is far off."""
    for size, matrix in (("64x48", "bt601"), ("1280x720", "bt709")):
        path = tmp_path / f"{matrix}.mp4"
        ffmpeg(
            "-f", "lavfi", "-i", f"color=0x00FF00:s={size}:r=10:d=0.2", "-vf",
            f"scale=out_color_matrix={matrix}:out_range=tv,format=yuv420p,setparams="
            "colorspace=unknown:color_primaries=unknown:color_trc=unknown",
            "-c:v", "libx264", "-crf", "1", str(path),
        )  # fmt: skip
        shown = read_clip(media_file(path)).frames[0, 20, 20].astype(int)
        assert np.abs(shown - [0, 255, 0]).max() <= 4
