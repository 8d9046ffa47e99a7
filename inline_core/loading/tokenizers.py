"""Where the tokenizer of a text encoder lies: beside it, or beside another one of its kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from inline_core.errors import InlineError, ModelFileMissing
from inline_core.loading.component import ComponentRef
from inline_core.loading.files import read_json

# The embedding is padded above the vocabulary (to multiples of 64 or 128), never below it.
_LEAST_SHARE: Final = 0.95
_PARTS: Final = ("tokenizer", "tokenizer_2", "tokenizer_3")


def tokenizer_of(encoder: ComponentRef, vocabulary: int, roots: Sequence[Path]) -> Path:
    """The local folder with the tokenizer of a text encoder with `vocabulary` embeddings.

    Raises: ModelFileMissing naming the files to put where.
    """
    # Other folders are only looked into when needed: a tokenizer is megabytes of JSON.
    beside = (
        next(_beside_checkpoint(encoder.path, vocabulary), None)
        if encoder.part
        else find_tokenizer(encoder.path)
    )
    found = beside or next(_others(vocabulary, roots), None)
    if found:
        return found
    message = (
        f"No tokenizer found for the text encoder {encoder.name}. Put tokenizer.json and "
        f"tokenizer_config.json of its model into a folder named {encoder.path.stem}.tokenizer "
        "beside it"
    )
    raise ModelFileMissing(message)


def _beside_checkpoint(weights: Path, vocabulary: int) -> Iterator[Path]:
    """Folders beside an all-in-one file with a tokenizer of this size: it may need several."""
    for name in (weights.stem, f"{weights.stem}.tokenizer", "tokenizer"):
        place = weights.parent / name
        for inner in (place, *(place / part for part in _PARTS)):
            if _fits(inner, vocabulary):
                yield inner


def _fits(folder: Path, vocabulary: int) -> bool:
    size = vocabulary_size(folder) if folder.is_dir() else 0
    return bool(size) and vocabulary * _LEAST_SHARE <= size <= vocabulary


def _others(vocabulary: int, roots: Sequence[Path]) -> Iterator[Path]:
    for root in roots:
        for category in ("text_encoders", "clip"):
            folder = root / category
            places = sorted(folder.iterdir()) if folder.is_dir() else []
            for place in places:
                for inner in (place, place / "tokenizer"):
                    if _fits(inner, vocabulary):
                        yield inner


def find_tokenizer(weights: Path) -> Path | None:
    """The folder with the tokenizer that belongs to a text encoder, or None.

    Looked for in this order: in the folder itself, in `tokenizer/` in it, in `<name>.tokenizer/`
    and `tokenizer/` beside it (`tokenizer_2/` beside `text_encoder_2/`); for a single file in
    `<stem>/`, `<stem>.tokenizer/` and `tokenizer/` beside it.
    """
    name, beside = weights.name, weights.parent
    if weights.is_dir():
        own = name.replace("text_encoder", "tokenizer")
        places = [weights, weights / "tokenizer", beside / f"{name}.tokenizer", beside / own]
    else:
        name = weights.stem
        places = [beside / name, beside / f"{name}.tokenizer", beside / "tokenizer"]
    return next((place for place in places if holds_tokenizer(place)), None)


def holds_tokenizer(folder: Path) -> bool:
    """True when a tokenizer can be read from this folder without the network."""
    return (folder / "tokenizer.json").is_file() or (
        (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file()
    )


def vocabulary_size(folder: Path) -> int:
    """Highest token id plus one of the tokenizer in `folder`; 0 when it cannot be told."""
    try:
        document = read_json(folder / "tokenizer.json")
        vocabulary = document.get("model", {}).get("vocab", {})
        if isinstance(vocabulary, list):  # of SentencePiece: in order, with scores
            vocabulary = {str(place): place for place in range(len(vocabulary))}
        ids = list(vocabulary.values())
        ids += [token["id"] for token in document.get("added_tokens", [])]
        ids += list(read_json(folder / "vocab.json").values()) if not ids else []
        return max(ids, default=-1) + 1
    except (InlineError, KeyError, TypeError, AttributeError):
        return 0
