"""Colours: known L*a*b* values, statistics that are met, adjustments by hand."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image as PillowImage

from inline_core.media.values import Image, ImageBatch
from inline_core.nodes.image_colour import adjust, colour_match, invert, quantize, to_grey
from inline_core.nodes.pixels.colour import lab_of, rgb_of
from tests.unit.nodes.pictures import context, cutout, furthest, one, scene, several

# Lindbloom's calculator, sRGB and D65.
KNOWN = {
    (255, 255, 255): (100.0, 0.0, 0.0),
    (0, 0, 0): (0.0, 0.0, 0.0),
    (255, 0, 0): (53.2408, 80.0925, 67.2032),
    (0, 255, 0): (87.7347, -86.1827, 83.1793),
    (0, 0, 255): (32.2970, 79.1875, -107.8602),
    (128, 128, 128): (53.5850, 0.0, 0.0),
}


def muted(image: Image) -> Image:
    """The picture with less contrast, so that matched colours stay in range."""
    return Image((image.pixels * 0.4 + 70).astype(np.uint8))


def tinted(image: Image) -> Image:
    return Image((muted(image).pixels[::-1] * (1.1, 0.9, 0.8)).clip(0, 255).astype(np.uint8))


def test_known_colours_in_lab_and_back() -> None:
    rgb = np.array(list(KNOWN), np.uint8)
    assert furthest(lab_of(rgb), np.array(list(KNOWN.values()))) < 0.02
    every = np.stack(np.meshgrid(*[np.arange(0, 256, 15)] * 3), -1).astype(np.uint8)
    assert furthest(rgb_of(lab_of(every)), every) < 0.1


def test_reinhard_meets_mean_and_spread() -> None:
    image, reference = muted(scene()), tinted(scene(70, 50))
    result = lab_of(one(colour_match(context(), image, reference)).pixels).reshape(-1, 3)
    wanted, before = lab_of(reference.pixels).reshape(-1, 3), lab_of(image.pixels).reshape(-1, 3)
    assert furthest(result.mean(0), wanted.mean(0)) < 0.3
    assert furthest(result.std(0), wanted.std(0)) < 0.3
    assert furthest(before.mean(0), wanted.mean(0)) > 3


def test_mkl_meets_the_covariance_too() -> None:
    image, reference = muted(scene()), tinted(scene(70, 50))
    result = one(colour_match(context(), image, reference, method="mkl")).pixels
    found, wanted = (np.cov(lab_of(p).reshape(-1, 3).T) for p in (result, reference.pixels))
    assert furthest(found, wanted) < 0.05 * float(np.abs(wanted).max())


def test_histograms_are_met() -> None:
    image, reference = muted(scene()), scene(70, 50, 120)
    result = one(colour_match(context(), image, reference, method="histogram")).pixels
    for channel in range(3):
        ranks = np.linspace(0.05, 0.95, 19)
        found = np.quantile(result[..., channel], ranks)
        wanted = np.quantile(reference.pixels[..., channel], ranks)
        assert np.abs(found - wanted).mean() < 4
        assert np.abs(np.quantile(image.pixels[..., channel], ranks) - wanted).mean() > 8


@pytest.mark.parametrize("method", ["reinhard", "mkl", "histogram"])
def test_matching_itself_or_without_strength_changes_nothing(method: str) -> None:
    image = scene()
    assert furthest(one(colour_match(context(), image, image, method=method)).pixels, image.pixels) <= 2  # fmt: skip
    kept = one(colour_match(context(), image, tinted(image), method=method, strength=0.0))
    assert np.array_equal(kept.pixels, image.pixels)
    full = one(colour_match(context(), image, tinted(image), method=method)).pixels
    half = one(colour_match(context(), image, tinted(image), method=method, strength=0.5)).pixels
    assert furthest(half, (image.pixels.astype(float) + full) / 2) <= 1.01


@pytest.mark.parametrize("method", ["reinhard", "mkl", "histogram"])
def test_a_flat_picture_takes_the_mean_and_stays_flat(method: str) -> None:
    flat = Image(np.full((8, 8, 3), 90, np.uint8))
    result = one(colour_match(context(), flat, tinted(scene()), method=method)).pixels
    assert len(np.unique(result.reshape(-1, 3), axis=0)) == 1


def test_frames_change_alike_when_measured_together() -> None:
    frames = ImageBatch((muted(scene()), Image(muted(scene()).pixels // 2)))
    alone = several(colour_match(context(), frames, tinted(scene())))
    together = several(colour_match(context(), frames, tinted(scene()), together=True))
    means = [[frame.pixels.mean() for frame in batch] for batch in (alone, together)]
    assert abs(means[0][0] - means[0][1]) < 2 < abs(means[1][0] - means[1][1])


def test_adjusting_by_hand() -> None:
    image = scene()
    assert np.array_equal(one(adjust(context(), image)).pixels, image.pixels)
    unit = image.pixels / 255
    bright = one(adjust(context(), image, brightness=1.5)).pixels
    assert furthest(bright, (unit * 1.5).clip(0, 1) * 255) <= 0.51
    contrast = one(adjust(context(), image, contrast=0.5)).pixels
    assert furthest(contrast, (unit - 0.5) * 127.5 + 127.5) <= 0.51
    gamma = one(adjust(context(), image, gamma=2.0)).pixels
    assert furthest(gamma, unit**0.5 * 255) <= 0.51
    grey = one(adjust(context(), image, saturation=0.0)).pixels
    assert furthest(grey, one(to_grey(context(), image)).pixels) <= 1


def test_alpha_is_kept() -> None:
    image = cutout()
    for result in (
        adjust(context(), image, brightness=0.5), invert(context(), image),
        to_grey(context(), image), quantize(context(), image, colours=1),
        colour_match(context(), image, scene()),
    ):  # fmt: skip
        assert np.array_equal(one(result).pixels[..., 3], image.pixels[..., 3])
        assert furthest(one(result).pixels, image.pixels) > 0


def test_invert_and_grey() -> None:
    image = scene()
    assert np.array_equal(one(invert(context(), image)).pixels, 255 - image.pixels)
    luma = image.pixels @ np.array([0.2126, 0.7152, 0.0722])
    assert furthest(one(to_grey(context(), image)).pixels[..., 1], luma) <= 0.51


def test_few_colours() -> None:
    image = scene()
    plain = one(quantize(context(), image, colours=5)).pixels
    wanted = np.asarray(PillowImage.fromarray(image.pixels).quantize(5).convert("RGB"))
    assert len(np.unique(plain.reshape(-1, 3), axis=0)) <= 5
    assert furthest(plain.mean((0, 1)), wanted.mean((0, 1))) < 5
    dithered = one(quantize(context(), image, colours=5, dither="floyd-steinberg")).pixels
    assert len(np.unique(dithered.reshape(-1, 3), axis=0)) <= 5
    assert furthest(plain, dithered) > 0
