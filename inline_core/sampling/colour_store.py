"""Preview colours that outlive the server: one small JSON file for each VAE."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
from pathlib import Path
from typing import Final

import structlog

from inline_core.sampling.preview import LatentColours

# A file is written after the 1st, 2nd, 4th, ... picture: later ones hardly change the colours.
_PICTURES_WORTH_WRITING: Final = 1024
_log = structlog.get_logger(__name__)


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
        path = self._path(stamp)
        temporary = path.with_suffix(f".{os.getpid()}.part")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(colours.as_json()), "utf-8")
            temporary.replace(path)
        except OSError as error:
            _log.warning("preview colours were not stored", why=str(error))
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)

    def _path(self, stamp: str) -> Path:
        assert self._folder is not None
        return self._folder / f"{hashlib.sha256(stamp.encode()).hexdigest()[:32]}.json"

    def _read(self, stamp: str, channels: int) -> LatentColours | None:
        if self._folder is None:
            return None
        try:
            document = json.loads(self._path(stamp).read_text("utf-8"))
            if not isinstance(document, dict):
                return None
            return LatentColours.from_json(document, channels)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            _log.warning("preview colours could not be read; they are learnt anew", why=str(error))
            return None
