from __future__ import annotations

import io

import torch
from PIL import Image

from inline_core.sampling.preview import LatentColours


def test_learns_a_linear_map_and_draws_it() -> None:
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn((16, 3), generator=generator) * 0.05
    latents = torch.randn((1, 16, 12, 10), generator=generator)
    pixels = torch.einsum("nchw,cd->ndhw", latents, weights) + 0.1
    colours = LatentColours(16)
    assert not colours.learnt
    colours.learn(latents, pixels.repeat_interleave(8, 2).repeat_interleave(8, 3), weight=100)
    drawn = colours.colours(latents[0]).float() / 127.5 - 1
    assert torch.allclose(drawn, pixels[0].permute(1, 2, 0).clamp(-1, 1), atol=0.02)
    picture = Image.open(io.BytesIO(colours.jpeg(latents[0])))
    assert (picture.format, picture.size) == ("JPEG", (80, 96))


def test_draws_something_before_it_has_learnt() -> None:
    latents = torch.randn((16, 128, 128), generator=torch.Generator().manual_seed(0))
    drawn = LatentColours(16).colours(latents)
    assert drawn.float().std() > 10
    assert Image.open(io.BytesIO(LatentColours(16).jpeg(latents))).size == (512, 512)
