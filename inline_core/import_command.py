"""`inline-core import`: a ComfyUI workflow as a graph, with a report, and run if it is wanted."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from inline_core.errors import AlreadyRunning, InvalidRequest
from inline_core.local_runs import checked, run_here, run_there, running_server
from inline_core.server.importing import imported_workflow
from inline_core.server.services import Services, build_services
from inline_core.settings import Settings

_QUIET: Final = {"converted", "folded"}
EXIT_INCOMPLETE: Final = 1


def import_workflow(namespace: argparse.Namespace, settings: Settings) -> int:
    """Import a file, print the report, write the graph, run it; 1 if something is in the way.

    Raises: InlineError for a file without a workflow, or if the run fails.
    """
    path: Path = namespace.workflow
    if not path.is_file():
        message = f"there is no file {path}"
        raise InvalidRequest(message)
    data = path.read_bytes()
    try:
        services = build_services(settings)
    except AlreadyRunning:
        return _over_http(namespace, settings, data)
    services.start()
    try:
        return _here(namespace, services, data)
    finally:
        services.stop()


def _here(namespace: argparse.Namespace, services: Services, data: bytes) -> int:
    found = imported_workflow(services, data)
    if not _told(namespace, found):
        return EXIT_INCOMPLETE
    if namespace.run_it:
        view = run_here(services, {"graph": found["graph"], "targets": found["targets"]})
        for take in view.takes:
            if take.node_id in found["targets"]:
                file = services.takes.path(take.sha256, take.extension)
                _write(namespace.output, take.id, take.extension, file.read_bytes())
    return 0


def _over_http(namespace: argparse.Namespace, settings: Settings, data: bytes) -> int:
    with running_server(settings) as client:
        kind = {"content-type": "application/octet-stream"}
        found = checked(client.post("/v1/import/comfyui", content=data, headers=kind))
        if not _told(namespace, found):
            return EXIT_INCOMPLETE
        if namespace.run_it:
            run = run_there(client, {"graph": found["graph"], "targets": found["targets"]})
            for take in run["takes"]:
                if take["nodeId"] in found["targets"]:
                    data = client.get(f"/v1/takes/{take['id']}/bytes").content
                    extension = str(take["uri"]).rpartition(".")[2]
                    _write(namespace.output, take["id"], extension, data)
    return 0


def _told(namespace: argparse.Namespace, found: Mapping[str, Any]) -> bool:
    """Print the report and write the graph; False if it cannot be run as it is."""
    report = found["report"]
    print(report["summary"], file=sys.stderr)
    for line in _lines(report):
        print(line, file=sys.stderr)
    if namespace.graph is not None:
        body = {"graph": found["graph"], "targets": found["targets"]}
        namespace.graph.write_text(json.dumps(body, indent=1), encoding="utf-8")
        print(f"wrote {namespace.graph}")
    elif not namespace.run_it:
        print(json.dumps({"graph": found["graph"], "targets": found["targets"]}))
    if not found["targets"]:
        return False
    blocked = [problem for problem in report["problems"] if problem.get("severity") != "warning"]
    return not (namespace.run_it and blocked) and (namespace.run_it or report["complete"])


def _lines(report: Mapping[str, Any]) -> Sequence[str]:
    """What people should know, one line each."""
    lines = []
    for node in report["nodes"]:
        if node["state"] not in _QUIET and node["state"] != "ignored":
            hint = f" Instead: {node['alternative']}" if node["alternative"] else ""
            lines.append(
                f"{node['state']}: {node['title']} ({node['classType']} {node['nodeId']}): "
                f"{node['reason']}.{hint}"
            )
        lines.extend(f"note: {node['title']} {node['nodeId']}: {text}" for text in node["warnings"])
    lines.extend(
        f"{line['severity']}: {line['nodeType'] or ''} {line['nodeId'] or ''}: {line['message']}"
        for line in report["lines"]
        if line["severity"] != "info"
    )
    for file in report["files"]:
        if not file["present"]:
            where = f", get it from {file['url']}" if file["url"] else ""
            lines.append(f"missing: models/{file['category']}/{file['name']}{where}")
    return lines


def _write(folder: Path, take_id: str, extension: str, data: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{take_id}.{extension}"
    target.write_bytes(data)
    print(f"wrote {target}")
