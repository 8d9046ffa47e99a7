"""Writing takes: our PNG encoder against Pillow's default, photo-like and flat pictures."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image as PillowImage

from benchmarks.measure import Result, alternate, best_of
from inline_core.media.png import encode_png
from inline_core.media.values import Image
from inline_core.takes.files import ContentFiles


def photo(size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """A smooth picture with noise, like a photograph to an encoder."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[0:size, 0:size] / size  # (size, size)
    waves = np.stack([np.sin(6 * x + i) * np.cos(5 * y - i) for i in range(3)], -1)
    return (
        ((waves * 0.5 + 0.5) * 235 + rng.normal(0, 3, (size, size, 3)) + 10)
        .clip(0, 255)
        .astype(np.uint8)
    )


def flat(size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Flat art: a disc on a plain background."""
    y, x = np.mgrid[0:size, 0:size] / size
    disc = (x - 0.5) ** 2 + (y - 0.5) ** 2 < 0.09
    return np.where(disc[..., None], [220, 40, 40], [40, 60, 200]).astype(np.uint8)


def take_png(*, quick: bool) -> list[Result]:
    """Time and size; the decoded pixels are compared first."""
    results = []
    for size in (512, 1024) if quick else (512, 1024, 2048):
        for name, pixels in (("photo", photo(size)), ("flat", flat(size))):
            data = encode_png(Image(pixels))
            with PillowImage.open(io.BytesIO(data)) as picture:
                if not np.array_equal(np.asarray(picture), pixels):
                    message = "the encoder changed pixels"
                    raise RuntimeError(message)
            result = Result(
                f"PNG {size} {name}", "ms", "lower", gate=0.05 if name == "photo" else None
            )
            alternate(
                result,
                lambda pixels=pixels: best_of(2, lambda: encode_png(Image(pixels))) * 1000,  # type: ignore[misc]
                lambda pixels=pixels: best_of(1, lambda: _pillow(pixels)) * 1000,  # type: ignore[misc]
                2,
            )
            result.note = f"{len(data) / len(_pillow(pixels)):.2f}x the bytes of Pillow"
            results.append(result)
    return results


def _pillow(pixels: np.ndarray[Any, np.dtype[np.uint8]]) -> bytes:
    buffer = io.BytesIO()
    PillowImage.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def take_write(*, quick: bool) -> list[Result]:
    """Encode, hash, write, fsync, rename: one durable take of 1024 x 1024."""
    result = Result("durable take of 1024 px", "ms", "lower")
    with tempfile.TemporaryDirectory() as folder:
        files = ContentFiles(Path(folder))
        for number in range(3 if quick else 8):
            pixels = photo(1024)
            pixels[0, 0] = number
            import time

            started = time.perf_counter()
            files.release(files.write(encode_png(Image(pixels)), "png"))
            result.us.append((time.perf_counter() - started) * 1000)
    return [result]
