"""What may be downloaded and where to: every name is checked before anything else happens."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from inline_core.errors import Forbidden, InvalidRequest
from inline_core.loading.header import GGUF_SUFFIX, SAFE_SUFFIXES
from inline_core.loading.rules import CATEGORIES, RequiredFile, Requirement

# Weights that hold data only, and the texts that configs and tokenizers are made of.
SUFFIXES: Final = (*SAFE_SUFFIXES, GGUF_SUFFIX, ".onnx", ".json", ".txt", ".model", ".jinja")
_PICKLES: Final = (".ckpt", ".pt", ".pth", ".bin", ".pkl", ".pickle")
_REPO: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9._-]{1,96}")
_REVISION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,199}")
_WINDOWS_DEVICE: Final = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)", re.IGNORECASE)
_FORBIDDEN_CHARACTERS: Final = re.compile(r'[\x00-\x1f\x7f<>:"|?*\\]')
_MOST_PARTS: Final = 8
_MOST_BYTES: Final = 200
_TEXT_SHOWN: Final = 120


@dataclass(frozen=True, slots=True)
class Wanted:
    """Checked files that are fetched together into one category.

    `target` is `<category>/<name>`, the folder's name where there are several files.  `node_type`
    and `requirement` say whose requirement they are, if they are one.
    """

    category: str
    target: str
    files: tuple[RequiredFile, ...]
    node_type: str | None = None
    requirement: str | None = None

    def same_source(self, other: Wanted) -> bool:
        """Whether both mean the same bytes in the same places."""
        return self.category == other.category and self.files == other.files


def want_file(
    repo: str, file: str, category: str, *, revision: str = "main", name: str | None = None
) -> Wanted:
    """One file of a repository.  Without `name` it keeps the last part of its own.

    Raises: InvalidRequest naming what is wrong and what is allowed.
    """
    wanted = RequiredFile(repo, file, file.rpartition("/")[2] if name is None else name, revision)
    return checked(Wanted(category, f"{category}/{wanted.name}", (wanted,)))


def want_requirement(node_type: str, requirement: Requirement) -> Wanted:
    """Every file of one requirement of a node type.  Raises: InvalidRequest."""
    return checked(
        Wanted(
            requirement.category,
            requirement.local_path,
            requirement.files,
            node_type,
            requirement.id,
        )
    )


def checked(wanted: Wanted) -> Wanted:
    """The same, if every part of it is allowed.  Raises: InvalidRequest."""
    if wanted.category not in CATEGORIES:
        message = f"{_shown(wanted.category)} is no category; known: {', '.join(CATEGORIES)}."
        raise InvalidRequest(message, details={"field": "category"})
    for file in wanted.files:
        _check_source(file)
        _check_path("name", file.name)
        _check_suffix(file)
    return wanted


def _check_source(file: RequiredFile) -> None:
    if not _REPO.fullmatch(file.repo) or ".." in file.repo or "--" in file.repo:
        message = f"{_shown(file.repo)} is no repository: write organisation/name."
        raise InvalidRequest(message, details={"field": "repo"})
    if not _REVISION.fullmatch(file.revision) or ".." in file.revision:
        message = f"{_shown(file.revision)} is no revision: write a branch, tag or commit."
        raise InvalidRequest(message, details={"field": "revision"})
    _check_path("file", file.file)


def _check_path(field: str, path: str) -> None:
    """Raises InvalidRequest unless `path` is relative, plain and safe on every system."""
    parts = path.split("/")
    if len(parts) > _MOST_PARTS or any(_is_bad_part(part) for part in parts):
        message = (
            f"{_shown(path)} is not a plain relative path: no '..', no absolute path, drive "
            "letter, backslash or control character, and no part that starts with a dot."
        )
        raise InvalidRequest(message, details={"field": field})


def _is_bad_part(part: str) -> bool:
    return (
        not part
        or part[0] in ". "
        or part[-1] in ". "
        or _FORBIDDEN_CHARACTERS.search(part) is not None
        or _WINDOWS_DEVICE.match(part) is not None
        or len(part.encode("utf-8", "surrogatepass")) > _MOST_BYTES
        or any("\ud800" <= character <= "\udfff" for character in part)
    )


def _check_suffix(file: RequiredFile) -> None:
    source, name = _suffix(file.file), _suffix(file.name)
    if source in _PICKLES or name in _PICKLES:
        message = (
            f"{_shown(file.file)} is a pickle, which can run code when it is read: download the "
            "model's .safetensors file instead, or convert it."
        )
        raise InvalidRequest(message, details={"field": "file"})
    if source not in SUFFIXES:
        message = (
            f"{_shown(file.file)} is neither weights nor a config or tokenizer file; allowed: "
            f"{', '.join(SUFFIXES)}."
        )
        raise InvalidRequest(message, details={"field": "file"})
    if name != source:
        message = f"The name {_shown(file.name)} must end with {source}, as the file does."
        raise InvalidRequest(message, details={"field": "name"})


def _suffix(path: str) -> str:
    return Path(path.rpartition("/")[2]).suffix.lower()


def _shown(text: str) -> str:
    return repr(text if len(text) <= _TEXT_SHOWN else f"{text[:_TEXT_SHOWN]}...")


def destinations(root: Path, wanted: Wanted) -> tuple[Path, ...]:
    """Where the files will lie, all below `root` even after every link is followed.

    Raises: Forbidden if a link leads out of the models folder.
    """
    return tuple(_confined(root, f"{wanted.category}/{file.name}") for file in wanted.files)


def _confined(root: Path, place: str) -> Path:
    path = root / place
    try:
        inside = path.resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError):  # a link that leads to itself
        inside = False
    if not inside:
        message = (
            f"models/{place} leads out of the models folder by a link; nothing is downloaded "
            "there. Put the file where the link leads yourself, or set INLINE_MODELS_DIR to a "
            "folder on that disk."
        )
        raise Forbidden(message)
    return path


def sources(files: Sequence[RequiredFile]) -> str:
    """Where the files come from, in words."""
    return ", ".join(f"{file.repo}/{file.file}" for file in files)
