"""Blur, sharpening and turning."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image as PillowImage
from PIL import ImageOps
from torch.nn import functional

from inline_core.nodes.image_filter import blur, flip, recompress, rotate, sharpen
from tests.unit.nodes.pictures import context, cutout, furthest, one, scene


def comfy_kernel(radius: int, sigma: float) -> torch.Tensor:
    """The kernel of ComfyUI's nodes: a Gaussian over -1..1, so its sigma counts in radii."""
    at = torch.linspace(-1, 1, 2 * radius + 1, dtype=torch.float64)
    kernel = torch.exp(-(at[:, None] ** 2 + at[None] ** 2) / (2 * sigma**2))
    return kernel / kernel.sum()


def under(kernel: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    padded = functional.pad(values, (len(kernel) // 2,) * 4, mode="reflect")
    return functional.conv2d(padded, kernel[None, None].expand(3, 1, -1, -1), groups=3)


@pytest.mark.parametrize(("radius", "sigma"), [(1, 1.0), (3, 0.5), (12, 0.4)])
def test_what_comfyui_blurs_and_sharpens_can_be_said(radius: int, sigma: float) -> None:
    image, ours = scene(), {"radius": radius, "sigma": sigma * radius}
    values = torch.from_numpy(image.pixels.astype(np.float64)).permute(2, 0, 1)[None]
    smooth = under(comfy_kernel(radius, sigma), values)
    wanted = smooth[0].permute(1, 2, 0).numpy()
    assert furthest(one(blur(context(), image, **ours)).pixels, wanted) <= 0.51
    alpha = 0.15
    kernel = comfy_kernel(radius, sigma) * -(alpha * 10)
    kernel[radius, radius] += 1 - kernel.sum()
    sharp = under(kernel, values)[0].permute(1, 2, 0).clamp(0, 255).numpy()
    found = one(sharpen(context(), image, amount=alpha * 10, **ours)).pixels
    assert furthest(found, sharp) <= 0.51
    assert furthest(found, image.pixels) > 20


def test_blurring_a_cutout_keeps_its_colour() -> None:
    found = one(blur(context(), cutout(), radius=9, sigma=3.0)).pixels
    seen = found[..., 3] > 8
    assert found[seen][:, 1].max() <= 1
    assert len(np.unique(found[..., 3])) > 20
    sharp = one(sharpen(context(), cutout())).pixels
    assert np.array_equal(sharp[..., 3], cutout().pixels[..., 3])


def test_turning_is_pillows() -> None:
    image = scene()
    picture = PillowImage.fromarray(image.pixels)
    assert np.array_equal(one(flip(context(), image)).pixels, np.asarray(ImageOps.mirror(picture)))
    assert np.array_equal(one(flip(context(), image, axis="vertical")).pixels, np.asarray(ImageOps.flip(picture)))  # fmt: skip
    for angle in ("90", "180", "270"):
        turned = picture.rotate(-int(angle), expand=True)
        assert np.array_equal(one(rotate(context(), image, angle=angle)).pixels, np.asarray(turned))


def test_a_picture_is_compressed_like_a_video() -> None:
    image = scene()
    coarse, fine = (one(recompress(context(), image, crf=crf)).pixels for crf in (45, 10))
    even = image.pixels[: image.height // 2 * 2, : image.width // 2 * 2]
    assert furthest(coarse, even) > furthest(fine, even) > 0
    assert np.abs(fine.astype(int) - even).mean() < 5
    assert np.array_equal(one(recompress(context(), image, crf=0)).pixels, image.pixels)
