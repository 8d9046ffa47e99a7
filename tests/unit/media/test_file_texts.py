"""The comment in mp4, wav and flac files: found without decoding, and never a crash."""

from __future__ import annotations

import struct
from pathlib import Path

import av
import pytest

from inline_core.errors import InvalidAsset
from inline_core.media.audio import write_flac, write_wav
from inline_core.media.file_texts import read_comment
from inline_core.media.probe import probe
from inline_core.media.streams import opened
from inline_core.media.values import MediaFile
from inline_core.media.video import encode_mp4
from tests.unit.media.clips import ffmpeg, moving, tone


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    folder = tmp_path_factory.mktemp("texts")
    encode_mp4(moving(2), folder / "mp4", comment="A")
    write_wav(tone(0.01), folder / "wav", comment="A")
    write_flac(tone(0.01), folder / "flac", comment="A")
    return [(folder / name).read_bytes() for name in ("mp4", "wav", "flac")]


def test_a_file_inside_other_bytes_is_read_where_it_is(made: list[bytes]) -> None:
    for data in made:
        assert read_comment(b"xyz" + data + b"more", 3, 3 + len(data)) == "A"


def test_files_of_others_have_none(tmp_path: Path) -> None:
    for name in ("a.mp4", "a.flac", "a.wav"):
        source = "testsrc=d=0.1:s=32x32" if name == "a.mp4" else "sine=d=0.1"
        ffmpeg("-f", "lavfi", "-i", source, str(tmp_path / name))
        data = (tmp_path / name).read_bytes()
        assert read_comment(data, 0, len(data)) is None
    assert read_comment(b"", 0, 0) is None


def test_no_damage_makes_it_fail(made: list[bytes]) -> None:
    for data in made:
        for end in range(0, min(len(data), 3000), 7):
            assert read_comment(data, 0, end) in {None, "A", ""}
        for place in range(min(len(data), 1500)):
            for value in (0, 1, 255):
                broken = data[:place] + bytes([value]) + data[place + 1 :]
                read_comment(broken, 0, len(broken))
    endless = b"fLaC" + struct.pack(">I", 4 << 24 | 12) + struct.pack("<III", 4, 0, 2**32 - 1)
    assert read_comment(endless, 0, len(endless)) is None


def test_a_playlist_opens_nothing(tmp_path: Path) -> None:
    """ffmpeg would follow it to any file or address."""
    ffmpeg("-f", "lavfi", "-i", "testsrc=d=0.2:s=32x32", "-f", "mpegts", str(tmp_path / "a.ts"))
    lines = ["#EXTM3U", "#EXT-X-TARGETDURATION:1", "#EXTINF:0.2,", "a.ts", "#EXT-X-ENDLIST", ""]
    (tmp_path / "a.m3u8").write_text("\n".join(lines))
    with av.open(str(tmp_path / "a.m3u8")) as followed:
        assert followed.streams.video
    with (
        pytest.raises(InvalidAsset, match=r"a\.m3u8"),
        opened(MediaFile("video", tmp_path / "a.m3u8", "0" * 64)),
    ):
        pass
    with pytest.raises(InvalidAsset, match="not a picture, video or sound"):
        probe(tmp_path / "a.m3u8", max_pixels=10**6, name="It")
