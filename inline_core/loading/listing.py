"""The files of the models folders, kept fresh: what lies there, under which names and versions."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from inline_core.errors import ModelFileInvalid
from inline_core.loading.component import Role
from inline_core.loading.rules import CATEGORIES_OF_ROLE
from inline_core.loading.scan import ModelFile, ModelRoot, Scanner, same_name

FRESH_S: Final = 1.0
_CHECKPOINTS: Final = CATEGORIES_OF_ROLE[Role.DIFFUSION_MODEL]
_CONTROLNETS: Final = CATEGORIES_OF_ROLE[Role.CONTROLNET]


class FileListing:
    """Every file of the models folders; looks again when asked after a second has passed.

    Safe to use from any thread.  `roots` come in the order in which their files are preferred.
    """

    def __init__(self, roots: Sequence[ModelRoot], clock: Callable[[], float] = time.time) -> None:
        self._roots = tuple(roots)
        self._scanner = Scanner(clock)
        self._lock = threading.RLock()
        self._files: tuple[ModelFile, ...] = ()
        self._version = ""
        self._scanned_at: float | None = None

    def refresh(self) -> None:
        """Look at the folders again; only new or changed files are read."""
        with self._lock:
            self._files = self._scanner.scan(self._roots)
            self._version = _version(self._files)
            self._scanned_at = time.monotonic()

    def files(self, category: str) -> tuple[ModelFile, ...]:
        """Every entry of a category, also the ones that are not ready, with their reasons."""
        return tuple(file for file in self._current() if file.category == category)

    def all_files(self) -> tuple[ModelFile, ...]:
        """Every entry of every category."""
        return self._current()

    def version(self) -> str:
        """A short text that changes whenever the files on offer change."""
        self._current()
        return self._version

    def warnings(self) -> tuple[str, ...]:
        """One sentence for each models folder that cannot be read."""
        self._current()
        return self._scanner.warnings

    def pickable(self, category: str) -> tuple[ModelFile, ...]:
        """The entries among which a param of this category picks.

        Diffusion models may lie in models/checkpoints too, ControlNets in models/model_patches.
        """
        if category == _CHECKPOINTS[0]:
            return tuple(file for place in _CHECKPOINTS for file in self.files(place))
        if category != _CONTROLNETS[0]:
            return self.files(category)
        others = (file for place in _CONTROLNETS[1:] for file in self.files(place))
        role = Role.CONTROLNET
        return (
            *self.files(category),
            *(f for f in others if f.identity and f.identity.role is role),
        )

    def stamp(self, category: str, name: str) -> str:
        """A text that changes when the content of a file may have changed.

        With an empty name (the server picks) it changes with any file on offer.
        """
        if not name:
            return self.version()
        return next(
            (file.stamp for file in self.pickable(category) if same_name(file.name, name)),
            "missing",
        )

    def path_of(self, category: str, name: str) -> Path | None:
        """Where a file of a category lies, by its name with or without suffix; None: nowhere."""
        for file in self.files(category):
            if name in {file.name, str(PurePosixPath(file.name).with_suffix(""))}:
                return file.path
        return None

    # ---- for the catalog ------------------------------------------------------------------------

    def _current(self) -> tuple[ModelFile, ...]:
        with self._lock:
            stale = self._scanned_at is None or time.monotonic() - self._scanned_at > FRESH_S
            if stale:
                self.refresh()
            return self._files

    def _sorted(self, files: Iterable[ModelFile]) -> list[ModelFile]:
        order = {root.path: index for index, root in enumerate(self._roots)}
        return sorted(files, key=lambda file: (file.source == "demo", order.get(file.root, 99)))

    def _of_role(self, role: Role) -> list[ModelFile]:
        categories = CATEGORIES_OF_ROLE.get(role, ())
        files = [file for file in self._current() if file.category in categories]
        return self._sorted(files)

    def _lookup(self, role: Role, name: str) -> ModelFile | None:
        files = self._of_role(role)
        exact = [file for file in files if file.name == name]
        exact = exact or [file for file in files if same_name(file.name, name)]
        if exact:
            return exact[0]
        loose = {file.name: file for file in files if file.name.casefold() == name.casefold()}
        if len(loose) > 1:
            message = f"{name} could be any of {', '.join(sorted(loose))}: write it exactly"
            raise ModelFileInvalid(message, details={"candidates": sorted(loose)})
        return next(iter(loose.values()), None)


def _version(files: Iterable[ModelFile]) -> str:
    offered = sorted(
        f"{file.category}/{file.name}:{file.stamp}" for file in files if file.status == "ready"
    )
    return hashlib.sha256("\n".join(offered).encode("utf-8", "surrogateescape")).hexdigest()[:16]
