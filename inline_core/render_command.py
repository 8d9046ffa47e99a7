"""`inline-core render`: one picture from the command line, as a durable run like any other."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inline_core.errors import AlreadyRunning, InvalidRequest
from inline_core.local_runs import checked, run_here, run_there, running_server
from inline_core.server.services import Services, build_services
from inline_core.settings import Settings

_PARAMS = ("width", "height", "steps", "guidance", "seed", "negative_prompt", "strength", "model")
_TARGET = "picture"


def render(namespace: argparse.Namespace, settings: Settings) -> int:
    """Render with a server that runs already on this data folder, else in this process.

    Raises: InlineError if the run fails; its message says why.
    """
    try:
        services = build_services(settings)
    except AlreadyRunning:
        return _render_over_http(namespace, settings)
    services.start()
    try:
        return _render_here(namespace, services)
    finally:
        services.stop()


def graph_for(namespace: argparse.Namespace, image: Mapping[str, Any] | None) -> dict[str, Any]:
    """The graph of a render: a prompt, maybe a picture, and the one-click node."""
    params = {
        name: getattr(namespace, name)
        for name in _PARAMS
        if getattr(namespace, name, None) is not None
    }
    nodes: list[dict[str, Any]] = [
        {"id": "prompt", "type": "input/text", "params": {"text": namespace.prompt}}
    ]
    inputs = {"prompt": {"from": "prompt", "output": "text"}}
    if image is not None:
        nodes.append({"id": "image", "type": "input/image", "params": {"asset": dict(image)}})
        inputs["image"] = {"from": "image", "output": "image"}
    nodes.append({"id": _TARGET, "type": namespace.node, "params": params, "inputs": inputs})
    return {"schemaVersion": 1, "nodes": nodes}


def _picture(path: Path | None) -> Path | None:
    if path is not None and not path.is_file():
        message = f"--image: there is no file {path}"
        raise InvalidRequest(message)
    return path


def _render_here(namespace: argparse.Namespace, services: Services) -> int:
    image = _picture(namespace.image)
    reference = None
    if image is not None:
        from inline_core.server.routes.takes import keep_file

        reference = {"ref": "asset", "id": keep_file(services, image).id}
    view = run_here(services, {"graph": graph_for(namespace, reference), "target": _TARGET})
    take = view.takes[0]
    data = services.takes.path(take.sha256, take.extension).read_bytes()
    _write(namespace.output, data, take.params)
    return 0


def _render_over_http(namespace: argparse.Namespace, settings: Settings) -> int:
    """Use the server that holds the data folder."""
    with running_server(settings) as client:
        image = _picture(namespace.image)
        reference = None
        if image is not None:
            stored = checked(client.post("/v1/assets", content=image.read_bytes()))
            reference = {"ref": "asset", "id": stored["id"]}
        run = run_there(client, {"graph": graph_for(namespace, reference), "target": _TARGET})
        take = run["takes"][0]
        data = client.get(f"/v1/takes/{take['id']}/bytes").content
        _write(namespace.output, data, take["params"])
    return 0


def _write(path: Path, data: bytes, params: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    print(f"wrote {path} (seed {params.get('seed')}, model {params.get('model')})")
