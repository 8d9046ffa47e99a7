"""Texts out of PNG files, without decoding the picture."""

from __future__ import annotations

import io

import pytest
from PIL import Image as Pillow
from PIL.PngImagePlugin import PngInfo

from inline_core.errors import InvalidAsset
from inline_core.media.png_text import read_texts


def written(side: int = 64) -> bytes:
    info = PngInfo()
    info.add_text("plain", "caf\xe9")
    info.add_text("packed", "x" * 1000, zip=True)
    info.add_itxt("wide", "円", lang="ja")
    info.add_itxt("wide packed", "円" * 500, zip=True)
    info.add_text("plain", "second")
    buffer = io.BytesIO()
    Pillow.effect_noise((side, side), 50).save(buffer, "PNG", pnginfo=info)
    return buffer.getvalue()


def test_all_kinds_of_text() -> None:
    data = written()
    wanted = {"plain": "caf\xe9", "packed": "x" * 1000, "wide": "円", "wide packed": "円" * 500}
    assert read_texts(data, 0, len(data)) == wanted
    # In the middle of something longer, as a form upload is.
    assert read_texts(b"before" + data + b"after", 6, 6 + len(data)) == wanted
    # What the picture looks like does not matter, nor that the file breaks off in it.
    assert read_texts(data, 0, len(data) - 100) == wanted


def test_a_file_that_breaks_off_before_any_text() -> None:
    data = written()
    with pytest.raises(InvalidAsset, match="ends in the middle"):
        read_texts(data, 0, 50)
    blank = io.BytesIO()
    Pillow.new("L", (4, 4)).save(blank, "PNG")
    assert read_texts(blank.getvalue(), 0, len(blank.getvalue())) == {}


@pytest.mark.parametrize("offset", range(len(b"plain\x00caf_") + 4))
def test_a_changed_byte_of_a_text_is_noticed(offset: int) -> None:
    data = bytearray(written())
    data[data.index(b"tEXt") + 4 + offset] ^= 1
    with pytest.raises(InvalidAsset, match="damaged"):
        read_texts(bytes(data), 0, len(data))
