"""Values as bytes: what comes out is what went in, and nothing else ever does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
import torch

from inline_core.devices.split import Split
from inline_core.errors import Internal
from inline_core.loading.component import ComponentRef, Role
from inline_core.sampling.backends.parallel.codec import pack, unpack

REFERENCE = ComponentRef(Role.DIFFUSION_MODEL, "wan", "", "a", Path("/a"), "s", others=())


def there_and_back(value: Any) -> Any:
    return unpack(*pack(value))


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        1.5,
        "é",
        b"\0",
        (1, (2, [3])),
        {"a": 1, 2: (None,)},
        {(1, "b"): frozenset({1})},
        Path("/x y"),
        Role.VAE,
        Split("xdit", ulysses=2),
        REFERENCE,
        [],
        {},
    ],
)
def test_plain_values_and_ours(value: Any) -> None:
    found = there_and_back(value)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_tensors(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    value = torch.ones(shape).to(dtype)
    found = there_and_back({"x": [value, value.transpose(0, -1) if shape else value]})["x"]
    assert torch.equal(found[0], value)
    assert found[0].dtype == dtype
    assert found[1].shape == (value.transpose(0, -1) if shape else value).shape


def test_arrays_and_numbers_of_numpy() -> None:
    value = np.arange(6, dtype=np.int16).reshape(2, 3).T
    assert np.array_equal(there_and_back(value), value)
    assert there_and_back(np.float64(0.5)) == 0.5


@pytest.mark.parametrize("value", [print, object(), Callable, {"a": lambda: 1}])
def test_what_cannot_be_sent_is_named(value: Any) -> None:
    with pytest.raises(Internal, match="cannot be sent to another process"):
        pack(value)


@pytest.mark.parametrize(
    "message",
    [
        [6, "os:PathLike", []],
        [6, "inline_core.errors:InlineError", []],
        [5, "inline_core.loading.component:ComponentRef", "x"],
        [6, "inline_core.loading.component:Nothing", []],
        [9, 0, "x", []],
    ],
)
def test_only_plain_data_of_this_package_is_made(message: list[Any]) -> None:
    with pytest.raises(Internal):
        unpack(msgpack.packb(message), [])
