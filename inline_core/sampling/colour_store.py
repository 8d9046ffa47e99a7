"""Preview colours that outlive the server: one small JSON file for each VAE."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from pathlib import Path
from typing import Final

from inline_core.kept_json import read_kept, told_anew, write_kept
from inline_core.sampling.preview import LatentColours

# A file is written after the 1st, 2nd, 4th, ... picture: later ones hardly change the colours.
_PICTURES_WORTH_WRITING: Final = 1024


class ColourStore:
    """The colours of VAEs by content stamp.  Any thread.

    `folder` keeps them (None: nowhere).  A broken file counts as none; a disk that cannot be
    written costs the colours of this server's life, never a run.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._known: dict[str, LatentColours] = {}

    def of(self, stamp: str, channels: int) -> LatentColours:
        """The colours of a VAE, shared by all who use it; read from the disk at first."""
        with self._lock:
            colours = self._known.get(stamp)
            if colours is None:
                colours = self._read(stamp, channels) or LatentColours(channels)
                self._known[stamp] = colours
            return colours

    def keep(self, stamp: str) -> None:
        """Write what was learnt, if it is worth it."""
        with self._lock:
            colours = self._known.get(stamp)
        if self._folder is None or colours is None:
            return
        seen = colours.pictures
        if seen & (seen - 1) or not 0 < seen <= _PICTURES_WORTH_WRITING:
            return
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
        write_kept(self._path(stamp), colours.as_json())

    def _path(self, stamp: str) -> Path:
        assert self._folder is not None
        return self._folder / f"{hashlib.sha256(stamp.encode()).hexdigest()[:32]}.json"

    def _read(self, stamp: str, channels: int) -> LatentColours | None:
        if self._folder is None:
            return None
        path = self._path(stamp)
        document = read_kept(path)
        if document is None:
            return None
        try:
            return LatentColours.from_json(document, channels)
        except ValueError as error:
            told_anew(path, str(error))
            return None
