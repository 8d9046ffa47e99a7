"""`inline-core render`: one picture from the command line, as a durable run like any other."""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from inline_core.errors import AlreadyRunning, InlineError, InvalidRequest, NodeFailed
from inline_core.runs.records import RunError
from inline_core.server.services import Services, build_services
from inline_core.server.submit import new_run
from inline_core.settings import Settings

_PARAMS = ("width", "height", "steps", "guidance", "seed", "negative_prompt", "strength", "model")
_TARGET = "picture"
_POLL_WAIT_S = 600


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
    document = {"graph": graph_for(namespace, reference), "target": _TARGET}
    new = new_run(services, document)
    ended = threading.Event()

    def watch(events: Any) -> None:
        if any(event.run_id == new.id and event.type.is_terminal for event in events):
            ended.set()

    services.database.on_commit(watch)
    services.log.listen(_printer(services, new.id))
    services.journal.submit([new]).result()
    ended.wait()
    print(file=sys.stderr)
    view = services.queries.run(new.id)
    if view.head.error is not None:
        raise _as_error(view.head.error)
    take = view.takes[0]
    data = services.takes.path(take.sha256, take.extension).read_bytes()
    _write(namespace.output, data, take.params)
    for warning in view.warnings:
        print(f"note: {warning['message']}", file=sys.stderr)
    return 0


def _as_error(error: RunError) -> InlineError:
    return NodeFailed(f"{error.message} [{error.code}]", node_id=error.node_id)


def _printer(services: Services, run_id: str) -> Any:
    def show(changed: str) -> None:
        if changed != run_id:
            return
        slots = services.board.slots(run_id)
        newest = max(slots.values(), key=lambda slot: slot.version, default=None)
        if newest is not None and newest.status:
            print(f"\r{newest.status:<40}", end="", file=sys.stderr, flush=True)

    return show


def _render_over_http(namespace: argparse.Namespace, settings: Settings) -> int:
    """Use the server that holds the data folder."""
    address = json.loads((settings.data_dir / "server.json").read_text(encoding="utf-8"))["url"]
    token_file = settings.data_dir / "token"
    token = settings.token or (token_file.read_text().strip() if token_file.exists() else None)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with httpx.Client(base_url=address, headers=headers, timeout=_POLL_WAIT_S + 30) as client:
        image = _picture(namespace.image)
        reference = None
        if image is not None:
            stored = _checked(client.post("/v1/assets", content=image.read_bytes()))
            reference = {"ref": "asset", "id": stored["id"]}
        body = {"graph": graph_for(namespace, reference), "target": _TARGET}
        run = _checked(client.post("/v1/runs", params={"wait": _POLL_WAIT_S}, json=body))
        if run["status"] != "done":
            error = run.get("error") or {}
            message = f"The run is {run['status']}: {error.get('message', 'no reason given')}"
            raise NodeFailed(message)
        take = run["takes"][0]
        data = client.get(f"/v1/takes/{take['id']}/bytes").content
        _write(namespace.output, data, take["params"])
    return 0


def _checked(response: httpx.Response) -> Any:
    body = response.json()
    if response.is_error:
        raise InvalidRequest(body["error"]["message"])
    return body


def _write(path: Path, data: bytes, params: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    print(f"wrote {path} (seed {params.get('seed')}, model {params.get('model')})")
