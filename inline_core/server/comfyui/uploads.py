"""Files into the input folder: named by the client, never over another one unless asked."""

from __future__ import annotations

import filecmp
import json
import mmap
import shutil
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from inline_core.engine.media_access import input_file
from inline_core.errors import Forbidden, InvalidAsset, InvalidRequest, NotFound
from inline_core.media.masking import with_mask
from inline_core.server.comfyui.faults import Refused
from inline_core.server.comfyui.naming import take_id_in
from inline_core.server.multipart import FormPart, form_parts
from inline_core.server.services import Services
from inline_core.takes.files import confined, disk_errors

_MAX_TEXT: Final = 64 * 1024
_MAX_NAME: Final = 200
_MAX_COPIES: Final = 10_000
_YES: Final = frozenset({"true", "1", "yes", "on"})


@dataclass(frozen=True, slots=True)
class Upload:
    """What a form asks for; `content` is where the bytes stand in the body."""

    name: str
    content: FormPart
    subfolder: str = ""
    overwrite: bool = False
    original: str = ""


def store_upload(
    services: Services, path: Path, content_type: str, *, mask: bool
) -> dict[str, str]:
    """Put the file of a form into the input folder (a worker thread).

    Gives its name there.  Raises: Refused, InvalidRequest, Forbidden, NotFound, DiskFull.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as body:
        upload = _read(body, content_type)
        folder = _folder(services.settings.input_folder, upload.subfolder)
        incoming = path.with_name(f"{path.name}-upload")
        try:
            with disk_errors("an upload"), incoming.open("xb") as target:
                target.write(memoryview(body)[upload.content.start : upload.content.end])
            if mask and upload.original:
                _merge(services, incoming, upload.original)
            name = _settle(incoming, folder, upload)
        finally:
            incoming.unlink(missing_ok=True)
    return {"name": name, "subfolder": upload.subfolder, "type": "input"}


def _read(body: mmap.mmap, content_type: str) -> Upload:
    parts = {part.name: part for part in form_parts(body, content_type)}
    content = parts.get("image")
    if content is None or not content.filename:
        message = "The form has no file in its field 'image'."
        raise Refused("no_file", message)
    texts = {
        name: bytes(body[part.start : min(part.end, part.start + _MAX_TEXT)]).decode(
            "utf-8", "replace"
        )
        for name, part in parts.items()
        if name != "image"
    }
    kind = texts.get("type", "input") or "input"
    if kind != "input":
        message = f"Files can be uploaded to 'input' only, not to {kind!r}."
        raise Refused("invalid_request", message)
    return Upload(
        name=_plain_name(content.filename),
        content=content,
        subfolder=texts.get("subfolder", "").replace("\\", "/").strip("/"),
        overwrite=texts.get("overwrite", "").lower() in _YES,
        original=texts.get("original_ref", ""),
    )


def _plain_name(filename: str) -> str:
    """The last part of a file's name.  Raises: Refused if it cannot be one here."""
    name = PurePosixPath(filename.replace("\\", "/")).name
    wrong = any(ord(letter) < ord(" ") or letter in ':*?"<>|' for letter in name)
    if not name or name.startswith(".") or len(name) > _MAX_NAME or wrong:
        message = f"{filename[:_MAX_NAME]!r} cannot be the name of a file here."
        raise Refused("invalid_request", message)
    return name


def _folder(root: Path, subfolder: str) -> Path:
    """Raises: Forbidden if it leads out of the input folder."""
    parts = PurePosixPath(subfolder).parts
    if ".." in parts or "\0" in subfolder or any(":" in part for part in parts):
        message = f"{subfolder!r} is not a folder inside the input folder."
        raise Forbidden(message)
    folder = confined(root, root.joinpath(*parts))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _settle(incoming: Path, folder: Path, upload: Upload) -> str:
    """Give the file its name: the wanted one, or the next free one beside other content."""
    stem, suffix = Path(upload.name).stem, Path(upload.name).suffix
    for number in range(_MAX_COPIES):
        name = f"{stem} ({number}){suffix}" if number else upload.name
        target = folder / name
        if target.exists() and not upload.overwrite:
            if target.is_file() and filecmp.cmp(incoming, target, shallow=False):
                return name
            continue
        if target.is_dir():
            message = f"{name!r} is a folder there."
            raise InvalidRequest(message)
        _move(incoming, target)
        return name
    message = f"The input folder has {_MAX_COPIES} files named like {upload.name!r} already."
    raise InvalidRequest(message)


def _move(incoming: Path, target: Path) -> None:
    """Rename where that is possible, so that nobody ever reads half a file."""
    with disk_errors("an upload"):
        # The data folder and the input folder may lie on different disks.
        beside = target.with_name(f".part-{incoming.name}")
        try:
            shutil.copyfile(incoming, beside)
            beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)


def _merge(services: Services, incoming: Path, original: str) -> None:
    """Give the original picture the alpha of the uploaded one."""
    path = original_file(services, original)
    try:
        merged = with_mask(
            path.read_bytes(), incoming.read_bytes(), max_pixels=services.settings.max_pixels
        )
    except InvalidAsset as error:
        raise Refused("invalid_request", error.message) from error
    with disk_errors("an upload"):
        incoming.write_bytes(merged)


def original_file(services: Services, text: str) -> Path:
    """The file that a mask is drawn on.  Raises: Refused, NotFound, Forbidden."""
    try:
        reference: Any = json.loads(text)
    except ValueError:
        reference = None
    name = reference.get("filename") if isinstance(reference, dict) else None
    if not isinstance(name, str) or not name:
        message = "'original_ref' must be JSON with a 'filename'."
        raise Refused("invalid_request", message)
    take_id = take_id_in(name)
    if take_id is not None and reference.get("type", "output") != "input":
        take = services.queries.take(take_id)
        path = services.takes.path(take.sha256, take.extension)
        if not path.is_file():
            message = f"The file of {name!r} is gone."
            raise NotFound(message)
        return path
    subfolder = str(reference.get("subfolder") or "").strip("/")
    full = f"{subfolder}/{name}" if subfolder else name
    return input_file(services.settings.input_folder, full)
