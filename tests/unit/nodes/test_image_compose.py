"""Compositing, blending and stitching, against Pillow and formulas by hand."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image as PillowImage
from PIL import ImageChops

from inline_core.errors import InvalidParam
from inline_core.media.values import Image, ImageBatch, Mask
from inline_core.nodes.image_compose import blend, composite, solid, stitch
from inline_core.nodes.pixels.blend import MODES
from tests.unit.nodes.pictures import (
    Pixels,
    context,
    cutout,
    furthest,
    one,
    scene,
    several,
    spots,
    warnings_of,
)


def pillow(pixels: Pixels) -> PillowImage.Image:
    return PillowImage.fromarray(pixels)


@pytest.mark.parametrize("place", [(0, 0), (20, 10), (-15, -9), (70, 50)])
def test_pasting_with_a_mask_is_pillows(place: tuple[int, int]) -> None:
    below, above, mask = scene(), scene(40, 30, 90), spots(40, 30, 5)
    found = one(composite(context(), below, above, mask, x=place[0], y=place[1]))
    wanted = pillow(below.pixels)
    wanted.paste(pillow(above.pixels), place, pillow(mask.values))
    assert furthest(found.pixels, np.asarray(wanted)) <= 1
    assert furthest(found.pixels, below.pixels) > 20
    assert found.provenance == below.provenance


def test_without_a_mask_the_source_covers() -> None:
    found = one(composite(context(), scene(), scene(40, 30, 90), x=50, y=30)).pixels
    assert np.array_equal(found[30:, 50:], scene(40, 30, 90).pixels)
    assert np.array_equal(found[:30], scene().pixels[:30])


def test_alpha_is_composited_as_pillow_does_it() -> None:
    generator = np.random.default_rng(3)
    below = Image(generator.integers(0, 256, (60, 90, 4), np.uint8))
    above = Image(np.concatenate([scene().pixels, spots(90, 60).values[..., None]], 2))
    found = one(composite(context(), below, above)).pixels
    wanted = np.asarray(PillowImage.alpha_composite(pillow(below.pixels), pillow(above.pixels)))
    assert furthest(found[..., 3], wanted[..., 3]) <= 1
    seen = wanted[..., 3] > 20
    assert furthest(found[seen], wanted[seen]) <= 2
    # On an opaque picture the same, without an alpha.
    opaque = one(composite(context(), scene(shade=9), cutout(90, 60)))
    assert opaque.pixels.shape[2] == 3
    over = pillow(scene(shade=9).pixels)
    over.paste(pillow(cutout(90, 60).pixels), (0, 0), pillow(cutout(90, 60).pixels))
    assert furthest(opaque.pixels, np.asarray(over)) <= 1


def test_the_source_may_be_stretched_and_the_mask_is_scaled() -> None:
    full = Mask(np.full((5, 5), 255, np.uint8))
    found = one(
        composite(context(), scene(), Image(scene(45, 30).pixels), full, resize_source=True)
    )
    assert found.pixels.shape == scene().pixels.shape
    assert furthest(found.pixels[2:-2, 2:-2], scene().pixels[2:-2, 2:-2]) > 0
    assert furthest(found.pixels.mean((0, 1)), scene(45, 30).pixels.mean((0, 1))) < 2


def test_batches_go_pairwise_or_with_a_single_one() -> None:
    three = ImageBatch((scene(), scene(shade=100), scene(shade=200)))
    assert len(several(composite(context(), three, cutout()))) == 3
    assert len(several(composite(context(), scene(), three))) == 3
    with pytest.raises(InvalidParam, match="2 pictures do not go with 3") as caught:
        composite(context(), three, ImageBatch((scene(), scene())))
    assert caught.value.port == "source"


def test_a_source_outside_changes_nothing_and_is_told() -> None:
    ctx = context()
    assert np.array_equal(one(composite(ctx, scene(), cutout(), x=90)).pixels, scene().pixels)
    assert "outside of the 90x60" in warnings_of(ctx)[0]


PILLOWS = {
    "multiply": ImageChops.multiply, "screen": ImageChops.screen, "overlay": ImageChops.overlay,
    "hard-light": ImageChops.hard_light, "difference": ImageChops.difference,
    "subtract": ImageChops.subtract, "add": ImageChops.add, "darken": ImageChops.darker,
    "lighten": ImageChops.lighter,
}  # fmt: skip


@pytest.mark.parametrize("mode", sorted(PILLOWS))
def test_blend_modes_are_pillows(mode: str) -> None:
    low, high = scene(), scene(shade=220)
    high = Image(high.pixels[::-1, ::-1].copy())
    found = one(blend(context(), low, high, mode=mode, factor=1.0)).pixels
    wanted = np.asarray(PILLOWS[mode](pillow(low.pixels), pillow(high.pixels)))
    assert furthest(found, wanted) <= (3 if mode in {"overlay", "hard-light"} else 1)


@pytest.mark.parametrize(
    ("mode", "low", "high", "wanted"),
    [
        ("soft-light", 0.2, 0.4, 0.2 - 0.2 * 0.2 * 0.8),
        ("soft-light", 0.2, 0.9, 0.2 + 0.8 * (((16 * 0.2 - 12) * 0.2 + 4) * 0.2 - 0.2)),
        ("soft-light", 0.6, 0.9, 0.6 + 0.8 * (0.6**0.5 - 0.6)),
        ("exclusion", 0.6, 0.2, 0.6 + 0.2 - 2 * 0.6 * 0.2),
        ("colour-dodge", 0.2, 0.6, 0.5),
        ("colour-dodge", 0.0, 1.0, 0.0),
        ("colour-dodge", 0.6, 1.0, 1.0),
        ("colour-burn", 0.8, 0.4, 0.5),
        ("colour-burn", 1.0, 0.0, 1.0),
        ("colour-burn", 0.4, 0.0, 0.0),
        ("normal", 0.4, 0.8, 0.8),
    ],
)
def test_blend_modes_by_hand(mode: str, low: float, high: float, wanted: float) -> None:
    one_, two = (np.full((1, 1), value, np.float32) for value in (low, high))
    assert float(MODES[mode](one_, two)[0, 0]) == pytest.approx(wanted, abs=1e-5)


def test_blending_takes_its_factor_from_alpha_too() -> None:
    low, high = scene(), scene(shade=220)
    half = one(blend(context(), low, high, factor=0.5)).pixels
    assert furthest(half, low.pixels * 0.5 + high.pixels * 0.5) <= 0.5
    clear = Image(np.concatenate([high.pixels, np.zeros((60, 90, 1), np.uint8)], 2))
    assert np.array_equal(one(blend(context(), low, clear, factor=1.0)).pixels, low.pixels)
    # ComfyUI's "difference" is a plain subtraction.
    small = one(blend(context(), low, Image(high.pixels[:30, :45]), mode="subtract", factor=1.0))
    assert (small.width, small.height) == (90, 60)


@pytest.mark.parametrize("direction", ["right", "down", "left", "up"])
def test_stitching(direction: str) -> None:
    first, second = scene(60, 40), scene(60, 40, 200)
    found = one(stitch(context(), first, second, direction=direction, spacing=6, colour="#ff0000"))
    along = 1 if direction in {"left", "right"} else 0
    bar = np.empty((40, 6, 3) if along else (6, 60, 3), np.uint8)
    bar[:] = (255, 0, 0)
    parts = [first.pixels, bar, second.pixels]
    wanted = np.concatenate(parts if direction in {"right", "down"} else parts[::-1], along)
    assert np.array_equal(found.pixels, wanted)


def test_stitching_pictures_of_two_sizes() -> None:
    first, second = scene(60, 40), scene(30, 20, 200)
    matched = one(stitch(context(), first, second)).pixels
    assert matched.shape == (40, 120, 3)
    large = pillow(second.pixels).resize((60, 40), PillowImage.Resampling.LANCZOS)
    assert np.array_equal(matched[:, 60:], np.asarray(large))
    barred = one(stitch(context(), first, second, match_size=False)).pixels
    assert barred.shape == (40, 90, 3)
    assert np.array_equal(barred[10:30, 60:], second.pixels)
    assert not barred[:10, 60:].any()
    mixed = one(stitch(context(), first, cutout(30, 40), direction="left")).pixels
    assert mixed.shape == (40, 90, 4)
    assert (mixed[:, 30:, 3] == 255).all()


def test_solid() -> None:
    assert (one(solid(width=3, height=2, colour="#010203")).pixels == (1, 2, 3)).all()
    clear = several(solid(width=3, height=2, colour="#01020304", count=2))
    assert (clear[1].pixels == (1, 2, 3, 4)).all()
    with pytest.raises(InvalidParam, match="megapixels"):
        solid(width=16384, height=16384)
