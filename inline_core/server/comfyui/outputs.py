"""Takes as ComfyUI tells of files: a name, a subfolder and a type, by output node."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any, Final

from inline_core.server.comfyui.record import PromptRecord

_DEFAULT_PREFIX: Final = "ComfyUI"
_PREVIEWS: Final = ("Preview", "MaskPreview")
_PATTERN: Final = re.compile(r"%([^%]*)%")
_UNSAFE: Final = re.compile(r'[\x00-\x1f<>:"|?*\\]')
_ANIMATED: Final = "SaveAnimated"
_GIFS: Final = "VHS_"
OVER_THE_SOCKET: Final = "SaveImageWebsocket"
"""The node type whose pictures are sent to the client instead of being listed."""
NO_TEXTS: Final[Mapping[str, str]] = MappingProxyType({})


def outputs_of(
    record: PromptRecord,
    takes: Iterable[Mapping[str, Any]],
    texts: Mapping[str, str] = NO_TEXTS,
) -> dict[str, Any]:
    """What each output node made.

    `takes` are in the form of the wire, those of other nodes are left out; `texts` are what nodes
    of the graph show.
    """
    node_of = {node: output for output, nodes in record.sinks.items() for node in nodes}
    found: dict[str, dict[str, Any]] = {}
    for node, text in texts.items():
        if node in node_of:
            found.setdefault(node_of[node], {}).setdefault("text", []).append(text)
    for take in takes:
        output = node_of.get(take["nodeId"])
        if output is not None and record.class_type(output) != OVER_THE_SOCKET:
            _add(found.setdefault(output, {}), record, output, take)
    return found


def _add(entry: dict[str, Any], record: PromptRecord, output: str, take: Mapping[str, Any]) -> None:
    class_type = record.class_type(output)
    moving = take["kind"] == "video"
    key = "audio" if take["kind"] == "audio" else "images"
    if class_type.startswith(_GIFS) and moving:
        key = "gifs"
    entry.setdefault(key, []).append(file_entry(record, output, take))
    if key == "images" and (moving or class_type.startswith(_ANIMATED)):
        entry["animated"] = [True]


def file_entry(record: PromptRecord, output: str, take: Mapping[str, Any]) -> dict[str, str]:
    """One file; its name holds the take's id, by which it is found again."""
    folder, prefix = _place(record, output, take)
    extension = take["uri"].rpartition(".")[2]
    class_type = record.class_type(output)
    preview = class_type.startswith(_PREVIEWS) or take["params"].get("preview") is True
    return {
        "filename": f"{prefix}_{take['id']}_.{extension}",
        "subfolder": folder,
        "type": "temp" if preview else "output",
    }


def _place(record: PromptRecord, output: str, take: Mapping[str, Any]) -> tuple[str, str]:
    """Subfolder and start of the name, as the node's `filename_prefix` wants them."""
    given = record.prompt.get(output, {}).get("inputs", {}).get("filename_prefix")
    if not isinstance(given, str):
        # Computed while the workflow ran, or not given.
        given = take["params"].get("filename_prefix") or _DEFAULT_PREFIX
    text = str(given)
    filled = _UNSAFE.sub("_", _filled(text.replace("\\", "/"), take))
    parts = [part for part in PurePosixPath(filled).parts if part not in {"/", "..", "."}]
    if not parts or filled.endswith("/"):
        parts.append(_DEFAULT_PREFIX)
    return "/".join(parts[:-1]), parts[-1]


def _filled(text: str, take: Mapping[str, Any]) -> str:
    """The text with `%year%`, `%width%` and the like put in; other patterns stay as they are."""
    moment = time.localtime(take["createdAt"] / 1000)
    values = {
        "year": f"{moment.tm_year:04}",
        "month": f"{moment.tm_mon:02}",
        "day": f"{moment.tm_mday:02}",
        "hour": f"{moment.tm_hour:02}",
        "minute": f"{moment.tm_min:02}",
        "second": f"{moment.tm_sec:02}",
        "width": str(take.get("width") or 0),
        "height": str(take.get("height") or 0),
        "batch_num": "0",
    }
    return _PATTERN.sub(lambda found: values.get(found[1], found[0]), text)
