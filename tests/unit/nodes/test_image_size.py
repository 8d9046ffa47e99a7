"""Resizing equals torch's and Pillow's, and sizes come out as they were asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image as PillowImage
from torch.nn import functional

from inline_core.errors import InvalidParam, RunCancelled
from inline_core.media.values import Image, ImageBatch
from inline_core.nodes.image_size import crop, kontext_size, pad, resize
from inline_core.nodes.pixels.resample import resample
from tests.unit.nodes.pictures import Pixels, context, cutout, furthest, one, scene, several

SIZES = [(120, 99), (40, 31), (7, 200), (180, 120), (1, 1)]
TORCH = ["nearest-exact", "bilinear", "area", "bicubic"]


def interpolated(pixels: Pixels, size: tuple[int, int], method: str) -> Any:
    """What torch makes of pixels, as float (height, width, channels)."""
    batch = torch.from_numpy(pixels.astype(np.float32)).permute(2, 0, 1)[None]
    large = functional.interpolate(batch, size=(size[1], size[0]), mode=method)
    return large[0].permute(1, 2, 0).numpy()


@pytest.mark.parametrize("method", TORCH)
@pytest.mark.parametrize("size", SIZES)
def test_methods_are_those_of_torch(method: str, size: tuple[int, int]) -> None:
    image = scene()
    result = one(resize(context(), image, width=size[0], height=size[1], fit="stretch", method=method))  # fmt: skip
    wanted = interpolated(image.pixels, size, method)
    assert furthest(result.pixels, wanted.clip(0, 255)) <= 0.502  # rounding only
    if method != "nearest-exact":
        exact = resample(image.pixels.astype(np.float32), size, method)
        assert furthest(exact, wanted) < 2e-3


@pytest.mark.parametrize("size", SIZES[:4])
def test_lanczos_is_pillows(size: tuple[int, int]) -> None:
    for image in (scene(), cutout()):
        result = one(resize(context(), image, width=size[0], height=size[1], fit="stretch"))
        wanted = PillowImage.fromarray(image.pixels).resize(size, PillowImage.Resampling.LANCZOS)
        assert np.array_equal(result.pixels, np.asarray(wanted))


@pytest.mark.parametrize("method", [*TORCH[1:], "lanczos"])
def test_transparent_colours_do_not_bleed(method: str) -> None:
    image = cutout()
    result = one(resize(context(), image, by="factor", factor=0.6, method=method)).pixels
    seen = result[..., 3] > 8
    assert seen.any()
    assert (~seen).any()
    assert result[seen][:, 1].max() <= 1, "green came through"
    assert result[seen][:, 0].min() >= 254
    if method != "lanczos":
        alpha = interpolated(image.pixels[..., 3:], result.shape[1::-1], method)
        assert furthest(result[..., 3:], alpha.clip(0, 255)) <= 0.502


@pytest.mark.parametrize(
    ("asked", "size"),
    [
        ({"by": "size", "width": 30, "height": 50}, (30, 50)),
        ({"by": "size", "width": 45, "height": 0}, (45, 30)),
        ({"by": "size", "width": 0, "height": 120}, (180, 120)),
        ({"by": "size", "width": 0, "height": 0}, (90, 60)),
        ({"by": "width", "width": 61}, (61, 41)),
        ({"by": "height", "height": 41}, (62, 41)),
        ({"by": "longer", "side": 45}, (45, 30)),
        ({"by": "shorter", "side": 30}, (45, 30)),
        ({"by": "factor", "factor": 1.5}, (135, 90)),
        ({"by": "megapixels", "megapixels": 0.01}, (125, 84)),
        ({"by": "megapixels", "megapixels": 0.01, "multiple": 16}, (128, 80)),
        ({"by": "multiple", "multiple": 16}, (80, 48)),
        ({"by": "match"}, (33, 44)),
        ({"by": "size", "width": 50, "height": 50, "fit": "inside"}, (50, 33)),
        ({"by": "size", "width": 50, "height": 50, "fit": "pad"}, (50, 50)),
    ],
)
def test_sizes(asked: dict[str, Any], size: tuple[int, int]) -> None:
    result = one(resize(context(), scene(), scene(33, 44), **asked))
    assert (result.width, result.height) == size
    assert result.provenance == scene().provenance


def test_crop_takes_the_middle_and_pad_puts_bars_around() -> None:
    image = scene()
    cropped = one(resize(context(), image, width=60, height=60, fit="crop"))
    assert np.array_equal(cropped.pixels, image.pixels[:, 15:75])
    padded = one(resize(context(), image, width=90, height=80, fit="pad", colour="#102030"))
    assert np.array_equal(padded.pixels[10:70], image.pixels)
    assert (padded.pixels[:10] == (16, 32, 48)).all()
    assert (padded.pixels[70:] == (16, 32, 48)).all()
    clear = one(resize(context(), image, width=90, height=80, fit="pad", colour="#10203000"))
    assert clear.pixels.shape == (80, 90, 4)
    assert (clear.pixels[10:70, :, 3] == 255).all()
    assert (clear.pixels[:10] == (16, 32, 48, 0)).all()


def test_a_batch_gives_a_batch_and_stops_when_cancelled() -> None:
    batch = ImageBatch((scene(), scene(60, 90), scene(shade=200)))
    sizes = [(p.width, p.height) for p in several(resize(context(), batch, by="longer", side=30))]
    assert sizes == [(30, 20), (20, 30), (30, 20)]
    with pytest.raises(RunCancelled):
        resize(context(checks=2), batch)


def test_what_cannot_be_made_is_refused() -> None:
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({"by": "factor", "factor": 8.0}, "factor", "at most 16384"),
        ({"width": 16384, "height": 16384}, "width", "100 megapixels"),
        ({"by": "longer", "side": 0}, "side", "is 0"),
        ({"colour": "red"}, "colour", "#rrggbb"),
    ]
    wide = Image(np.zeros((2, 5000, 3), np.uint8))
    for asked, param, words in cases:
        with pytest.raises(InvalidParam, match=words) as caught:
            resize(context(), wide, **asked)
        assert caught.value.param == param
    with pytest.raises(InvalidParam, match="wire a picture") as caught:
        resize(context(), wide, by="match")
    assert caught.value.port == "match"


@pytest.mark.parametrize(
    ("size", "wanted"),
    [((100, 100), (1024, 1024)), ((192, 108), (1392, 752)), ((30, 100), (672, 1568))],
)
def test_kontext_sizes(size: tuple[int, int], wanted: tuple[int, int]) -> None:
    result = one(kontext_size(context(), scene(*size)))
    assert (result.width, result.height) == wanted


def test_crop() -> None:
    image = scene()
    part = one(crop(context(), image, x=10, y=20, width=30, height=40))
    assert np.array_equal(part.pixels, image.pixels[20:60, 10:40])
    assert part.provenance["seed"] == 7
    clipped = one(crop(context(), image, x=80, y=0, width=30, height=30, clip=True))
    assert np.array_equal(clipped.pixels, image.pixels[:30, 80:])
    with pytest.raises(InvalidParam, match=r"30x41.*90x60.*clip") as caught:
        crop(context(), image, x=10, y=20, width=30, height=41)
    assert caught.value.param == "y"
    with pytest.raises(InvalidParam, match="choose a part inside"):
        crop(context(), image, x=90, y=0, width=1, height=1, clip=True)


def test_pad_gives_picture_and_mask() -> None:
    image, reach = scene(), 12
    left, top, right, bottom = sides = (8, 0, 16, 24)
    result, mask = pad(context(), image, left=left, top=top, right=right, bottom=bottom, feathering=reach)  # fmt: skip
    picture = one(result)
    assert picture.pixels.shape == (84, 114, 3)
    assert np.array_equal(picture.pixels[:60, 8:98], image.pixels)
    assert (picture.pixels[60:] == 128).all()
    wanted = np.full((84, 114), 255.0)
    for row in range(60):
        for column in range(90):
            distances = (column, row, 90 - column, 60 - row)
            near = min([d for d, side in zip(distances, sides, strict=True) if side] + [reach])
            wanted[row, 8 + column] = ((reach - near) / reach) ** 2 * 255
    assert furthest(mask.values, wanted) <= 0.5
    hard = pad(context(), image, left=8, feathering=40)[1].values
    assert (hard[:, :8] == 255).all()
    assert not hard[:, 8:].any()


def test_pad_wants_one_size_and_a_sane_result() -> None:
    with pytest.raises(InvalidParam, match="90x60 and 60x90") as caught:
        pad(context(), ImageBatch((scene(), scene(60, 90))), left=8)
    assert caught.value.port == "image"
    with pytest.raises(InvalidParam, match="at most 16384"):
        pad(context(), scene(), left=16384)
