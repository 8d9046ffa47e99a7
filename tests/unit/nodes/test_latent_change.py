"""Latents made of latents: sizes, values, and what does not go together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

from inline_core.errors import InvalidParam
from inline_core.nodes import latent_change as change
from inline_core.sampling import latent_tensors
from inline_core.sampling.values import Latent


class Render:
    """Runs what is done to tensors right here."""

    def on_latents(self, name: str, _: Any, *values: Any) -> Any:
        return getattr(latent_tensors, name)(*values)


class Context:
    render = Render()


CTX: Any = Context()


def picture(batch: int = 2, width: int = 64, height: int = 32) -> Latent:
    shape = (batch, 16, height // 8, width // 8)
    samples = torch.arange(float(torch.tensor(shape).prod())).reshape(shape)
    return Latent(width, height, batch, samples=samples, space="flux")


def video(frames: int = 9, batch: int = 1) -> Latent:
    samples = torch.randn((batch, 16, (frames - 1) // 4 + 1, 4, 8))
    return Latent(64, 32, batch, samples=samples, space="wan21", frames=frames, fps=16.0)


def spaces() -> set[str]:
    from inline_core.families.registry import FAMILIES

    return {family.space.name for family in FAMILIES.values()}


def test_the_spaces_of_these_tests_are_real() -> None:
    assert {picture().space, video().space} <= spaces()


@pytest.mark.parametrize("method", ["nearest-exact", "bilinear", "bicubic", "area"])
def test_resizing_is_that_of_torch(method: str) -> None:
    latent = picture()
    made = change.resize(CTX, latent, by="size", width=96, height=64, method=method)
    wanted = functional.interpolate(latent.samples, size=(8, 12), mode=method)
    assert (made.width, made.height, made.batch) == (96, 64, 2)
    assert torch.equal(made.samples, wanted)
    half = change.resize(CTX, latent, by="factor", factor=0.5, method=method)
    assert (half.width, half.height) == (32, 16)


def test_frames_are_resized_one_by_one() -> None:
    latent = video()
    made = change.resize(CTX, latent, by="factor", factor=2.0, method="bilinear")
    assert made.samples.shape == (1, 16, 3, 8, 16)
    one = functional.interpolate(latent.samples[:, :, 1], size=(8, 16), mode="bilinear")
    assert torch.equal(made.samples[:, :, 1], one)
    empty = change.resize(CTX, Latent(64, 64), by="factor", factor=1.5)
    assert (empty.width, empty.height, empty.samples) == (96, 96, None)


def test_batches() -> None:
    latent = picture(3)
    one = change.from_batch(CTX, latent, index=1, length=5)
    assert one.batch == 2
    assert torch.equal(one.samples, latent.samples[1:])
    last = change.from_batch(CTX, latent, index=9, length=1)
    assert torch.equal(last.samples, latent.samples[2:])
    many = change.repeat(CTX, latent, amount=2)
    assert many.batch == 6
    assert torch.equal(many.samples[3:], latent.samples)
    both = change.join(CTX, latent, one)
    assert both.batch == 5
    assert torch.equal(both.samples[3:], one.samples)
    assert change.repeat(CTX, Latent(64, 64, 2), amount=3).batch == 6
    assert change.join(CTX, Latent(64, 64, 2), Latent(64, 64)).batch == 3
    empty = change.empty_like(latent)
    assert (empty.samples, empty.space, empty.width, empty.batch) == (None, None, 64, 3)


def test_flips_and_cuts() -> None:
    latent = picture(1)
    assert torch.equal(change.flip(CTX, latent, axis="vertical").samples, latent.samples.flip(-2))
    assert torch.equal(change.flip(CTX, latent, axis="horizontal").samples, latent.samples.flip(-1))
    part = change.cut(CTX, latent, axis="x", index=-3, amount=2)
    assert (part.width, part.height) == (16, 32)
    assert torch.equal(part.samples, latent.samples[..., 5:7])
    rows = change.cut(CTX, latent, axis="y", index=1, amount=99)
    assert rows.height == 24
    assert torch.equal(rows.samples, latent.samples[..., 1:, :])


def test_frames_are_trimmed_cut_and_replaced() -> None:
    latent = video(17)
    shorter = change.trim_video(CTX, latent, amount=2)
    assert shorter.frames == 9
    assert torch.equal(shorter.samples, latent.samples[:, :, 2:])
    assert change.trim_video(CTX, latent, amount=0) is latent
    middle = change.cut(CTX, latent, axis="t", index=1, amount=2)
    assert middle.frames == 5
    assert torch.equal(middle.samples, latent.samples[:, :, 1:3])
    new = video(5)
    made = change.replace_frames(CTX, latent, new, index=-2)
    assert torch.equal(made.samples[:, :, 3:], new.samples)
    assert torch.equal(made.samples[:, :, :3], latent.samples[:, :, :3])
    assert change.replace_frames(CTX, latent, None) is latent


@pytest.mark.parametrize(
    ("side", "size"),
    [("right", (128, 32)), ("left", (128, 32)), ("below", (64, 64)), ("above", (64, 64))],
)
def test_pictures_are_put_together(side: str, size: tuple[int, int]) -> None:
    one, two = picture(1), picture(1)
    two.samples.mul_(-1)
    made = change.concat(CTX, one, two, side=side)
    assert (made.width, made.height) == size
    first = made.samples[:, :, :4, :8]
    assert torch.equal(first, one.samples if side in {"right", "below"} else two.samples)


def test_videos_are_put_together_and_cut_to_batches() -> None:
    one, two = video(9), video(5)
    made = change.concat(CTX, one, two, side="after")
    assert made.frames == 17
    assert torch.equal(made.samples[:, :, 3:], two.samples)
    assert torch.equal(change.concat(CTX, one, two, side="before").samples[:, :, :2], two.samples)
    slices = change.to_batch(CTX, made, axis="t", size=2)
    assert (slices.batch, slices.frames) == (2, 5)
    assert torch.equal(slices.samples[1], made.samples[0, :, 2:4])
    columns = change.to_batch(CTX, picture(1), axis="x", size=3)
    assert (columns.batch, columns.width) == (2, 24)


def test_what_does_not_go_together_is_refused() -> None:
    sound = Latent(1, 1, samples=torch.zeros(1, 64, 5), space="ace-step", frames=5, fps=25.0)
    refused: tuple[tuple[Callable[[], object], str], ...] = (
        (lambda: change.resize(CTX, sound), "no width and height"),
        (lambda: change.trim_video(CTX, picture(), amount=1), "no frames"),
        (lambda: change.trim_video(CTX, video(), amount=9), "no latent frame is left of 3"),
        (lambda: change.join(CTX, picture(), video()), "make no batch"),
        (lambda: change.join(CTX, picture(), Latent(64, 32, space="flux")), "an empty latent"),
        (lambda: change.concat(CTX, picture(1), picture(1, height=64)), "more than their width"),
        (lambda: change.concat(CTX, Latent(64, 64), Latent(64, 64)), "an empty latent"),
        (lambda: change.to_batch(CTX, picture(), axis="x", size=9), "larger than the latent"),
        (lambda: change.to_batch(CTX, Latent(64, 64)), "an empty latent"),
        (lambda: change.replace_frames(CTX, video(5), video(9)), "do not fit into 2"),
        (lambda: change.replace_frames(CTX, Latent(64, 32), video()), "an empty latent"),
    )
    for call, said in refused:
        with pytest.raises(InvalidParam, match=said):
            call()


def test_the_frame_rate_of_a_latent() -> None:
    assert change.frame_rate(video(), fps=30.0).fps == 30.0
