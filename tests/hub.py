"""A model hub on loopback that speaks the real one's protocol, with doors to hold and cut bytes.

Large files answer with a redirect to another host ("localhost" beside "127.0.0.1"), as on the real
hub, small ones directly.  Every request and every byte served is counted.
"""

from __future__ import annotations

import contextlib
import hashlib
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote, unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
SIGNATURE = "signature-of-the-cdn"
_PIECE = 16 * 1024


@dataclass(slots=True)
class Gate:
    """Holds a file's bytes back from `after` on, until it is opened."""

    after: int
    reached: threading.Event = field(default_factory=threading.Event)
    opened: threading.Event = field(default_factory=threading.Event)

    def wait(self) -> None:
        assert self.reached.wait(20), "nobody asked for these bytes"


@dataclass(slots=True)
class HubFile:
    """A file and what the hub says of it, which may be a lie."""

    content: bytes
    large: bool = True
    digest: str = ""
    size: int = 0
    gate: Gate | None = None
    cuts: list[int] = field(default_factory=list)
    ranges: bool = True
    chunked: bool = False
    status: int = 0
    error_code: str = ""

    def __post_init__(self) -> None:
        self.size = self.size or len(self.content)
        self.digest = self.digest or (
            hashlib.sha256(self.content).hexdigest()
            if self.large
            else hashlib.sha1(b"blob %d\0" % len(self.content) + self.content).hexdigest()
        )


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it came."""

    method: str
    path: str
    host: str
    authorization: str | None
    range: str | None


class FakeHub:
    """The hub; `url` is what `HF_ENDPOINT` names."""

    def __init__(self) -> None:
        self.files: dict[str, HubFile] = {}
        self.asked: list[Asked] = []
        self.served: Counter[str] = Counter()
        self.token: str | None = None
        handler = type("Handler", (_Handler,), {"hub": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = False
        self.port: int = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def add(self, repo: str, file: str, content: bytes, **facts: Any) -> HubFile:
        """Publish a file; the facts are fields of `HubFile`."""
        self.files[f"{repo}/{file}"] = made = HubFile(content, **facts)
        return made

    def hold(self, repo: str, file: str, after: int) -> Gate:
        """Serve a file up to here only, until the gate is opened."""
        self.files[f"{repo}/{file}"].gate = gate = Gate(after)
        return gate

    def gets(self) -> list[Asked]:
        """The requests for bytes, without those that only lead there."""
        return [asked for asked in self.asked if asked.method == "GET" and "/blob/" in asked.path]

    def close(self) -> None:
        for file in self.files.values():
            if file.gate:
                file.gate.opened.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@contextlib.contextmanager
def fake_hub() -> Iterator[FakeHub]:
    hub = FakeHub()
    try:
        yield hub
    finally:
        hub.close()


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Tests look at `asked` instead."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        self.close_connection = True
        path = unquote(urlsplit(self.path).path)
        self.hub.asked.append(
            Asked(
                self.command,
                self.path,
                self.headers["Host"],
                self.headers["Authorization"],
                self.headers["Range"],
            )
        )
        with contextlib.suppress(ConnectionError):
            if path.startswith("/blob/"):
                name = path.removeprefix("/blob/")
                self._body(name, self.hub.files[name])
            else:
                self._resolve(path)

    def _resolve(self, path: str) -> None:
        repo, _, rest = path.removeprefix("/").partition("/resolve/")
        revision, _, name = rest.partition("/")
        key = f"{repo}/{name}"
        file = self.hub.files.get(key)
        authorized = self.headers["Authorization"] == f"Bearer {self.hub.token}"
        if self.hub.token is not None and not authorized:
            self._refuse(401, "GatedRepo")
        elif not any(known.startswith(f"{repo}/") for known in self.hub.files):
            self._refuse(401, "RepoNotFound")
        elif revision not in {"main", COMMIT}:
            self._refuse(404, "RevisionNotFound")
        elif file is None:
            self._refuse(404, "EntryNotFound")
        elif file.status:
            self._refuse(file.status, file.error_code)
        elif file.large:
            self._redirect(key, file)
        else:
            self._body(key, file)

    def _refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
            self.send_header("X-Error-Message", "no")
        self.send_header("Content-Length", "0")
        self.send_header("Connection", "close")
        self.end_headers()

    def _redirect(self, key: str, file: HubFile) -> None:
        self.send_response(302)
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("X-Linked-Size", str(file.size))
        self.send_header("X-Linked-Etag", f'"{file.digest}"')
        self.send_header("ETag", '"of-the-redirect"')
        where = f"http://localhost:{self.hub.port}/blob/{quote(key)}?sig={SIGNATURE}"
        self.send_header("Location", where)
        self.send_header("Content-Length", "0")
        self.send_header("Connection", "close")
        self.end_headers()

    def _body(self, key: str, file: HubFile) -> None:
        start = 0
        wanted = self.headers["Range"]
        if wanted and file.ranges:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
        total = len(file.content)
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{total - 1}/{total}")
        if file.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            length = file.size if self.command == "HEAD" else total - start
            self.send_header("Content-Length", str(length))
        if not file.large:
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("ETag", f'"{file.digest}"')
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command == "GET":
            self._send(key, file, start)

    def _send(self, key: str, file: HubFile, position: int) -> None:
        cut = file.cuts.pop(0) if file.cuts else None
        while position < len(file.content):
            gate = file.gate
            ends = [position + _PIECE, len(file.content)]
            if gate and not gate.opened.is_set():
                if position >= gate.after:
                    self.wfile.flush()
                    gate.reached.set()
                    assert gate.opened.wait(30)
                    continue
                ends.append(gate.after)
            if cut is not None:
                if position >= cut:
                    self.wfile.flush()
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                ends.append(cut)
            piece = file.content[position : min(ends)]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if file.chunked else piece)
            self.hub.served[key] += len(piece)
            position += len(piece)
        if file.chunked:
            self.wfile.write(b"0\r\n\r\n")
