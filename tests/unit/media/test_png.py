"""The fast PNG writer is exact, readable by others, and carries provenance."""

from __future__ import annotations

import io
import zlib
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image as PillowImage

from inline_core.errors import InvalidAsset
from inline_core.media import png
from inline_core.media.png import decode_image, encode_png, read_provenance
from inline_core.media.probe import probe
from inline_core.media.values import Image


@pytest.fixture(params=["isal", "zlib"])
def packer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to compress; where the fast one is not installed, only the other."""
    name: str = request.param
    if name == "isal":
        pytest.importorskip("isal")
    else:
        monkeypatch.setattr(png, "isal_zlib", None)
    return name


def smooth(height: int, width: int) -> NDArray[np.uint8]:
    """Like a photograph: soft shapes and a little noise."""
    y, x = np.mgrid[0:height, 0:width] / max(height, width)
    waves = np.stack([np.sin(6 * x + i) * np.cos(5 * y - i) for i in range(3)], -1)
    noise = np.random.default_rng(0).normal(0, 3, (height, width, 3))
    return ((waves * 0.5 + 0.5) * 235 + noise + 10).clip(0, 255).astype(np.uint8)


def pillow_size(pixels: NDArray[np.uint8]) -> int:
    buffer = io.BytesIO()
    PillowImage.fromarray(pixels).save(buffer, "PNG")
    return len(buffer.getvalue())


# The last three are of several strips: many rows, rows longer than a strip, an odd rest.
@pytest.mark.parametrize(
    "shape", [(1, 1, 3), (7, 5, 3), (33, 64, 4), (600, 400, 3), (3, 90_000, 3), (173, 1021, 4)]
)
def test_pixels_are_exact(packer: str, shape: tuple[int, int, int]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    data = encode_png(Image(pixels))
    with PillowImage.open(io.BytesIO(data)) as picture:
        picture.load()
        assert np.array_equal(np.asarray(picture), pixels)
    assert np.array_equal(decode_image(data, max_pixels=300_000, name="x").pixels, pixels)


def test_a_photo_is_about_as_small_as_pillow_makes_it(packer: str) -> None:
    pixels = smooth(512, 512)
    data = encode_png(Image(pixels))
    assert data == encode_png(Image(pixels[:, ::1].copy()))
    assert len(data) <= 1.25 * pillow_size(pixels)
    with PillowImage.open(io.BytesIO(data)) as picture:
        assert np.array_equal(np.asarray(picture), pixels)


def test_a_long_recipe_does_not_make_the_file_unreadable(packer: str) -> None:
    facts = {"graph": {"nodes": ["x" * 3_000_000]}, "text": "ä"}
    data = encode_png(Image(np.zeros((2, 2, 3), np.uint8)), facts)
    assert read_provenance(data) == facts
    assert decode_image(data, max_pixels=10, name="x").width == 2


def test_provenance_survives_and_bytes_are_equal_twice() -> None:
    image = Image(np.zeros((2, 2, 3), np.uint8))
    facts = {"graph": {"nodes": []}, "text": "ä \U0001f98a"}
    data = encode_png(image, facts)
    assert data == encode_png(image, facts)
    assert read_provenance(data) == facts
    assert read_provenance(encode_png(image)) is None
    assert read_provenance(b"nothing") is None


def _bomb() -> bytes:
    """A 1-bit 30000x30000 picture of about 110 KB."""
    import struct

    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    rows = zlib.compress(b"\0" * (3751 * 30000), 9)
    header = struct.pack(">IIBBBBB", 30000, 30000, 1, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    )


def test_a_picture_bomb_is_refused_from_its_header(tmp_path: Path) -> None:
    data = _bomb()
    with pytest.raises(InvalidAsset, match="pixels"):
        decode_image(data, max_pixels=100_000_000, name="The file")
    (tmp_path / "bomb.png").write_bytes(data)
    with pytest.raises(InvalidAsset, match="pixels"):
        probe(tmp_path / "bomb.png", max_pixels=100_000_000, name="The file")


def test_orientation_is_applied(tmp_path: Path) -> None:
    picture = PillowImage.new("RGB", (4, 2))
    exif = picture.getexif()
    exif[0x0112] = 6
    picture.save(tmp_path / "turned.jpg", exif=exif)
    image = decode_image((tmp_path / "turned.jpg").read_bytes(), max_pixels=100, name="x")
    assert (image.width, image.height) == (2, 4)


@pytest.mark.parametrize("data", [b"", b"hello", b"\x89PNG\r\n\x1a\n", b"<html>"])
def test_no_picture_is_said_so(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(InvalidAsset):
        decode_image(data, max_pixels=100, name="The upload")
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(InvalidAsset, match="The upload"):
        probe(tmp_path / "file", max_pixels=100, name="The upload")
