from __future__ import annotations

import pytest
import torch

from inline_core.errors import InvalidParam, OutOfMemory
from inline_core.sampling.memory import as_out_of_memory, is_out_of_memory


def test_real_allocation_failures_are_recognised() -> None:
    with pytest.raises(RuntimeError) as of_torch:
        torch.empty(1 << 55)
    with pytest.raises(MemoryError) as of_python:
        bytearray(1 << 62)
    for failure in (of_torch.value, of_python.value):
        assert is_out_of_memory(failure)
        told = as_out_of_memory(failure, "denoising")
        assert isinstance(told, OutOfMemory)
        assert "MB of host memory are free" in told.message


def test_other_errors_stay_what_they_are() -> None:
    error = InvalidParam("x")
    assert as_out_of_memory(error, "denoising") is error
    assert not is_out_of_memory(ValueError("x"))
