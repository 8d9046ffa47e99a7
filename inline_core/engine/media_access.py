"""What input nodes may read: assets, takes, and files below the allowed roots."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import numpy as np

from inline_core.errors import Forbidden, InvalidAsset, NotFound, OutputUnavailable
from inline_core.media.kinds import MediaKind
from inline_core.media.png import decode_image
from inline_core.media.probe import probe
from inline_core.media.values import Image, Mask, MediaFile
from inline_core.runs.queries import Queries
from inline_core.takes.files import ContentFiles, confined, sha256_of

_ALPHA = 3
_ASSET_ID = re.compile(r"sha256-([0-9a-f]{64})")
_KEY_OF_REF = {"asset": "id", "take": "id", "path": "path", "input": "name"}
_LUMA = np.array([0.2126, 0.7152, 0.0722])  # Rec. 709


def input_file(folder: Path | None, name: str) -> Path:
    """Where a file of the input folder lies; `name` may have subfolders in it.

    Raises: NotFound if it is not there; Forbidden if the name leads out of the folder.
    """
    parts = PurePosixPath(name.replace("\\", "/")).parts
    if "\0" in name or ".." in parts or ":" in name or (parts and parts[0] == "/"):
        message = f"{name!r} is not a name inside the input folder."
        raise Forbidden(message)
    path = confined(folder, folder.joinpath(*parts)) if folder is not None else None
    if path is None or not path.is_file():
        message = (
            f"The input folder has no file {name!r}. Upload it, or put it there "
            "(setting INLINE_INPUT_DIR)."
        )
        raise NotFound(message)
    return path


class MediaAccess:
    """Resolves asset references.

    They are `{"ref": "asset"|"take", "id": ...}`, `{"ref": "path", "path": ...}` for files below an
    allowed root, and `{"ref": "input", "name": ...}` for files of the input folder.
    """

    def __init__(
        self,
        queries: Queries,
        assets: ContentFiles,
        takes: ContentFiles,
        allowed_roots: tuple[Path, ...],
        max_pixels: int,
        input_dir: Path | None = None,
    ) -> None:
        self._queries = queries
        self._assets = assets
        self._takes = takes
        self._allowed_roots = allowed_roots
        self._max_pixels = max_pixels
        self._input_dir = input_dir
        self._hashes: dict[tuple[str, int, int], str] = {}
        self._lock = threading.Lock()

    def image(self, reference: object) -> Image:
        """The picture a reference names.  Raises: InvalidAsset."""
        path, _ = self._resolve(reference, "image")
        return self._decode(path)

    def mask(self, reference: object) -> Mask:
        """The mask a reference names: alpha where there is one, else luminance."""
        path, _ = self._resolve(reference, "image")
        pixels = self._decode(path).pixels
        if pixels.shape[2] > _ALPHA:
            return Mask(np.ascontiguousarray(pixels[:, :, _ALPHA]))
        luminance = pixels[:, :, :_ALPHA] @ _LUMA  # (height, width)
        return Mask(np.round(luminance).astype(np.uint8))

    def file(self, reference: object, kind: str) -> MediaFile:
        """The video or sound a reference names, probed but not decoded.  Raises: InvalidAsset."""
        path, sha256 = self._resolve(reference, kind)
        info = probe(path, max_pixels=self._max_pixels, name=f"The file {path.name!r}")
        if info.format.kind.value != kind:
            held = info.format.kind.value
            message = f"The file {path.name!r} is {held}, and {kind} is needed here."
            raise InvalidAsset(message, param="asset")
        return MediaFile(
            kind,
            path,
            sha256,
            info.duration_s,
            info.width,
            info.height,
            info.fps,
            info.sample_rate_hz,
            info.channels,
        )

    def stamp(self, reference: object) -> str:
        """The content hash a reference stands for, or `invalid` (the node will say why)."""
        try:
            return self._resolve(reference, "file")[1]
        except InvalidAsset:
            return "invalid"

    def presence(self, reference: object) -> tuple[str | None, bool]:
        """Content hash of what a reference names (None: not known), and whether it is there."""
        try:
            path, sha256 = self._resolve(reference, "file")
        except InvalidAsset:
            named = reference.get("id") if isinstance(reference, Mapping) else None
            known = isinstance(named, str) and _ASSET_ID.fullmatch(named)
            return (known[1] if known else None), False
        return sha256, path.is_file()

    def _decode(self, path: Path) -> Image:
        try:
            data = path.read_bytes()
        except OSError as error:
            message = "The picture could not be read; it may have been removed."
            raise InvalidAsset(message, param="asset") from error
        return decode_image(data, max_pixels=self._max_pixels, name="The picture")

    def _resolve(self, reference: object, kind: str) -> tuple[Path, str]:
        given = reference if isinstance(reference, Mapping) else {}
        ref = given.get("ref")
        key = given.get(_KEY_OF_REF.get(ref)) if isinstance(ref, str) else None
        if not isinstance(key, str) or not key:
            article = "An" if kind[0] in "aeiou" else "A"
            message = (
                f"{article} {kind} input node needs a valid asset reference: "
                '{"ref": "asset", "id": "sha256-..."}, {"ref": "take", "id": "take_..."}, '
                '{"ref": "input", "name": "..."} or {"ref": "path", "path": "..."}.'
            )
            raise InvalidAsset(message, param="asset")
        try:
            if ref == "asset":
                return self._asset(key)
            if ref == "take":
                return self._take(key, kind)
            if ref == "input":
                return self._input(key)
            return self._path(key)
        except (NotFound, OutputUnavailable, Forbidden) as error:
            raise InvalidAsset(error.message, param="asset") from error

    def _asset(self, asset_id: str) -> tuple[Path, str]:
        asset = self._queries.asset(asset_id)
        return self._assets.path(asset.sha256, asset.extension), asset.sha256

    def _take(self, take_id: str, kind: str) -> tuple[Path, str]:
        take = self._queries.take(take_id)
        if take.deleted_at_ms is not None:
            message = f"Take {take_id!r} was deleted."
            raise OutputUnavailable(message)
        if kind in set(MediaKind) and take.kind.value != kind:
            message = f"Take {take_id!r} is {take.kind.value}, and {kind} is needed here."
            raise InvalidAsset(message, param="asset")
        return self._takes.path(take.sha256, take.extension), take.sha256

    def _input(self, name: str) -> tuple[Path, str]:
        path = input_file(self._input_dir, name)
        return path, self._file_hash(path)

    def _path(self, text: str) -> tuple[Path, str]:
        path = Path(text)
        if not path.is_absolute() or "\0" in text:
            message = "A path reference must be an absolute path."
            raise InvalidAsset(message, param="asset")
        for root in self._allowed_roots:
            try:
                allowed = confined(root, path)
            except Forbidden:
                continue
            return allowed, self._file_hash(allowed)
        message = (
            "That path is not below a folder the server may read. Upload the file to /v1/assets, "
            "or start the server with INLINE_ALLOWED_ROOTS set to its folder."
        )
        raise Forbidden(message)

    def _file_hash(self, path: Path) -> str:
        try:
            status = path.stat()
            key = (str(path), status.st_size, status.st_mtime_ns)
            with self._lock:
                known = self._hashes.get(key)
            if known is None:
                known = sha256_of(path)
                with self._lock:
                    self._hashes[key] = known
        except OSError as error:
            message = f"No readable file {path.name!r} at that path."
            raise NotFound(message) from error
        return known
