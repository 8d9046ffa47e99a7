"""How long a regular expression may take."""

from __future__ import annotations

import re
from typing import Final

_REPEATED_GROUP: Final = re.compile(r"\)(?:[*+]|\{\d*,)|\\\d|\(\?P=")
_REPEATED: Final = re.compile(r"[*+]|\{\d*,|\)\{")
_MOST_STEPS: Final = 10_000_000


def is_cheap(pattern: str, length: int) -> bool:
    """Whether searching a text of `length` characters is sure to be quick.

    A search may take as many steps as the length to the power of the parts that repeat without an
    end, and more where a group does.
    """
    if _REPEATED_GROUP.search(pattern):
        return False
    repeats = len(_REPEATED.findall(pattern)) + 1
    return bool(max(length, 2) ** min(repeats, 30) <= _MOST_STEPS)
