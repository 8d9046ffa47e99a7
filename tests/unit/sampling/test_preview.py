from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from inline_core.sampling.colour_store import ColourStore
from inline_core.sampling.preview import LatentColours, spread


def drawn_linearly() -> tuple[torch.Tensor, torch.Tensor]:
    """Latents (1, 16, 12, 10), and pixels eight times as large that depend on them linearly."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn((16, 3), generator=generator) * 0.05
    latents = torch.randn((1, 16, 12, 10), generator=generator)
    pixels = torch.einsum("nchw,cd->ndhw", latents, weights) + 0.1
    return latents, pixels.repeat_interleave(8, 2).repeat_interleave(8, 3)


def test_learns_a_linear_map_and_draws_it() -> None:
    latents, pixels = drawn_linearly()
    colours = LatentColours(16)
    assert not colours.learnt
    colours.learn(latents, pixels, weight=100)
    drawn = colours.colours(latents[0]).float() / 127.5 - 1
    expected = pixels[0, :, ::8, ::8].permute(1, 2, 0).clamp(-1, 1)
    assert torch.allclose(drawn, expected, atol=0.02)
    picture = Image.open(io.BytesIO(colours.encode(latents[0])))
    assert (picture.format, picture.size) == ("JPEG", (80, 96))


@pytest.mark.parametrize(
    ("side", "shown"), [((16, 128, 128), (512, 512)), ((16, 600, 300), (256, 512))]
)
def test_draws_something_before_it_has_learnt(
    side: tuple[int, int, int], shown: tuple[int, int]
) -> None:
    latents = torch.randn(side, generator=torch.Generator().manual_seed(0))
    assert LatentColours(16).colours(latents).float().std() > 10
    assert Image.open(io.BytesIO(LatentColours(16).encode(latents))).size == shown


def test_a_video_moves() -> None:
    latents, pixels = drawn_linearly()
    colours = LatentColours(16)
    colours.learn(latents, pixels, weight=100)
    turned = [latents[0].roll(frame, dims=2) * (1 + frame / 10) for frame in range(40)]
    video = torch.stack(turned, 1)  # (c, frames, h, w)
    data = colours.encode(video)
    with Image.open(io.BytesIO(data)) as picture:
        assert (picture.format, picture.size) == ("WEBP", (80, 96))
        assert picture.n_frames == 16  # type: ignore[attr-defined]
        assert picture.info["loop"] == 0
        contrast = []
        for frame in (0, 15):
            picture.seek(frame)
            contrast.append(np.asarray(picture.convert("L")).std())
    assert contrast[1] > 2 * contrast[0]
    still = colours.encode(video[:, :1])
    assert Image.open(io.BytesIO(still)).format == "JPEG"


def test_a_large_video_stays_small() -> None:
    video = torch.randn((16, 21, 90, 160), generator=torch.Generator().manual_seed(0))
    data = LatentColours(16).encode(video)
    with Image.open(io.BytesIO(data)) as picture:
        assert max(picture.size) <= 256
    assert len(data) < 1_000_000


def test_frames_are_spread_evenly() -> None:
    assert spread(3, 16) == [0, 1, 2]
    assert spread(33, 4) == [0, 8, 16, 24]


# ---- over restarts -----------------------------------------------------------------------------


def taught(store: ColourStore, stamp: str, times: int = 1) -> LatentColours:
    latents, pixels = drawn_linearly()
    colours = store.of(stamp, 16)
    for _ in range(times):
        colours.learn(latents, pixels)
        store.keep(stamp)
    return colours


def test_colours_outlive_the_server(tmp_path: Path) -> None:
    latents, _ = drawn_linearly()
    first = taught(ColourStore(tmp_path / "previews"), "stamp-1", times=3)
    (file,) = (tmp_path / "previews").iterdir()
    assert file.stat().st_size < 10_000
    again = ColourStore(tmp_path / "previews")
    second = again.of("stamp-1", 16)
    # Written after the first and the second picture; the third adds little.
    assert (first.pictures, second.pictures) == (3, 2)
    assert second is again.of("stamp-1", 16)
    difference = first.colours(latents[0]).int() - second.colours(latents[0]).int()
    assert int(difference.abs().max()) <= 1
    assert not again.of("stamp-2", 16).learnt, "another VAE"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"format": 1, "channels": 16, "pictures": 1, "gram": [[1]], "moment": [[1]]}',
        '{"format": 1, "channels": 16, "pictures": 1, "gram": "x", "moment": 3}',
    ],
)
def test_a_broken_file_counts_as_none(tmp_path: Path, text: str) -> None:
    taught(ColourStore(tmp_path), "stamp")
    (file,) = tmp_path.iterdir()
    file.write_text(text)
    assert not ColourStore(tmp_path).of("stamp", 16).learnt
    taught(ColourStore(tmp_path), "stamp")
    assert ColourStore(tmp_path).of("stamp", 16).learnt


def test_a_file_with_nan_or_of_other_channels_counts_as_none(tmp_path: Path) -> None:
    taught(ColourStore(tmp_path), "stamp")
    (file,) = tmp_path.iterdir()
    assert not ColourStore(tmp_path).of("stamp", 4).learnt
    document = json.loads(file.read_text())
    document["gram"][0][0] = float("nan")
    file.write_text(json.dumps(document))
    assert not ColourStore(tmp_path).of("stamp", 16).learnt


def test_a_folder_that_cannot_be_written_costs_only_the_file(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    assert taught(ColourStore(blocked / "previews"), "stamp").learnt
    assert taught(ColourStore(None), "stamp").learnt
