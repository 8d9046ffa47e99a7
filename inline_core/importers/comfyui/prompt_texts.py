"""Dynamic prompts: what ComfyUI's page does to a prompt text before it sends it.

Comments go, `{a|b}` becomes one of its options.  Unlike there, braces without a `|` stay as they
are (a JSON prompt keeps its braces), and the option is chosen by seed instead of by chance.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

_MAX_BRACES: Final = 10_000
_STARTS: Final = re.compile(r"/\*|//")
_PARTS: Final = re.compile(r"\\[{}|]|[{}|]|[^\\{}|]+|\\", re.DOTALL)


def without_comments(text: str) -> str:
    """The text without `/* .. */` and `// ..` comments."""
    kept: list[str] = []
    place = 0
    last_close = text.rfind("*/")
    for mark in _STARTS.finditer(text):
        block = mark[0] == "/*"
        if mark.start() < place or (block and mark.end() > last_close):
            continue
        end = text.find("*/" if block else "\n", mark.end())
        kept.append(text[place : mark.start()])
        place = len(text) if end < 0 else end + 2 * block
    return "".join([*kept, text[place:]])


def chosen(text: str, seed: int, place: str) -> str:
    r"""The text with each `{a|b}` replaced by one option, inner ones first.

    The choice depends on `seed`, `place` and the number of the group only.  `\{`, `\}` and `\|`
    stand for the characters themselves.  A text with more than 10,000 braces is no prompt and is
    kept as it is.
    """
    if not 0 < text.count("{") <= _MAX_BRACES:
        return text
    # Each level holds the options read so far; a level is a group once a "|" or "}" says so.
    levels: list[list[list[str]]] = [[[]]]
    groups = 0
    for part in _PARTS.findall(text):
        if part == "{":
            levels.append([[]])
        elif part == "|" and len(levels) > 1:
            levels[-1].append([])
        elif part == "}" and len(levels) > 1:
            options = levels.pop()
            picked = 0
            if len(options) > 1:
                picked = _number(f"{seed}:{place}:{groups}") % len(options)
                groups += 1
                levels[-1][-1].append("".join(options[picked]))
            else:
                levels[-1][-1].append("{" + "".join(options[0]) + "}")
        else:
            levels[-1][-1].append(part[1:] if len(part) > 1 and part[0] == "\\" else part)
    while len(levels) > 1:
        # A brace that is never closed is text.
        options = levels.pop()
        levels[-1][-1].append("{" + "|".join("".join(option) for option in options))
    return "".join(levels[0][0])


def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "replace")).digest()[:8], "big")
