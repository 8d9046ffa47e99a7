"""mp4 files: what they are, that they show what was drawn, and that nothing is left behind."""

from __future__ import annotations

import io
import subprocess
import threading
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import psutil
import pytest
from PIL import Image as PillowImage

from inline_core.errors import EncodingFailed, InvalidParam, NotFinite, RunCancelled
from inline_core.media import ffmpeg as ffmpeg_module
from inline_core.media.file_texts import read_comment
from inline_core.media.rates import frame_rate
from inline_core.media.reading import read_clip
from inline_core.media.values import Clip, Waveform
from inline_core.media.video import encode_mp4, poster_of
from tests.processes import children
from tests.unit.media.clips import boxes, media_file, moving, tone


@pytest.mark.parametrize(
    ("fps", "rate"),
    [(24.0, Fraction(24)), (23.976, Fraction(24000, 1001)), (12.5, Fraction(25, 2))],
)
def test_the_file_is_what_players_want(tmp_path: Path, fps: float, rate: Fraction) -> None:
    clip = moving(24, fps=fps)
    encode_mp4(clip, tmp_path / "clip.mp4")
    kinds = boxes((tmp_path / "clip.mp4").read_bytes())
    assert kinds.index("moov") < kinds.index("mdat")
    with av.open(str(tmp_path / "clip.mp4")) as container:
        stream = container.streams.video[0]
        context = stream.codec_context
        frame = next(container.decode(stream))
        assert (context.name, context.pix_fmt) == ("h264", "yuv420p")
        assert (stream.width, stream.height, stream.frames) == (64, 48, 24)
        assert stream.average_rate == rate
        assert stream.duration is not None
        assert stream.time_base is not None
        assert stream.duration * stream.time_base == 24 / rate
        assert (context.colorspace, context.color_range) == (1, 1)
        assert (context.color_primaries, context.color_trc) == (1, 1)
        assert (frame.colorspace, frame.color_range) == (1, 1)
        assert not container.streams.audio


def test_the_frames_come_back_as_they_were_drawn(tmp_path: Path) -> None:
    clip = moving(24, 128, 96, fps=23.976)
    encode_mp4(clip, tmp_path / "clip.mp4")
    back = read_clip(media_file(tmp_path / "clip.mp4"))
    assert back.frames.shape == clip.frames.shape
    assert back.fps == 24000 / 1001
    apart = np.abs(back.frames.astype(int) - clip.frames)
    # Inside the bars: colours at the edge of what BT.709 holds, away from the chroma of neighbours.
    inside = apart[:, 60:, 6::16]
    assert inside.max() <= 4
    # Every frame at its own place: one step of the ramp is 9 levels.
    assert apart[:, 8:40].max() <= 4


def test_colours_are_neither_shifted_nor_coarse(tmp_path: Path) -> None:
    """Smooth colours of any hue: 42 dB; chroma half a pixel off, or repeated, gives 38 or less."""
    rng = np.random.default_rng(0)
    small = PillowImage.fromarray(rng.integers(0, 255, (12, 20, 3), np.uint8))
    smooth = np.asarray(small.resize((320, 192), PillowImage.Resampling.BICUBIC))
    encode_mp4(Clip(np.repeat(smooth[None], 3, axis=0), 24.0), tmp_path / "clip.mp4")
    back = read_clip(media_file(tmp_path / "clip.mp4")).frames[0]
    error = float(((back.astype(np.float32) - smooth) ** 2).mean())
    assert 10 * np.log10(255**2 / error) > 40


def test_sound_is_cut_or_goes_on_in_silence(tmp_path: Path) -> None:
    for seconds in (0.4, 3.0):
        clip = moving(24)
        encode_mp4(Clip(clip.frames, 24.0, tone(seconds)), tmp_path / "clip.mp4")
        with av.open(str(tmp_path / "clip.mp4")) as container:
            sound = container.streams.audio[0]
            assert sound.codec_context.name == "aac"
            assert (sound.rate, sound.channels) == (48_000, 2)
            assert sound.duration is not None
            assert sound.time_base is not None
            assert sound.duration * sound.time_base == 1
        back = read_clip(media_file(tmp_path / "clip.mp4")).sound
        assert back is not None
        assert back.samples.shape == (2, 48_000)
        heard = min(seconds, 1.0)
        drawn = tone(heard)
        kept = back.samples[:, : drawn.samples.shape[1]]
        assert np.abs(kept - drawn.samples).mean() < 0.01
        assert np.abs(back.samples[:, drawn.samples.shape[1] + 2048 :]).max(initial=0) < 0.01


def test_a_rate_that_aac_has_not_becomes_48_khz(tmp_path: Path) -> None:
    encode_mp4(Clip(moving(24).frames, 24.0, tone(1, 37_800, 1)), tmp_path / "clip.mp4")
    back = read_clip(media_file(tmp_path / "clip.mp4")).sound
    assert back is not None
    assert (back.sample_rate_hz, back.samples.shape) == (48_000, (1, 48_000))


def test_odd_sides_repeat_the_last_row_and_column(tmp_path: Path) -> None:
    frames = np.zeros((3, 41, 63, 3), np.uint8)
    frames[:, -1] = 200
    frames[:, :, -1] = 200
    encode_mp4(Clip(frames, 10.0), tmp_path / "odd.mp4")
    back = read_clip(media_file(tmp_path / "odd.mp4"))
    assert (back.width, back.height) == (64, 42)
    assert np.abs(back.frames[:, 40:, :].astype(int) - 200).max() <= 6
    assert np.abs(back.frames[:, :, 62:].astype(int) - 200).max() <= 6


def test_the_same_clip_gives_the_same_bytes_with_its_recipe(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    frames = rng.integers(0, 255, (12, 64, 64, 3), np.uint8)
    clip = Clip(frames, 29.97, tone(0.4, 44_100))
    recipe = '{"graph":"=;#\\\\ ' + "x" * 200_000 + '"}'
    files = []
    for name in ("a", "b"):
        encode_mp4(clip, tmp_path / name, comment=recipe)
        files.append((tmp_path / name).read_bytes())
    assert files[0] == files[1]
    assert read_comment(files[0], 0, len(files[0])) == recipe
    with av.open(str(tmp_path / "a")) as container:
        assert container.metadata["comment"] == recipe
        assert "creation_time" not in container.metadata
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_cancelling_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    frames = np.broadcast_to(np.uint8(90), (500, 64, 64, 3))
    asked: list[int] = []

    def check() -> None:
        asked.append(len(children()))
        if len(asked) > 40:
            raise RunCancelled

    with pytest.raises(RunCancelled):
        encode_mp4(Clip(frames, 24.0, tone(1)), tmp_path / "clip.mp4", comment="x", check=check)
    assert max(asked) == 1  # it did run
    assert children() == []
    assert list(tmp_path.iterdir()) == []


def test_what_ffmpeg_says_is_told(tmp_path: Path) -> None:
    with pytest.raises(EncodingFailed, match=r"the video failed.*No such file or directory"):
        encode_mp4(moving(30, 256, 256), tmp_path / "nowhere" / "clip.mp4")
    assert children() == []


def test_a_talkative_ffmpeg_does_not_stand_still(tmp_path: Path) -> None:
    """A megabyte of messages is more than any pipe holds."""
    noise = ["-loglevel", "trace", "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", "16x16"]
    frames = [bytes(16 * 16 * 3)] * 3000
    arguments = [*noise, "-i", "pipe:0", "-c:v", "libx264", "-bogus", "1", str(tmp_path / "x.mp4")]
    with pytest.raises(EncodingFailed):
        ffmpeg_module.run_ffmpeg(arguments, frames, lambda: None, "the video")
    arguments = [*noise, "-i", "pipe:0", "-f", "null", "-"]
    ffmpeg_module.run_ffmpeg(arguments, frames, lambda: None, "the video")


def test_memory_does_not_grow_with_the_clip(tmp_path: Path) -> None:
    """2000 frames are 245 MB; the view of one frame, the encoder and this process stay small."""
    one = moving(1, 256, 160).frames[0]
    clip = Clip(np.broadcast_to(one, (2000, *one.shape)), 24.0)
    assert clip.frames.size > 240e6
    process = psutil.Process()
    before = process.memory_info().rss
    peaks = [0, 0]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            peaks[0] = max(peaks[0], process.memory_info().rss)
            for child in children():
                try:
                    peaks[1] = max(peaks[1], child.memory_info().rss)
                except psutil.Error:
                    pass

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        encode_mp4(clip, tmp_path / "long.mp4")
    finally:
        done.set()
        watcher.join()
    assert peaks[0] - before < 25e6
    assert 0 < peaks[1] < 300e6
    with av.open(str(tmp_path / "long.mp4")) as container:
        assert container.streams.video[0].frames == 2000


@pytest.mark.parametrize(
    "clip",
    [
        Clip(np.zeros((0, 8, 8, 3), np.uint8), 24.0),
        Clip(np.zeros((2, 8, 8), np.uint8), 24.0),
        Clip(np.zeros((2, 8, 8, 3), np.float32), 24.0),
        Clip(np.zeros((2, 8, 8, 3), np.uint8), 0.0),
        Clip(np.zeros((2, 8, 8, 3), np.uint8), float("nan")),
    ],
)
def test_what_is_no_video_is_refused(tmp_path: Path, clip: Clip) -> None:
    with pytest.raises(InvalidParam):
        encode_mp4(clip, tmp_path / "x.mp4")
    assert list(tmp_path.iterdir()) == []


def test_a_sound_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    bad = Waveform(np.full((1, 100), np.nan, np.float32), 8000)
    with pytest.raises(NotFinite):
        encode_mp4(Clip(moving(4).frames, 24.0, bad), tmp_path / "x.mp4")
    assert list(tmp_path.iterdir()) == []


def test_the_poster_is_the_first_frame_that_is_not_black() -> None:
    frames = np.zeros((5, 300, 900, 3), np.uint8)
    frames[3] = (0, 200, 0)
    frames[4] = (200, 0, 0)
    with PillowImage.open(io.BytesIO(poster_of(Clip(frames, 8.0)))) as picture:
        assert picture.format == "JPEG"
        assert picture.size == (512, 171)
        red, green, _ = picture.convert("RGB").getpixel((9, 9))  # type: ignore[misc]
        assert green > 150
        assert red < 50
    dark = np.zeros((3, 16, 16, 3), np.uint8)
    dark[1] = 9
    with PillowImage.open(io.BytesIO(poster_of(Clip(dark, 8.0)))) as picture:
        assert picture.size == (16, 16)
        assert picture.convert("L").getpixel((3, 3)) == 9


def test_rates_are_exact() -> None:
    assert frame_rate(29.97) == Fraction(30000, 1001)
    assert frame_rate(59.94006) == Fraction(60000, 1001)
    assert frame_rate(30.0) == 30
    assert frame_rate(23.98) == Fraction(2398, 100)
    assert frame_rate(1 / 3) == Fraction(1, 3)


def test_ffmpeg_is_there_with_x264() -> None:
    program = ffmpeg_module._program()
    told = subprocess.run([program, "-hide_banner", "-encoders"], capture_output=True, check=True)
    assert b"libx264" in told.stdout
