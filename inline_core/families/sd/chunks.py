"""Prompts of any length for CLIP: words to tokens, tokens to chunks of 75.  Without torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from inline_core.families.sd.prompt import Words

# A word of more tokens than this may be split over two chunks, as ComfyUI does it.
_LONG: Final = 8


@dataclass(frozen=True, slots=True, eq=False)
class Token:
    """One place of a chunk: a token of the vocabulary, or a `vector` in its stead."""

    number: int
    weight: float
    vector: Any = None


def chunked(
    words: Sequence[Words],
    ids: Callable[[str], Sequence[int]],
    vectors: Callable[[str], Sequence[Any]],
    most: int,
) -> list[list[Token]]:
    """Chunks of at most `most` tokens, at least one.

    `ids` gives the tokens of a word without start and end, `vectors` those of an embedding's file.
    A word is not torn apart at the end of a chunk.
    """
    chunks: list[list[Token]] = [[]]
    for group in _groups(words, ids, vectors):
        rest = list(group)
        if len(rest) <= _LONG and len(chunks[-1]) + len(rest) > most:
            chunks.append([])
        while rest:
            room = most - len(chunks[-1])
            if not room:
                chunks.append([])
                continue
            chunks[-1].extend(rest[:room])
            rest = rest[room:]
    return chunks


def _groups(
    words: Sequence[Words],
    ids: Callable[[str], Sequence[int]],
    vectors: Callable[[str], Sequence[Any]],
) -> Iterator[list[Token]]:
    """What stays together: the tokens of a word, the vectors of an embedding."""
    for piece in words:
        if piece.embedding:
            yield [Token(0, piece.weight, vector) for vector in vectors(piece.text)]
            continue
        for word in piece.text.split():
            yield [Token(number, piece.weight) for number in ids(word)]
