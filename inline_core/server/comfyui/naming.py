"""Names of files as clients hold them: which take one means."""

from __future__ import annotations

import re
from typing import Final

_TAKE: Final = re.compile(r"(take_[0-9a-f]{12})_?\.\w+$")
_ANNOTATION: Final = re.compile(r" ?\[(input|output|temp)\]$")


def take_id_in(name: str) -> str | None:
    """The id of the take that a file's name holds."""
    found = _TAKE.search(name)
    return found[1] if found is not None else None


def annotated(name: str) -> tuple[str, str | None]:
    """A name and the folder that stands behind it in brackets: `picture.png [output]`."""
    found = _ANNOTATION.search(name)
    return _ANNOTATION.sub("", name), found[1] if found is not None else None
