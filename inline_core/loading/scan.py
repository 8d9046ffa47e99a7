"""Walk the models folders and describe every file that could be offered."""

from __future__ import annotations

import os
import stat
import time
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

from inline_core.errors import InlineError
from inline_core.loading.files import (
    PIPELINE_PARTS,
    is_pipeline_folder,
    is_weight_folder,
    open_weights,
)
from inline_core.loading.header import SAFE_SUFFIXES, WEIGHT_SUFFIXES
from inline_core.loading.identify import FileIdentity, identify
from inline_core.loading.rules import CATEGORIES, CATEGORY_ALIASES

Status = Literal["ready", "copying", "broken", "unsupported"]
Source = Literal["models", "extra", "demo"]

SETTLED_S: Final = 1.0
MAX_DEPTH: Final = 16
# Not weights in the safetensors sense, but files these categories are made of.
_OTHER_SUFFIXES: Final = {"annotators": (".onnx",), "characters": (".char",)}


@dataclass(frozen=True, slots=True)
class ModelRoot:
    """One models folder; roots earlier in the list win."""

    path: Path
    source: Source


@dataclass(frozen=True, slots=True)
class ModelFile:
    """One entry of a category, as it is offered or greyed out.

    `name` is relative to the category folder, with `/`; `reason` says why it is not ready.
    """

    category: str
    name: str
    path: Path
    root: Path
    source: Source
    size_bytes: int
    stamp: str
    status: Status
    reason: str = ""
    identity: FileIdentity | None = None


_Signature = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an entry was found."""

    root: ModelRoot
    category: str
    name: str
    path: Path

    def entry(self, signature: _Signature, status: Status, reason: str) -> ModelFile:
        """An entry of which only the sizes and times are known."""
        size = sum(part[1] for part in signature)
        return ModelFile(
            category=self.category,
            name=self.name,
            path=self.path,
            root=self.root.path,
            source=self.root.source,
            size_bytes=size,
            stamp=f"{size:x}-{signature[0][2]:x}",
            status=status,
            reason=reason,
        )


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was there at the last scan: the signature of an entry and what it was found to be."""

    signature: _Signature
    file: ModelFile
    at_s: float


@dataclass(slots=True)
class Scanner:
    """Scans roots; headers are read again only when size or time of a file has changed.

    Not thread-safe: the catalog holds its lock.  `clock` gives seconds since the epoch.
    """

    clock: Callable[[], float] = time.time
    warnings: tuple[str, ...] = ()
    _seen: dict[tuple[str, str], _Seen] = field(default_factory=dict)

    def scan(self, roots: tuple[ModelRoot, ...]) -> tuple[ModelFile, ...]:
        """All entries of all categories, in root order, names sorted within a root."""
        warnings: list[str] = []
        found: dict[tuple[str, str], _Seen] = {}
        for root in roots:
            try:
                folders = sorted(os.scandir(root.path), key=lambda entry: entry.name)
            except OSError as error:
                if root.source != "demo":
                    reason = error.strerror or str(error)
                    warnings.append(f"models folder {root.path} cannot be read: {reason}")
                continue
            for folder in folders:
                category = _category(folder.name)
                if category and folder.is_dir():
                    for where, name, path in _walk(Path(folder.path), "", category):
                        self._visit(found, _Place(root, where, name, path))
        self._seen = found
        self.warnings = tuple(warnings)
        return tuple(seen.file for seen in found.values())

    def _visit(self, found: dict[tuple[str, str], _Seen], place: _Place) -> None:
        key = (place.category, str(place.path))
        now = self.clock()
        signature = _signature(place.path)
        before = self._seen.get(key)
        if not signature:
            return
        same = before is not None and before.signature == signature
        if before and same and before.file.status != "copying":
            found[key] = before
            return
        # A change since a scan of a moment ago: whoever writes it is still at it.
        writing = before is not None and not same and now - before.at_s < SETTLED_S
        newest_s = max(part[2] for part in signature) / 1e9
        recent = writing or abs(now - newest_s) < SETTLED_S
        found[key] = _Seen(signature, _describe(place, signature, recent=recent), now)


def _describe(place: _Place, signature: _Signature, *, recent: bool) -> ModelFile:
    """What an entry is; a file that changed a moment ago is not opened yet."""
    name = place.name
    if recent:
        reason = f"{name} is still being copied: it just changed"
        return place.entry(signature, "copying", reason)
    if name.lower().endswith(_OTHER_SUFFIXES.get(place.category, ())):
        return place.entry(signature, "ready", "")
    try:
        weights = open_weights(place.path, name)
    except InlineError as error:
        return place.entry(signature, "broken", error.message)
    identity = identify(weights.headers)
    reason = f"{name}: {identity.problems[0]}" if identity.problems else ""
    entry = place.entry(signature, "unsupported" if reason else "ready", reason)
    return replace(entry, identity=identity, stamp=weights.stamp)


def _category(folder_name: str) -> str | None:
    name = folder_name.lower()
    name = CATEGORY_ALIASES.get(name, name)
    return name if name in CATEGORIES else None


def _walk(
    folder: Path, prefix: str, category: str, above: tuple[tuple[int, int], ...] = ()
) -> Iterator[tuple[str, str, Path]]:
    """(category, name, path) of every file or one-component folder below a category folder."""
    try:
        status = folder.stat()
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    here = (status.st_dev, status.st_ino)
    if here in above or len(above) >= MAX_DEPTH:
        return  # a link that leads back up
    suffixes = (*WEIGHT_SUFFIXES, *_OTHER_SUFFIXES.get(category, ()))
    for entry in entries:
        if entry.name.startswith("."):
            continue
        name = prefix + entry.name
        if _is_dir(entry):
            yield from _folder(Path(entry.path), name, category, (*above, here))
        elif entry.name.lower().endswith(suffixes):
            yield category, name, Path(entry.path)


def _folder(
    folder: Path, name: str, category: str, above: tuple[tuple[int, int], ...]
) -> Iterator[tuple[str, str, Path]]:
    names = _names(folder)
    if is_pipeline_folder(names):
        for part, part_category in PIPELINE_PARTS.items():
            if part not in names:
                continue
            if part in {"transformer", "unet"}:
                where = category if category == "checkpoints" else part_category
                yield where, name, folder / part
            else:
                yield part_category, f"{name}/{part}", folder / part
    elif is_weight_folder(names):
        yield category, name, folder
    else:
        yield from _walk(folder, name + "/", category, above)


def _is_dir(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _names(folder: Path) -> set[str]:
    try:
        return {entry.name for entry in os.scandir(folder)}
    except OSError:
        return set()


def _signature(path: Path) -> _Signature:
    """(name, size, mtime_ns) of a file, or of the weight and JSON files of a folder."""
    try:
        status = path.stat()
        if not stat.S_ISDIR(status.st_mode):
            return ((path.name, status.st_size, status.st_mtime_ns),)
        parts = [
            (entry.name, entry.stat().st_size, entry.stat().st_mtime_ns)
            for entry in os.scandir(path)
            if entry.name.lower().endswith((*SAFE_SUFFIXES, ".json")) and entry.is_file()
        ]
        return tuple(sorted(parts))
    except OSError:
        return ()


def same_name(left: str, right: str) -> bool:
    """True when two names differ only in how their accents are encoded (NFC or NFD)."""
    return unicodedata.normalize("NFC", left) == unicodedata.normalize("NFC", right)
