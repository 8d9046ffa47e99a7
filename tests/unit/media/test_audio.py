"""wav and flac: every sample as it was, recipes inside, and what is refused."""

from __future__ import annotations

import wave
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from inline_core.errors import EncodingFailed, InvalidAsset, InvalidParam, NotFinite, RunCancelled
from inline_core.media.audio import clipped_samples, write_flac, write_wav
from inline_core.media.file_texts import read_comment, recipe_line
from inline_core.media.reading import read_waveform, resampled, waveform_of
from inline_core.media.values import Waveform
from tests.unit.media.clips import ffmpeg, media_file, tone

WRITERS: list[tuple[Callable[..., None], str]] = [(write_wav, "wav"), (write_flac, "flac")]


def noise(channels: int, count: int = 70_001, rate: int = 44_100) -> Waveform:
    """Every value a 16-bit file can hold, in random order."""
    rng = np.random.default_rng(channels)
    whole = rng.integers(-32_768, 32_768, (channels, count))
    return Waveform((whole / 32_768).astype(np.float32), rate)


@pytest.mark.parametrize("channels", [1, 2, 6])
@pytest.mark.parametrize(("write", "ending"), WRITERS)
def test_every_sample_comes_back(
    tmp_path: Path, write: Callable[..., None], ending: str, channels: int
) -> None:
    sound = noise(channels)
    path = tmp_path / f"a.{ending}"
    facts = {"graph": {"nodes": ["ä=;#\\\n\ud800"]}, "long": "x" * 100_000}
    write(sound, path, comment=recipe_line(facts))
    file = media_file(path, "audio")
    assert (file.channels, file.sample_rate_hz) == (channels, 44_100)
    assert file.duration_s == pytest.approx(70_001 / 44_100, abs=1e-5)
    back = read_waveform(file)
    assert back.sample_rate_hz == 44_100
    assert np.array_equal(back.samples, sound.samples)
    data = path.read_bytes()
    assert read_comment(data, 0, len(data)) == recipe_line(facts)
    write(sound, tmp_path / "b", comment=recipe_line(facts))
    assert (tmp_path / "b").read_bytes() == data
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [path.name, "b"]


def test_other_programs_read_the_wav(tmp_path: Path) -> None:
    sound = noise(2, 999)
    write_wav(sound, tmp_path / "a.wav", comment="odd")
    with wave.open(str(tmp_path / "a.wav")) as file:
        assert file.getparams()[:4] == (2, 2, 44_100, 999)
        kept = np.frombuffer(file.readframes(999), "<i2").reshape(-1, 2).T
    assert np.array_equal(kept, sound.samples * 32_768)


def test_float_wav_keeps_what_16_bit_cuts(tmp_path: Path) -> None:
    sound = Waveform(np.array([[0.1, 1.0, 1.25, -1.0, -3.0]], np.float32), 8000)
    assert clipped_samples(sound) == 2
    write_wav(sound, tmp_path / "f.wav", as_float=True)
    assert np.array_equal(read_waveform(media_file(tmp_path / "f.wav")).samples, sound.samples)
    write_wav(sound, tmp_path / "i.wav")
    kept = read_waveform(media_file(tmp_path / "i.wav")).samples[0]
    assert kept[1:].tolist() == [1 - 2**-15, 1 - 2**-15, -1.0, -1.0]


def test_a_part_is_cut_to_the_sample(tmp_path: Path) -> None:
    sound = noise(2, 44_100 * 5)
    for write, ending in WRITERS:
        write(sound, tmp_path / f"a.{ending}")
        file = media_file(tmp_path / f"a.{ending}", "audio")
        part = read_waveform(file, start_s=3.5, duration_s=0.25)
        first = int(3.5 * 44_100)
        assert np.array_equal(part.samples, sound.samples[:, first : first + 11_025])
        rest = read_waveform(file, start_s=4.9, duration_s=9)
        assert np.array_equal(rest.samples, sound.samples[:, int(4.9 * 44_100) :])
        with pytest.raises(InvalidParam, match="ends before 6 s"):
            read_waveform(file, start_s=6)


@pytest.mark.parametrize("ending", ["mp3", "m4a", "ogg"])
def test_coded_sound_starts_and_ends_where_it_did(tmp_path: Path, ending: str) -> None:
    sound = tone(2.0, 44_100, 1)
    write_wav(sound, tmp_path / "a.wav")
    ffmpeg("-i", str(tmp_path / "a.wav"), str(tmp_path / f"b.{ending}"))
    file = media_file(tmp_path / f"b.{ending}", "audio")
    back = read_waveform(file)
    assert back.samples.shape[1] == pytest.approx(88_200, abs=60)
    assert np.abs(back.samples[:, 2000:80_000] - sound.samples[:, 2000:80_000]).mean() < 0.03
    late = read_waveform(file, start_s=1.0, duration_s=0.5)
    assert np.abs(late.samples - sound.samples[:, 44_100:66_150]).mean() < 0.03


def test_another_sample_rate_keeps_the_tone(tmp_path: Path) -> None:
    write_wav(tone(1.0, 48_000), tmp_path / "a.wav")
    read = read_waveform(media_file(tmp_path / "a.wav", "audio"), sample_rate_hz=16_000)
    made = resampled(tone(1.0, 48_000), 16_000)
    for back in (read, made):
        assert back.sample_rate_hz == 16_000
        assert back.samples.shape == (2, 16_000)
        wanted = tone(1.0, 16_000).samples
        assert np.abs(back.samples - wanted)[:, 100:-100].max() < 0.01


def test_what_is_broken_is_named(tmp_path: Path) -> None:
    write_flac(noise(2, 300_000), tmp_path / "whole.flac")
    data = (tmp_path / "whole.flac").read_bytes()
    file = media_file(tmp_path / "whole.flac", "audio")
    (tmp_path / "whole.flac").write_bytes(data[: len(data) // 2])
    with pytest.raises(InvalidAsset, match=r"whole\.flac"):
        read_waveform(file)
    (tmp_path / "whole.flac").write_bytes(b"nothing of the kind")
    with pytest.raises(InvalidAsset, match=r"whole\.flac"):
        read_waveform(file)
    (tmp_path / "whole.flac").unlink()
    with pytest.raises(InvalidAsset, match=r"whole\.flac"):
        read_waveform(file)
    with pytest.raises(InvalidAsset, match=r"more than 0\.00 GB"):
        write_wav(noise(2, 300_000), tmp_path / "a.wav")
        read_waveform(media_file(tmp_path / "a.wav", "audio"), limit_bytes=1000)


def test_what_is_no_sound_is_refused(tmp_path: Path) -> None:
    ones = np.ones((1, 4), np.float32)
    bad: list[Waveform] = [
        Waveform(ones[0], 8000), Waveform(ones, 0), Waveform(ones.astype(np.float64), 8000),
        Waveform(np.ones((65, 4), np.float32), 8000),
    ]  # fmt: skip
    for sound in bad:
        with pytest.raises(InvalidParam):
            write_wav(sound, tmp_path / "a.wav")
    for write, _ in WRITERS:
        with pytest.raises(NotFinite):
            write(Waveform(ones * np.inf, 8000), tmp_path / "a.wav")
    with pytest.raises(InvalidParam, match="8 channels"):
        write_flac(Waveform(np.ones((9, 4), np.float32), 8000), tmp_path / "a.flac")
    endless = Waveform(np.broadcast_to(np.float32(0), (2, 2**30)), 48_000)
    with pytest.raises(EncodingFailed, match="flac"):
        _write_without_reading(endless, tmp_path / "a.wav")
    with pytest.raises(InvalidAsset, match="a video without sound"):
        waveform_of(None)
    assert list(tmp_path.iterdir()) == []


def _write_without_reading(sound: Waveform, path: Path) -> None:
    from inline_core.media import audio

    audio._check_riff(sound, 2, 0)
    path.touch()


def test_cancelling_leaves_no_file(tmp_path: Path) -> None:
    def check() -> None:
        raise RunCancelled

    for write, _ in WRITERS:
        with pytest.raises(RunCancelled):
            write(noise(2), tmp_path / "a", comment="x", check=check)
    assert list(tmp_path.iterdir()) == []
