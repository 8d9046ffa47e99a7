"""Shared memory of a group for one test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from inline_core.sampling.backends.parallel.memory import shared_folder, shared_prefix


@pytest.fixture
def memory() -> Iterator[str]:
    """A prefix; nothing may be left of it after the test."""
    if shared_folder() is None:
        pytest.skip("this system has no shared memory in files")
    prefix = shared_prefix()
    yield prefix
    assert not shared_files(prefix)


def shared_files(prefix: str) -> list[Path]:
    """Files that lie in memory under a prefix."""
    return list(Path(prefix).parent.glob(f"{Path(prefix).name}*"))
