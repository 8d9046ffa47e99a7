"""Batches are joined, repeated, reversed and picked from."""

from __future__ import annotations

import numpy as np
import pytest

from inline_core.errors import InvalidParam
from inline_core.media.values import ImageBatch
from inline_core.nodes.image import from_batch
from inline_core.nodes.image_batch import join, repeat, reverse
from tests.unit.nodes.pictures import context, one, scene, several


def test_join_wants_one_size_or_makes_it() -> None:
    first, second = scene(), scene(60, 90)
    joined = several(join(context(), [first, scene(shade=200)]))
    assert joined[0] is first
    with pytest.raises(InvalidParam, match="picture 2 is 60x90, the first is 90x60") as caught:
        join(context(), [first, second])
    assert caught.value.port == "images"
    for fit in ("stretch", "crop", "pad", "inside"):
        resized = several(join(context(), [first, second], resize=True, fit=fit))
        assert [(p.width, p.height) for p in resized] == [(90, 60)] * 2
        assert resized[1].provenance == second.provenance
    bars = several(join(context(), [first, second], resize=True, fit="pad"))[1].pixels
    assert not bars[:, :20].any()
    assert one(join(context(), [first])) is first


def test_repeat_and_reverse() -> None:
    one_, two = scene(), scene(shade=200)
    assert several(repeat(ImageBatch((one_, two)), amount=2)) == (one_, two, one_, two)
    assert several(reverse(ImageBatch((one_, two)))) == (two, one_)
    assert one(reverse(one_)) is one_
    with pytest.raises(InvalidParam, match="8192 pictures are too many") as caught:
        repeat(ImageBatch((one_, two)), amount=4096)
    assert caught.value.param == "amount"


def test_picking_counts_from_both_ends() -> None:
    pictures = tuple(scene(shade=shade) for shade in (0, 50, 100))
    batch = ImageBatch(pictures)
    assert one(from_batch(batch, index=-1)) is pictures[2]
    assert several(from_batch(batch, index=-3, length=2)) == pictures[:2]
    for index, length in ((3, 1), (-4, 1), (-1, 2)):
        with pytest.raises(InvalidParam, match="has 3 pictures"):
            from_batch(batch, index=index, length=length)
    assert np.array_equal(one(from_batch(batch, index=1)).pixels, pictures[1].pixels)


def test_picking_what_there_is() -> None:
    pictures = tuple(scene(6, 4, shade) for shade in range(3))
    batch = ImageBatch(pictures)
    for index, length, wanted in [
        (1, 9, pictures[1:]),
        (-2, 9, pictures[1:]),
        (0, 2, pictures[:2]),
        (-9, 2, pictures[:2]),
    ]:
        assert several(from_batch(batch, index=index, length=length, clip=True)) == wanted
    assert one(from_batch(batch, index=9, length=2, clip=True)) is pictures[2]
    assert one(from_batch(pictures[0], index=5, length=5, clip=True)) is pictures[0]
