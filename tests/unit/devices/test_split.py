"""The words of a split: its key, the setting, and what a rank holds."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from inline_core.devices.budget import Demand, Weights, Workload
from inline_core.devices.split import (
    Mode,
    Split,
    SplitTraits,
    split_demand,
    split_weights,
)
from inline_core.devices.split_setting import AUTO, Wanted, wanted_split
from inline_core.errors import InvalidRequest

SPLITS = [
    (Split("xdit"), "xdit:", "xdit on 1 rank"),
    (Split("xdit", ulysses=2), "xdit:ulysses=2", "xdit, Ulysses 2 on 2 ranks"),
    (
        Split("xdit", ulysses=2, ring=2),
        "xdit:ulysses=2,ring=2",
        "xdit, Ulysses 2 x ring 2 on 4 ranks",
    ),
    (
        Split("xdit", ulysses=2, pipefusion=2),
        "xdit:ulysses=2,pipefusion=2,warmup=1,patches=0",
        "xdit, Ulysses 2 x PipeFusion 2 on 4 ranks",
    ),
    (
        Split("xdit", pipefusion=4, warmup=3, patches=8),
        "xdit:pipefusion=4,warmup=3,patches=8",
        "xdit, PipeFusion 4 on 4 ranks",
    ),
    (
        Split("diffusers", ulysses=3, cfg=2),
        "diffusers:ulysses=3,cfg=2",
        "diffusers, Ulysses 3 x CFG 2 on 6 ranks",
    ),
]


@pytest.mark.parametrize(("split", "key", "words"), SPLITS)
def test_a_split_is_its_key_and_has_words(split: Split, key: str, words: str) -> None:
    assert split.key == key
    assert Split.of_key(key) == split
    assert split.in_words == words


@pytest.mark.parametrize("degrees", list(product((1, 2), repeat=4)))
def test_every_key_is_read_back(degrees: tuple[int, int, int, int]) -> None:
    ulysses, ring, pipefusion, cfg = degrees
    split = Split("xdit", ulysses=ulysses, ring=ring, pipefusion=pipefusion, cfg=cfg)
    assert Split.of_key(split.key) == split
    assert split.world == ulysses * ring * pipefusion * cfg
    assert split.sequence == ulysses * ring
    assert split.exact is (pipefusion == 1)


@pytest.mark.parametrize(
    "text", ["", "ulysses=2", "vllm:ulysses=2", "xdit:heads=2", "xdit:ulysses=two", "xdit:ulysses"]
)
def test_other_text_is_no_key(text: str) -> None:
    with pytest.raises(ValueError, match=r"key of a split|invalid literal"):
        Split.of_key(text)


@pytest.mark.parametrize(
    ("split", "pieces"),
    [(Split("xdit", pipefusion=3), 3), (Split("xdit", pipefusion=3, patches=5), 5)],
)
def test_there_are_as_many_pieces_as_stages_unless_said(split: Split, pieces: int) -> None:
    assert split.pieces == pieces


def test_a_family_that_declares_nothing_has_no_backend() -> None:
    assert SplitTraits().backends == ()


@pytest.mark.parametrize(
    ("traits", "backends"),
    [
        (SplitTraits(frozenset({"ring"}), frozenset({"ring"})), ("xdit", "diffusers")),
        (
            SplitTraits(frozenset({"ring"}), frozenset({"ring"}), prefers="diffusers"),
            ("diffusers", "xdit"),
        ),
        (SplitTraits(frozenset({"ring"}), prefers="diffusers"), ("xdit",)),
        (SplitTraits(diffusers=frozenset({"ring"})), ("diffusers",)),
    ],
)
def test_the_preferred_backend_comes_first(traits: SplitTraits, backends: tuple[str, ...]) -> None:
    assert traits.backends == backends


# The setting.


@pytest.mark.parametrize(
    ("setting", "multi_gpu", "wanted"),
    [
        ("", False, None),
        ("", True, AUTO),
        ("  ", True, AUTO),
        ("off", False, None),
        ("off", True, None),
        ("OFF", True, None),
        ("auto", False, AUTO),
        ("Auto ", False, AUTO),
    ],
)
def test_off_and_auto(setting: str, multi_gpu: bool, wanted: Wanted | None) -> None:
    assert wanted_split(setting, multi_gpu=multi_gpu) == wanted


@pytest.mark.parametrize(
    ("setting", "degrees", "more"),
    [
        ("ulysses=2", {"ulysses": 2}, {}),
        ("ring=4", {"ring": 4}, {}),
        ("ULYSSES=2, Ring = 3,", {"ulysses": 2, "ring": 3}, {}),
        ("cfg=2,backend=diffusers", {"cfg": 2}, {"backend": "diffusers"}),
        ("pipefusion=2,ulysses=2", {"pipefusion": 2, "ulysses": 2}, {}),
        ("pipefusion=2,warmup=3", {"pipefusion": 2}, {"warmup": 3}),
        (
            "patches=4,pipefusion=2,backend=xdit",
            {"pipefusion": 2},
            {"patches": 4, "backend": "xdit"},
        ),
        ("pipefusion=2,patches=0", {"pipefusion": 2}, {"patches": 0}),
        ("ulysses=1", {"ulysses": 1}, {}),
    ],
)
@pytest.mark.parametrize("multi_gpu", [False, True])
def test_degrees_are_read(
    setting: str, multi_gpu: bool, degrees: dict[Mode, int], more: dict[str, Any]
) -> None:
    wanted = wanted_split(setting, multi_gpu=multi_gpu)
    assert wanted == Wanted(auto=False, degrees=degrees, **more)
    # What is told of the setting can be given as the setting.
    assert wanted_split(wanted.in_words, multi_gpu=False) == wanted


def test_degrees_become_a_split_of_a_backend() -> None:
    wanted = wanted_split("pipefusion=2,ulysses=2,warmup=3,patches=4", multi_gpu=False)
    assert wanted is not None
    assert wanted.split_with("xdit") == Split("xdit", 2, 1, 2, 1, 3, 4)
    assert wanted.world == 4


@pytest.mark.parametrize(
    ("setting", "problems"),
    [
        ("two", ["'two' is none of ulysses"]),
        ("on", ["'on' is none of"]),
        ("auto,off", ["'auto' is none of", "'off' is none of"]),
        ("tensor=2", ["'tensor=2' is none of"]),
        ("ulysses", ["ulysses=: not a whole number"]),
        ("ulysses=two", ["ulysses=two: not a whole number"]),
        ("ulysses=2.0", ["not a whole number"]),
        ("ulysses=²", ["not a whole number"]),
        ("ulysses=9999999999", ["not a whole number"]),
        ("ulysses=0", ["ulysses=0: must be 1 or more"]),
        ("ring=-2", ["ring=-2: must be 1 or more"]),
        ("ring=2,ring=2", ["ring is given twice"]),
        ("backend=vllm,ring=2", ["backend=vllm: there are xdit and diffusers"]),
        ("backend=xdit", ["no degree is named"]),
        (",", ["no degree is named"]),
        ("ring=2,warmup=1", ["warmup without pipefusion"]),
        ("ring=2,patches=2,warmup=2", ["warmup and patches without pipefusion"]),
        ("pipefusion=1,patches=2", ["patches without pipefusion"]),
        ("pipefusion=2,warmup=0", ["a warm-up of 0 steps", "KV cache would be empty"]),
        ("pipefusion=2,patches=-1", ["patches=-1: must be 0 or more"]),
        (
            "ulysses=two,foo,ring=0,ring=2,warmup=0,backend=vllm",
            ["ulysses=two", "'foo'", "ring is given twice", "ring=0", "warm-up of 0", "vllm"],
        ),
    ],
)
def test_everything_wrong_is_told_at_once(setting: str, problems: list[str]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        wanted_split(setting, multi_gpu=True)
    message = caught.value.message
    assert message.startswith("INLINE_PARALLEL=")
    assert "auto, off, or degrees such as ulysses=2,ring=2" in message
    for problem in problems:
        assert problem in message


def test_no_bad_setting_makes_a_long_line() -> None:
    with pytest.raises(InvalidRequest) as caught:
        wanted_split("x" * 5000, multi_gpu=False)
    assert len(caught.value.message) < 500


# Memory.

WEIGHTS = Weights(
    values=1000,
    linear_values=900,
    linear_rows=91,
    largest_block=60,
    outside=100,
    file_bytes=2000,
    packed_bytes=501,
)


@pytest.mark.parametrize(
    "split",
    [
        Split("xdit", ulysses=4),
        Split("xdit", ring=2, cfg=2),
        Split("diffusers", ulysses=2, ring=2),
    ],
)
def test_every_rank_has_the_whole_model_but_with_pipefusion(split: Split) -> None:
    assert split_weights(WEIGHTS, split, layers=10) == WEIGHTS


@pytest.mark.parametrize(
    ("stages", "layers", "values"),
    [
        (2, 0, 550),  # all outside of the blocks, and half of the others
        (4, 0, 325),
        (7, 0, 229),  # 900 / 7, rounded up
        (2, 15, 580),  # eight of the largest blocks
        (2, 40, 1000),  # never more than there is
        (4, 15, 340),
    ],
)
def test_a_stage_has_its_share_of_the_blocks(stages: int, layers: int, values: int) -> None:
    held = split_weights(WEIGHTS, Split("xdit", pipefusion=stages, ulysses=2), layers)
    assert held.values == values
    assert (held.outside, held.largest_block) == (100, 60)
    assert held.linear_values == -(-900 * (values - 100) // 900)
    assert held.linear_rows == -(-91 * (values - 100) // 900)
    assert held.packed_bytes == -(-501 * values // 1000)
    assert held.file_bytes == 2 * values
    assert held.file_dtype == WEIGHTS.file_dtype


def test_stages_of_a_model_without_blocks_hold_all_of_it() -> None:
    solid = Weights(values=10, outside=10)
    assert split_weights(solid, Split("xdit", pipefusion=2)).values == 10
    assert split_weights(Weights(0), Split("xdit", pipefusion=2)).values == 0


WORK = Workload(encode_values=7, denoise_values=1600, decode_values=9, tiled_decode_values=5)


@pytest.mark.parametrize(
    ("split", "layers", "values"),
    [
        (Split("xdit"), 0, 1600),
        (Split("xdit", cfg=2), 0, 1600),
        (Split("xdit", ulysses=2), 0, 1600),
        (Split("xdit", ulysses=2, ring=2), 0, 800),
        (Split("diffusers", ring=3), 0, 1067),
        (Split("xdit", ulysses=8), 0, 400),
        (Split("xdit", pipefusion=2), 0, 1600 + 3200),
        (Split("xdit", pipefusion=2, patches=8), 0, 400 + 3200),
        (Split("xdit", pipefusion=2, patches=8), 32, 400 + 3200),
        (Split("xdit", pipefusion=4, patches=8), 32, 400 + 1600),
        (Split("xdit", pipefusion=2, ulysses=4, patches=8), 32, 200 + 800),
    ],
)
def test_work_of_a_rank(split: Split, layers: int, values: int) -> None:
    demand = Demand(WEIGHTS, text_encoder=WEIGHTS, vae=WEIGHTS, work=WORK)
    held = split_demand(demand, split, layers)
    assert held.work.denoise_values == values
    # These are not divided.
    assert (held.work.encode_values, held.work.decode_values) == (7, 9)
    assert held.work.tiled_decode_values == 5
    assert (held.text_encoder, held.vae) == (WEIGHTS, WEIGHTS)
    assert held.model == split_weights(WEIGHTS, split, layers)
