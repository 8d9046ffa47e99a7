"""Edges against a plain torch version of the published algorithms."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from inline_core.errors import InvalidParam
from inline_core.media.values import Image
from inline_core.nodes.image_control import canny, edges, recolour, scribble, tile
from inline_core.nodes.pixels.edges import _joined
from tests.unit.nodes.pictures import Pixels, context, furthest, one, scene


def plain_canny(pixels: Pixels, low: float, high: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Canny as kornia documents it, step by step; also the lengths of the gradients."""
    weights = torch.tensor([0.299, 0.587, 0.114], dtype=torch.float64)
    grey = (torch.from_numpy(pixels.astype(np.float64)) / 255 @ weights)[None, None]
    at = torch.arange(-2, 3, dtype=torch.float64)
    gauss = torch.exp(-(at[:, None] ** 2 + at[None] ** 2) / 2)
    smooth = functional.conv2d(functional.pad(grey, (2,) * 4, mode="reflect"), (gauss / gauss.sum())[None, None])  # fmt: skip
    sobel = torch.tensor([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]], dtype=torch.float64)
    padded = functional.pad(smooth, (1,) * 4, mode="replicate")
    gx, gy = (functional.conv2d(padded, k[None, None])[0, 0] for k in (sobel, sobel.T))
    length = torch.sqrt(gx**2 + gy**2 + 1e-6)
    turn = torch.round(torch.rad2deg(torch.atan2(gy, gx)) / 45).long() % 8
    around = functional.pad(length, (1,) * 4)
    steps = [(0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1), (-1, 0), (-1, 1)]
    height, width = length.shape
    shifted = torch.stack([around[1 + dy : 1 + dy + height, 1 + dx : 1 + dx + width] for dy, dx in steps])  # fmt: skip
    ahead = shifted.gather(0, turn[None])[0]
    behind = shifted.gather(0, ((turn + 4) % 8)[None])[0]
    thin = (length > ahead) & (length > behind)
    weak, strong = thin & (length > low), thin & (length > high)
    while True:
        grown = functional.max_pool2d(strong.double()[None], 3, 1, 1)[0].bool() & weak
        if bool((grown == strong).all()):
            return strong, length
        strong = grown


@pytest.mark.parametrize(("low", "high"), [(0.4, 0.8), (0.1, 0.2), (0.05, 0.9)])
def test_canny_is_the_published_algorithm(low: float, high: float) -> None:
    image = scene(160, 120)
    found = one(canny(context(), image, low=low, high=high)).pixels
    wanted, _ = plain_canny(image.pixels, low, high)
    assert set(np.unique(found)) == {0, 255}
    # Ties between equal neighbours fall by the last bit of a float.
    assert ((found[..., 0] == 255) != wanted.numpy()).mean() < 0.001
    assert 0.005 < wanted.double().mean() < 0.3


def test_a_square_has_thin_closed_edges() -> None:
    pixels = np.zeros((60, 60, 3), np.uint8)
    pixels[20:40, 20:40] = 255
    found = one(canny(context(), Image(pixels))).pixels[..., 0] == 255
    assert 60 <= found.sum() <= 100
    assert found[15:25, 30].sum() == 1
    assert found[30, 15:25].sum() == 1
    assert not found[:15].any()


def test_weak_edges_count_along_a_long_way_to_a_strong_one() -> None:
    weak = np.zeros((41, 41), bool)
    weak[::4] = True
    weak[1:, 0][np.arange(40) // 4 % 2 == 1] = True
    weak[1:, -1][np.arange(40) // 4 % 2 == 0] = True
    weak[2, 20] = True  # beside nothing
    strong = np.zeros_like(weak)
    strong[0, 0] = True
    found = _joined(weak, strong)
    weak[2, 20] = False
    assert np.array_equal(found, weak)
    assert not _joined(weak, np.zeros_like(weak)).any()
    assert not _joined(np.zeros_like(weak), np.zeros_like(weak)).any()


def test_thresholds_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(InvalidParam, match=r"low 0\.9 is above high 0\.8") as caught:
        canny(context(), scene(), low=0.9)
    assert caught.value.param == "low"


def step() -> Image:
    """Black, then white from column 20 on."""
    pixels = np.zeros((12, 40, 3), np.uint8)
    pixels[:, 20:] = 255
    return Image(pixels)


def test_soft_edges_of_a_step() -> None:
    hard = one(edges(context(), step(), smooth=0.0, strength=1.0)).pixels[..., 0]
    assert (hard[:, 19:21] == 255).all()
    assert not hard[:, :19].any()
    inverted = one(edges(context(), step(), smooth=0.0, strength=1.0, invert=True)).pixels[..., 0]
    assert np.array_equal(inverted, 255 - hard)
    soft = one(edges(context(), step(), smooth=2.0, strength=1.0)).pixels[..., 0]
    # Across two pixels a smoothed step rises by two weights of its Gaussian.
    weights = np.exp(-(np.arange(-6, 7) ** 2) / 8)
    assert soft[6].max() == round(255 * (weights[6] + weights[7]) / weights.sum())
    assert (np.diff(soft[6, :20].astype(int)) >= 0).all()


def test_scribble_is_thick_and_hard() -> None:
    thin = one(scribble(context(), step(), smooth=0.0, threshold=0.5, thickness=0)).pixels[..., 0]
    thick = one(scribble(context(), step(), smooth=0.0, threshold=0.5, thickness=3)).pixels[..., 0]
    assert (thin[5] == 255).sum() == 2
    assert (thick[5] == 255).sum() == 8
    assert set(np.unique(thick)) == {0, 255}


def test_tile_keeps_the_coarse_and_loses_the_fine() -> None:
    generator = np.random.default_rng(0)
    noisy = Image((scene(96, 64).pixels // 2 + generator.integers(0, 100, (64, 96, 3))).astype(np.uint8))  # fmt: skip
    found = one(tile(context(), noisy, factor=4.0)).pixels
    assert found.shape == noisy.pixels.shape
    assert furthest(found.mean((0, 1)), noisy.pixels.mean((0, 1))) < 2
    roughness = [np.abs(np.diff(p.astype(int), axis=1)).mean() for p in (noisy.pixels, found)]
    assert roughness[1] < roughness[0] / 4
    smoother = one(tile(context(), noisy, factor=4.0, smooth=3.0)).pixels
    assert np.abs(np.diff(smoother.astype(int), axis=1)).mean() < roughness[1]


def test_recolour_leaves_brightness() -> None:
    red = Image(np.full((2, 2, 3), (255, 0, 0), np.uint8))
    assert (one(recolour(context(), red)).pixels == round(53.2408 * 2.55)).all()
    assert (one(recolour(context(), red, source="intensity")).pixels == 255).all()
    darker = one(recolour(context(), red, gamma=2.0)).pixels
    assert (darker == round(0.532408**2 * 255)).all()
