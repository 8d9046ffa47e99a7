"""Foreign workflows for `/v1/import/comfyui`: the graph, and what became of each node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from inline_core.errors import InvalidGraph
from inline_core.importers.comfyui.converting import (
    Conversion,
    NamedFile,
    NodeReport,
    convert,
    summary,
)
from inline_core.importers.comfyui.flattening import FlatWorkflow, flatten
from inline_core.importers.comfyui.reading import FoundWorkflow, read_workflow
from inline_core.importers.comfyui.report import ReportLine
from inline_core.server.errors import problem_json
from inline_core.server.services import Services
from inline_core.server.submit import wholly_checked


def imported_workflow(services: Services, data: bytes, *, seed: int = 0) -> dict[str, Any]:
    """The reply for the bytes of a JSON or media file; nothing is stored.

    `seed` chooses among the options of dynamic prompts.
    Raises: InvalidRequest, NoRecipe, InvalidAsset, PayloadTooLarge.
    """
    found = read_workflow(data)
    flat = flatten(found, prompt_seed=seed)
    conversion = converted(services, flat)
    return {
        "graph": dict(conversion.graph),
        "targets": list(conversion.targets),
        "prompt": flat.prompt,
        "report": _report(services, found, flat, conversion),
    }


def converted(services: Services, flat: FlatWorkflow) -> Conversion:
    """The graph of a flattened workflow, with the models folder of the server."""

    def has_file(category: str, name: str) -> bool:
        files = services.catalog.pickable(category)
        return any(file.name == name for file in files)

    return convert(flat, services.specs, has_file)


def _report(
    services: Services, found: FoundWorkflow, flat: FlatWorkflow, conversion: Conversion
) -> dict[str, Any]:
    problems = list(_problems(services, conversion))
    return {
        "source": "comfyui",
        "format": found.format.value,
        "place": found.place,
        "complete": not conversion.unsupported and bool(conversion.targets),
        "summary": summary(conversion),
        "nodes": [_node(node) for node in conversion.nodes],
        "lines": [_line(line) for line in flat.report],
        "files": [_file(file) for file in conversion.files],
        "problems": problems,
        "notes": [
            {"nodeId": note.node_id, "title": note.title, "text": note.text} for note in flat.notes
        ],
    }


def _problems(services: Services, conversion: Conversion) -> Iterator[dict[str, Any]]:
    """Why the graph could not run now: files that are not there, values that are refused."""
    if not conversion.targets:
        return
    document = {"graph": conversion.graph, "targets": list(conversion.targets)}
    try:
        checked = wholly_checked(services, document)
    except InvalidGraph as error:
        yield from (problem_json(problem) for problem in error.problems)
    else:
        yield from (problem_json(problem) for problem in checked.warnings)


def _node(node: NodeReport) -> dict[str, Any]:
    return {
        "nodeId": node.node_id,
        "classType": node.class_type,
        "title": node.title,
        "state": node.state.value,
        "reason": node.reason or None,
        "alternative": node.alternative or None,
        "nodes": list(node.nodes),
        "warnings": list(node.warnings),
    }


def _line(line: ReportLine) -> dict[str, Any]:
    return {
        "severity": line.severity.value,
        "reason": line.reason.value,
        "message": line.message,
        "nodeId": line.node_id,
        "nodeType": line.node_type,
        "input": line.input,
    }


def _file(file: NamedFile) -> dict[str, Any]:
    return {
        "nodeId": file.node_id,
        "category": file.category,
        "name": file.name,
        "present": file.present,
        "url": file.url,
    }
