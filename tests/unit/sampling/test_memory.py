from __future__ import annotations

import torch

from inline_core.errors import InvalidParam, OutOfMemory
from inline_core.sampling.memory import as_out_of_memory, is_out_of_memory


def test_real_allocation_failures_are_recognised() -> None:
    caught: list[BaseException] = []
    for size in (1 << 55,):
        try:
            torch.empty(size)
        except RuntimeError as error:
            caught.append(error)
    try:
        bytearray(1 << 62)
    except MemoryError as error:
        caught.append(error)
    assert len(caught) == 2
    for error in caught:
        assert is_out_of_memory(error)
        told = as_out_of_memory(error, "denoising")
        assert isinstance(told, OutOfMemory)
        assert "MB of host memory are free" in told.message


def test_other_errors_stay_what_they_are() -> None:
    error = InvalidParam("x")
    assert as_out_of_memory(error, "denoising") is error
    assert not is_out_of_memory(ValueError("x"))
