"""Runs started from the command line: by a server that runs already, else in this process."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import httpx

from inline_core.errors import InlineError, InvalidRequest, NodeFailed
from inline_core.runs.records import RunError, RunView
from inline_core.server.services import Services
from inline_core.server.submit import new_run
from inline_core.settings import Settings

_POLL_WAIT_S: Final = 600


def run_here(services: Services, document: Mapping[str, Any]) -> RunView:
    """Run a graph in this process and wait for its end, showing how far it is.

    Raises: InvalidRequest, InvalidGraph, NodeFailed with the run's own message.
    """
    new = new_run(services, dict(document))
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
    for warning in view.warnings:
        print(f"note: {warning['message']}", file=sys.stderr)
    return view


@contextmanager
def running_server(settings: Settings) -> Iterator[httpx.Client]:
    """A client of the server that holds the data folder."""
    address = json.loads((settings.data_dir / "server.json").read_text(encoding="utf-8"))["url"]
    token_file = settings.data_dir / "token"
    token = settings.token or (token_file.read_text().strip() if token_file.exists() else None)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with httpx.Client(base_url=address, headers=headers, timeout=_POLL_WAIT_S + 30) as client:
        yield client


def run_there(client: httpx.Client, document: Mapping[str, Any]) -> dict[str, Any]:
    """Run a graph on a server and wait for its end.

    Raises: InvalidRequest if it is refused, NodeFailed with the run's own message.
    """
    run = checked(client.post("/v1/runs", params={"wait": _POLL_WAIT_S}, json=dict(document)))
    if run["status"] != "done":
        error = run.get("error") or {}
        message = f"The run is {run['status']}: {error.get('message', 'no reason given')}"
        raise NodeFailed(message)
    return dict(run)


def checked(response: httpx.Response) -> Any:
    """The body of a reply.  Raises: InvalidRequest with the server's message."""
    body = response.json()
    if response.is_error:
        raise InvalidRequest(body["error"]["message"])
    return body


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
