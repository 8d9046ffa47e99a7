"""Finds the ComfyUI workflow or prompt in a JSON text or a media file, and says which form it has.

Forms: the editor's format 0.4 (link arrays) and 1 (link objects), and API prompts; each plain or
wrapped in `{"prompt": ..}`, `{"workflow": ..}` or the body of a `/prompt` request.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from inline_core.errors import InvalidRequest, NoRecipe, PayloadTooLarge
from inline_core.importers.comfyui.embedded import embedded_texts
from inline_core.importers.comfyui.report import Reason, Report

MAX_BYTES: Final = 512 * 1024 * 1024
"""Default limit of a media file; it is held in memory."""
MAX_JSON_BYTES: Final = 64 * 1024 * 1024
"""Default limit of a JSON text, of a file of its own or inside a media file."""

_MAX_WRAPPERS: Final = 6
_MAX_DEPTH: Final = 200
_SHOWN_KEYS: Final = 6
_NOT_FINITE: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|(-?\b(?:NaN|Infinity)\b)', re.DOTALL)
_BOMS: Final = (
    (b"\xef\xbb\xbf", "utf-8-sig"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)


class WorkflowFormat(StrEnum):
    """The form in which a workflow was written."""

    UI_0_4 = "ui-0.4"
    UI_1 = "ui-1"
    API = "api"


@dataclass(frozen=True, slots=True)
class FoundWorkflow:
    """A workflow or prompt as it stands in its file; `report` holds what was odd about it.

    `place` is `json` or the kind of media file and the text, as in `PNG workflow`; `wrappers` are
    the keys around the document, outermost first.
    """

    format: WorkflowFormat
    document: dict[str, Any]
    place: str
    wrappers: tuple[str, ...]
    report: Report


def read_workflow(
    data: bytes | str, *, max_bytes: int = MAX_BYTES, max_json_bytes: int = MAX_JSON_BYTES
) -> FoundWorkflow:
    """The workflow in a JSON text, or in the bytes of a JSON or media file.

    In media files the text `workflow` comes before `prompt`; in the body of a request the prompt
    comes first, since that is what would run.  NaN and Infinity are read and reported.
    Raises: InvalidRequest for broken JSON, with line and column; NoRecipe if no workflow is in it;
    PayloadTooLarge; InvalidAsset for a damaged media file.
    """
    report = Report()
    if isinstance(data, bytes):
        _check_size(len(data), max_bytes, "file")
        found = embedded_texts(data)
        if found is not None:
            return _of_media(*found, max_json_bytes, report)
        _check_size(len(data), max_json_bytes, "JSON")
        data = _decoded(data)
    document = _parsed(data, max_json_bytes, "This file", report)
    return _placed(document, "json", report)


def workflow_in(document: Any) -> FoundWorkflow:
    """The workflow in JSON that is parsed already, the body of a request say.

    Raises: NoRecipe if there is none, InvalidRequest if it is nested over 200 levels deep.
    """
    return _placed(document, "json", Report())


def _of_media(
    kind: str, texts: Mapping[str, str], max_json_bytes: int, report: Report
) -> FoundWorkflow:
    """The first text that holds a workflow; a broken one is reported and the next is taken."""
    failure: InvalidRequest | NoRecipe | None = None
    for key, text in texts.items():
        place = f"{kind} {key}"
        try:
            document = _parsed(text, max_json_bytes, f"The text {key!r} in this {kind}", report)
            return _placed(document, place, report)
        except (InvalidRequest, NoRecipe) as error:
            failure = failure or error
            message = f"the text {key!r} of the {kind} is not used: {error.message}"
            report.warn(Reason.BROKEN_JSON, message)
    if failure is not None:
        raise failure
    message = (
        f"This {kind} file holds no ComfyUI workflow: texts called 'workflow' and 'prompt' were "
        "looked for. Save it from ComfyUI with metadata on, or export the workflow as JSON."
    )
    raise NoRecipe(message)


def _check_size(size_bytes: int, limit_bytes: int, what: str) -> None:
    if size_bytes > limit_bytes:
        message = f"The {what} is larger than the limit of {limit_bytes} bytes."
        raise PayloadTooLarge(message, details={"limitBytes": limit_bytes})


def _decoded(data: bytes) -> str:
    encoding = next((name for mark, name in _BOMS if data.startswith(mark)), "utf-8")
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        message = (
            f"This file is neither a known media file nor text ({error.reason} at byte "
            f"{error.start}): a ComfyUI workflow as JSON, or a picture, video or sound that holds "
            "one, was expected."
        )
        raise NoRecipe(message) from error


def _parsed(text: str, max_json_bytes: int, where: str, report: Report) -> Any:
    """The JSON value of a text.  Raises: InvalidRequest, PayloadTooLarge."""
    _check_size(len(text), max_json_bytes, "JSON")
    literals: list[str] = []

    def not_finite(literal: str) -> float:
        literals.append(literal)
        return float(literal.replace("Infinity", "inf"))

    try:
        document = json.loads(text, parse_constant=not_finite)
    except json.JSONDecodeError as error:
        message = f"{where} is broken JSON: {_fault(text, error)}."
        details = {"line": error.lineno, "column": error.colno}
        raise InvalidRequest(message, details=details) from error
    except (ValueError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        message = f"{where} is no JSON that can be read: {why}."
        raise InvalidRequest(message) from error
    if literals:
        line, column = _first_not_finite(text)
        message = (
            f"{where} has {literals[0]} at line {line} column {column} ({len(literals)} in all): "
            "JSON has no such numbers"
        )
        report.warn(Reason.NOT_FINITE, message)
    return document


def _fault(text: str, error: json.JSONDecodeError) -> str:
    place = f"line {error.lineno} column {error.colno}"
    if not text.strip():
        return "it is empty"
    if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string"):
        return f"it ends too early, a closing brace or quote is missing ({error.msg}: {place})"
    return f"{error.msg} at {place}, near {text[error.pos : error.pos + 20]!r}"


def _first_not_finite(text: str) -> tuple[int, int]:
    place = next(match.start(1) for match in _NOT_FINITE.finditer(text) if match[1])
    return text.count("\n", 0, place) + 1, place - (text.rfind("\n", 0, place) + 1) + 1


def _placed(document: Any, place: str, report: Report) -> FoundWorkflow:
    wrappers: list[str] = []
    # VideoHelperSuite's comment has both texts, and there, as in pictures, the workflow is better.
    from_file = place != "json"
    for _ in range(_MAX_WRAPPERS):
        document = _unquoted(document, place, report)
        form = format_of(document)
        if form is not None:
            _check_depth(document)
            return FoundWorkflow(form, document, place, tuple(wrappers), report)
        key = _wrapper(document, from_file)
        if key is None:
            break
        wrappers.append(key)
        document = document[key]
    raise NoRecipe(_nothing_in(document, wrappers))


def _check_depth(document: Any) -> None:
    """Raise `InvalidRequest` for values so deep that walking over them could fail."""
    level = [document]
    for _ in range(_MAX_DEPTH):
        inner: list[Any] = []
        for part in level:
            if isinstance(part, dict):
                inner.extend(part.values())
            elif isinstance(part, list):
                inner.extend(part)
        if not inner:
            return
        level = inner
    message = f"The workflow is nested over {_MAX_DEPTH} levels deep, which none needs to be."
    raise InvalidRequest(message)


def _unquoted(document: Any, place: str, report: Report) -> Any:
    """The value of a text inside JSON that is itself JSON; some clients quote twice."""
    if isinstance(document, str) and document.lstrip().startswith("{"):
        return _parsed(document, MAX_JSON_BYTES, f"The quoted text in {place}", report)
    match document:
        # Prompts in histories and queues: [number, id, prompt, extra data, outputs]
        case [_, _, dict() as prompt, *_]:
            return prompt
    return document


def _wrapper(document: Any, from_file: bool) -> str | None:
    """The key of the document inside another one."""
    if not isinstance(document, dict):
        return None
    keys: Sequence[str] = ("prompt", "workflow", "output", "extra_data", "extra_pnginfo", "extra")
    if from_file:
        keys = ("workflow", "prompt", *keys[2:])
    wrapping = [key for key in keys if isinstance(document.get(key), dict | str | list)]
    holding = (key for key in wrapping if format_of(document[key]) is not None)
    return next(holding, wrapping[0] if wrapping else None)


def format_of(document: Any) -> WorkflowFormat | None:
    """The form of a document; None if it is no workflow (a wrapper of one, say)."""
    if not isinstance(document, dict):
        return None
    nodes = document.get("nodes")
    if isinstance(nodes, list):
        return _ui_format(document) if not nodes or _has_types(nodes) else None
    if any(isinstance(node, dict) and "class_type" in node for node in document.values()):
        return WorkflowFormat.API
    return None


def _has_types(nodes: Sequence[Any]) -> bool:
    """Whether these are nodes of the editor; graphs of this program lack its `links` and slots."""
    marks = {"inputs", "outputs", "widgets_values", "mode", "pos", "properties"}
    return any(
        "type" in node and node.keys() & marks and not isinstance(node.get("inputs"), dict)
        for node in nodes
        if isinstance(node, dict) and "params" not in node
    )


def _ui_format(document: Mapping[str, Any]) -> WorkflowFormat | None:
    links = document.get("links")
    first = links[0] if isinstance(links, list) and links else None
    if isinstance(first, dict) or document.get("version") == 1 or "state" in document:
        return WorkflowFormat.UI_1
    if links is None and "version" not in document and "last_node_id" not in document:
        return None
    return WorkflowFormat.UI_0_4


def _nothing_in(document: Any, wrappers: Sequence[str]) -> str:
    inside = f" inside {' / '.join(wrappers)}" if wrappers else ""
    if isinstance(document, dict):
        shown = ", ".join(repr(str(key)) for key in list(document)[:_SHOWN_KEYS]) or "none"
        what = f"an object with the keys {shown}"
    else:
        what = "null" if document is None else f"a {type(document).__name__}"
    return (
        f"This is no ComfyUI workflow: {what} was found{inside}, where a list 'nodes' (a saved "
        "workflow) or objects with 'class_type' (an API prompt) were looked for."
    )
