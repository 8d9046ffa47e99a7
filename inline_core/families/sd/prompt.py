r"""What the signs in a prompt mean: weights and embeddings.  Plain text, no torch.

`(words)` counts 1.1 times as much, `[words]` 1.1 times less, `(words:1.3)` 1.3 times as much;
brackets within brackets multiply.  A backslash makes a bracket a plain sign: `\(`, `\[`, `\\`.
Brackets that are never closed, or were never opened, are plain signs too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

UP: Final = 1.1
_CLOSES: Final = {")": "(", "]": "["}
_SIGNS: Final = re.compile(r"\\[()\[\]\\]|[()\[\]]|[^\\()\[\]]+|\\")
_TOLD: Final = re.compile(r"(.*):\s*([+-]?(?:\d{1,6}(?:\.\d*)?|\.\d+))\s*", re.DOTALL)
_EMBEDDING: Final = re.compile(r"embedding:([^\s,()\[\]]+)")


@dataclass(frozen=True, slots=True)
class Words:
    """A piece of a prompt in which everything has one weight.

    With `embedding` the text is the name of a file that stands in for words.
    """

    text: str
    weight: float = 1.0
    embedding: bool = False


@dataclass(slots=True)
class _Piece:
    """Text between signs; a `factor` counts from here on to where its bracket closes (`ends`)."""

    text: str
    factor: float | None = None
    ends: bool = False


def parsed(prompt: str) -> list[Words]:
    """The pieces of a prompt in order.  Every text is a prompt: nothing is refused."""
    found: list[Words] = []
    for text, weight in _joined(_weighted(_pieces(prompt))):
        found.extend(_with_embeddings(text, weight))
    return found


def _pieces(prompt: str) -> list[_Piece]:
    """Text and brackets; brackets with a partner have no text any more."""
    pieces: list[_Piece] = []
    opened: list[int] = []
    count = dict.fromkeys(_CLOSES.values(), 0)
    for match in _SIGNS.finditer(prompt):
        sign = match.group()
        if sign in count:
            count[sign] += 1
            opened.append(len(pieces))
            pieces.append(_Piece(sign))
        elif sign in _CLOSES and count[_CLOSES[sign]]:
            # What was opened within and never closed stays a plain sign.
            while True:
                start = opened.pop()
                count[pieces[start].text] -= 1
                if pieces[start].text == _CLOSES[sign]:
                    break
            pieces[start] = _Piece("", _factor(pieces, start, sign))
            pieces.append(_Piece("", ends=True))
        else:
            pieces.append(_Piece(sign[1:] if len(sign) > 1 and sign[0] == "\\" else sign))
    return pieces


def _factor(pieces: list[_Piece], start: int, sign: str) -> float:
    """What a bracket multiplies with; a number before its end is taken out of the text."""
    if sign == "]":
        return 1 / UP
    last = pieces[-1]
    told = _TOLD.fullmatch(last.text) if len(pieces) - 1 > start and not last.ends else None
    if told is None:
        return UP
    last.text = told.group(1)
    return float(told.group(2))


def _weighted(pieces: list[_Piece]) -> Iterator[tuple[str, float]]:
    outside: list[float] = []
    weight = 1.0
    for piece in pieces:
        if piece.ends:
            weight = outside.pop()
        elif piece.factor is not None:
            outside.append(weight)
            weight *= piece.factor
        elif piece.text:
            yield piece.text, weight


def _joined(parts: Iterator[tuple[str, float]]) -> Iterator[tuple[str, float]]:
    """Neighbours of one weight as one text, since a plain bracket must not part a word."""
    text, weight = "", 1.0
    for more, counts in parts:
        if counts != weight and text:
            yield text, weight
            text = ""
        text, weight = text + more, counts
    if text:
        yield text, weight


def _with_embeddings(text: str, weight: float) -> Iterator[Words]:
    position = 0
    for match in _EMBEDDING.finditer(text):
        if match.start() > position:
            yield Words(text[position : match.start()], weight)
        yield Words(match.group(1), weight, embedding=True)
        position = match.end()
    if position < len(text):
        yield Words(text[position:], weight)
