"""Masks: where they come from, and what is done to their shape."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image as PillowImage
from torch.nn import functional

from inline_core.errors import InvalidParam
from inline_core.media.values import ImageBatch, Mask
from inline_core.nodes import mask as masks
from inline_core.nodes import mask_shape as shapes
from tests.unit.nodes.pictures import context, cutout, furthest, one, scene, spots, warnings_of


def test_alpha_both_ways_and_where_there_is_none() -> None:
    image, ctx = cutout(), context()
    assert np.array_equal(masks.from_alpha(ctx, image).values, image.pixels[..., 3])
    # ComfyUI's Load Image gives 1 - alpha.
    assert np.array_equal(masks.from_alpha(ctx, image, invert=True).values, 255 - image.pixels[..., 3])  # fmt: skip
    assert not warnings_of(ctx)
    assert (masks.from_alpha(ctx, scene()).values == 255).all()
    assert (masks.from_alpha(ctx, scene(), invert=True).values == 0).all()
    assert "no alpha" in warnings_of(ctx)[0]


def test_channels_and_luma() -> None:
    image = cutout()
    for index, channel in enumerate(("red", "green", "blue", "alpha")):
        found = masks.from_channel(context(), image, channel=channel).values
        assert np.array_equal(found, image.pixels[..., index])
    luma = masks.from_channel(context(), scene(), channel="luma").values
    assert furthest(luma, scene().pixels @ np.array([0.2126, 0.7152, 0.0722])) <= 0.51
    ctx = context()
    masks.from_channel(ctx, ImageBatch((scene(), scene())), channel="red")
    assert "first of 2" in warnings_of(ctx)[0]


def test_a_colour_with_tolerance() -> None:
    image = scene()
    exact = masks.from_colour(context(), image, colour="#145aa0").values
    assert np.array_equal(exact == 255, (image.pixels == (20, 90, 160)).all(-1))
    assert 0 < (exact == 255).sum() < exact.size
    loose = masks.from_colour(context(), image, colour="#165aa0", tolerance=2).values
    assert ((loose == 255) | (exact == 0)).all()
    none = masks.from_colour(context(), image, colour="#165aa0", tolerance=1, invert=True).values
    assert (none[exact == 255] == 255).all()
    with pytest.raises(InvalidParam, match="no colour"):
        masks.from_colour(context(), image, colour="#12")


def test_solid_threshold_invert_and_picture() -> None:
    half = masks.solid(value=0.5, width=5, height=3)
    assert half.values.shape == (3, 5)
    assert (half.values == 128).all()
    ramp = Mask(np.arange(256, dtype=np.uint8)[None])
    assert (masks.threshold(ramp, value=0.5).values[0] == [0] * 128 + [255] * 128).all()
    assert np.array_equal(masks.invert(ramp).values[0], np.arange(255, -1, -1))
    assert (masks.to_image(ramp).pixels == ramp.values[..., None]).all()
    with pytest.raises(InvalidParam, match="megapixels"):
        masks.solid(width=16384, height=16384)


def test_join_and_split_alpha() -> None:
    image, mask = scene(), spots(45, 30)
    joined = one(masks.join_alpha(context(), image, mask))
    batch = torch.from_numpy(mask.values.astype(np.float32))[None, None]
    scaled = functional.interpolate(batch, size=(60, 90), mode="bilinear")[0, 0].numpy()
    assert furthest(joined.pixels[..., 3], scaled) <= 0.502
    assert np.array_equal(joined.pixels[..., :3], image.pixels)
    turned = one(masks.join_alpha(context(), image, mask, invert=True))
    assert furthest(turned.pixels[..., 3], 255 - scaled) <= 0.502
    picture, alpha = masks.split_alpha(context(), joined)
    assert np.array_equal(one(picture).pixels, image.pixels)
    assert np.array_equal(alpha.values, joined.pixels[..., 3])
    assert np.array_equal(masks.split_alpha(context(), joined, invert=True)[1].values, 255 - alpha.values)  # fmt: skip


@pytest.mark.parametrize("tapered", [True, False])
@pytest.mark.parametrize("expand", [1, 2, 3, 5, 9, 25, 200])
def test_growing_is_many_small_dilations(tapered: bool, expand: int) -> None:
    mask = spots()
    cross = torch.tensor([[not tapered, True, not tapered], [True] * 3, [not tapered, True, not tapered]])  # fmt: skip
    for sign in (1, -1):
        wanted = torch.from_numpy(mask.values).float()
        if sign < 0:
            wanted = 255 - wanted
        for _ in range(expand):
            padded = functional.pad(wanted, (1, 1, 1, 1))
            around = padded.unfold(0, 3, 1).unfold(1, 3, 1)
            wanted = around.where(cross, torch.tensor(0.0)).amax((-1, -2))
        if sign < 0:
            wanted = 255 - wanted
        found = shapes.grow(mask, expand=sign * expand, tapered_corners=tapered)
        assert np.array_equal(found.values, wanted.numpy()), sign


def test_growing_by_nothing_or_by_everything() -> None:
    mask = spots()
    assert np.array_equal(shapes.grow(mask, expand=0).values, mask.values)
    assert (shapes.grow(mask, expand=16384).values == mask.values.max()).all()


@pytest.mark.parametrize(("radius", "sigma"), [(1, 0.5), (4, 2.0), (20, 6.0)])
def test_blur_is_a_gaussian_with_mirrored_edges(radius: int, sigma: float) -> None:
    mask = spots(80, 70)
    at = torch.arange(-radius, radius + 1, dtype=torch.float64)
    kernel = torch.exp(-(at[:, None] ** 2 + at[None] ** 2) / (2 * sigma**2))
    values = torch.from_numpy(mask.values).double()[None, None]
    padded = functional.pad(values, (radius,) * 4, mode="reflect")
    wanted = functional.conv2d(padded, (kernel / kernel.sum())[None, None])[0, 0].numpy()
    found = shapes.blur(mask, radius=radius, sigma=sigma).values
    assert furthest(found, wanted) <= 0.51


def test_blur_reaches_beyond_a_small_mask() -> None:
    flat = Mask(np.full((2, 1), 200, np.uint8))
    assert (shapes.blur(flat, radius=9, sigma=3.0).values == 200).all()


def test_feather() -> None:
    full = masks.solid(value=1.0, width=20, height=10)
    found = shapes.feather(full, left=4, top=2, right=5, bottom=99).values
    wanted = np.full((10, 20), 255.0)
    for index in range(4):
        wanted[:, index] *= (index + 1) / 4
    for index in range(5):
        wanted[:, 19 - index] *= (index + 1) / 5
    for index in range(2):
        wanted[index] *= (index + 1) / 2
    for index in range(10):  # no more than there is
        wanted[9 - index] *= (index + 1) / 10
    assert furthest(found, wanted) <= 0.5
    assert np.array_equal(shapes.feather(full).values, full.values)


@pytest.mark.parametrize("place", [(0, 0), (7, 3), (-5, -4), (30, 20)])
@pytest.mark.parametrize("operation", shapes.OPERATIONS)
def test_combining(operation: str, place: tuple[int, int]) -> None:
    below, above = spots(40, 30, 1), spots(20, 18, 2)
    found = shapes.combine(context(), below, above, operation=operation, x=place[0], y=place[1])
    for row in range(30):
        for column in range(40):
            low = below.values[row, column] / 255
            y, x = row - place[1], column - place[0]
            wanted = low
            if 0 <= y < 18 and 0 <= x < 20:
                high = above.values[y, x] / 255
                one_, two = low > 0.5, high > 0.5
                wanted = {
                    "multiply": low * high, "add": min(low + high, 1), "subtract": max(low - high, 0),
                    "and": one_ and two, "or": one_ or two, "xor": one_ != two,
                }[operation]  # fmt: skip
            assert abs(found.values[row, column] - wanted * 255) <= 0.51, (row, column)


def test_a_mask_outside_changes_nothing_and_is_told() -> None:
    ctx, below = context(), spots()
    found = shapes.combine(ctx, below, spots(), operation="xor", x=40)
    assert np.array_equal(found.values, below.values)
    assert "outside" in warnings_of(ctx)[0]


def test_crop_and_resize() -> None:
    mask = spots()
    part = shapes.crop(mask, x=5, y=6, width=7, height=8)
    assert np.array_equal(part.values, mask.values[6:14, 5:12])
    with pytest.raises(InvalidParam, match="reaches outside"):
        shapes.crop(mask, x=5, width=36)
    large = shapes.resize(mask, by="factor", factor=2.0, method="nearest-exact")
    assert np.array_equal(large.values, mask.values.repeat(2, 0).repeat(2, 1))
    lanczos = shapes.resize(mask, scene(20, 15), by="match", method="lanczos")
    wanted = PillowImage.fromarray(mask.values).resize((20, 15), PillowImage.Resampling.LANCZOS)
    assert np.array_equal(lanczos.values, np.asarray(wanted))
    padded = shapes.resize(mask, None, spots(50, 50), by="match", fit="pad")
    assert padded.values.shape == (50, 50)
    assert not padded.values[:6].any()


def test_only_one_thing_is_matched() -> None:
    both: dict[str, Any] = {"match": scene(), "match_mask": spots()}
    with pytest.raises(InvalidParam, match="not both"):
        shapes.resize(spots(), by="match", **both)


def test_a_picture_without_alpha_is_opaque_and_may_be_so() -> None:
    picture = scene()
    for invert, value in ((False, 255), (True, 0)):
        ctx = context()
        same, mask = masks.split_alpha(ctx, picture, invert=invert, quiet=True)
        assert same is picture
        assert mask.values.shape == (picture.height, picture.width)
        assert (mask.values == value).all()
        assert not warnings_of(ctx)
        loud = context()
        assert np.array_equal(
            masks.split_alpha(loud, picture, invert=invert)[1].values, mask.values
        )
        assert warnings_of(loud)
