"""How long the longest tests are: `INLINE_LONG=1` runs them at the length of the promises.

Every change is tested with the short ones, so that all tests together stay under 12 minutes.
"""

from __future__ import annotations

import os
from typing import Final, TypeVar

T = TypeVar("T")
LONG: Final = os.environ.get("INLINE_LONG") == "1"


def at_length(full: T, short: T) -> T:
    """How many there are of something, or which: all, or enough to notice a mistake."""
    return full if LONG else short
