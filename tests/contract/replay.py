"""Replaying recorded exchanges: equal status, and every recorded key with the same type."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from tests.live import LiveServer

RECORDINGS = Path(__file__).parent / "recordings"
FINAL = {"done", "error", "cancelled"}


def recording(name: str) -> Any:
    return json.loads((RECORDINGS / f"{name}.json").read_text())


def exchanges(document: Any) -> Iterator[dict[str, Any]]:
    """All recorded request/reply pairs of a file, in order."""
    if isinstance(document, dict):
        if "request" in document and "status" in document:
            yield document
            return
        for value in document.values():
            yield from exchanges(value)
    elif isinstance(document, list):
        for value in document:
            yield from exchanges(value)


def assert_same_shape(recorded: Any, ours: Any, where: str = "$") -> None:
    """Ours may have more keys, never fewer; None stands for a value that may be absent."""
    if recorded is None or ours is None:
        return
    if isinstance(recorded, dict):
        assert isinstance(ours, dict), f"{where}: {ours!r} is no object"
        missing = set(recorded) - set(ours)
        assert not missing, f"{where}: {missing} missing in {ours!r}"
        for key, value in recorded.items():
            assert_same_shape(value, ours[key], f"{where}.{key}")
    elif isinstance(recorded, list):
        assert isinstance(ours, list), f"{where}: {ours!r} is no list"
        for one, other in zip(recorded, ours, strict=False):
            assert_same_shape(one, other, f"{where}[]")
    elif isinstance(recorded, bool):
        assert isinstance(ours, bool), f"{where}: {ours!r} is no boolean"
    elif isinstance(recorded, int | float):
        assert isinstance(ours, int | float), f"{where}: {ours!r} is no number"
    else:
        assert isinstance(ours, type(recorded)), f"{where}: {ours!r}"


class Replayer:
    """Sends recorded requests to a live server; recorded run ids become ours."""

    def __init__(self, server: LiveServer) -> None:
        self.server = server
        self.run_ids: dict[str, str] = {}
        self.paths: dict[str, str] = {}

    def send(self, exchange: dict[str, Any]) -> httpx.Response:
        request = exchange["request"]
        url, body = request["url"], request["body"]
        for recorded, ours in self.run_ids.items():
            url = url.replace(recorded, ours)
            if url.endswith(ours) and request["method"] == "GET":
                self.server.wait_until_final(ours)
        for recorded, ours in self.paths.items():
            body = body.replace(recorded, ours) if isinstance(body, str) else body
        headers = {}
        if request["method"] in {"POST", "PUT"}:
            headers["content-type"] = "application/json"
        if "if-none-match" in exchange:
            headers["if-none-match"] = exchange["if-none-match"]
        content = body.encode() if isinstance(body, str) else body
        response = self.server.http.request(
            request["method"], url, content=content, headers=headers
        )
        recorded_body = exchange.get("body")
        if isinstance(recorded_body, dict) and "runId" in recorded_body and response.is_success:
            self.run_ids.setdefault(recorded_body["runId"], response.json()["runId"])
        return response

    def check(self, exchange: dict[str, Any], response: httpx.Response) -> None:
        """Equal status, content type and shape."""
        assert response.status_code == exchange["status"], response.text
        recorded = exchange.get("body")
        if isinstance(recorded, dict) and "__text__" not in recorded and "bytes" not in recorded:
            assert response.headers["content-type"] == "application/json"
            assert_same_shape(recorded, response.json())
            if (
                "error" in recorded
                and isinstance(recorded["error"], dict)
                and "code" in recorded["error"]
            ):
                assert response.json()["error"]["code"] == recorded["error"]["code"]
                assert response.json()["error"].get("nodeId") == recorded["error"].get("nodeId")
