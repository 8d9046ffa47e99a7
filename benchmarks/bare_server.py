"""The limit: the least code that keeps the same promise of a durable accepted run.

Two durable commits a run (accepted, done) by a group-commit writer, and a websocket push.
"""

from __future__ import annotations

import asyncio
import json
import queue
import socket
import sqlite3
import sys
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, WebSocket
from fastapi.responses import JSONResponse


class Writer:
    """Group commit: everything that waits shares one fsync."""

    def __init__(self, path: Path) -> None:
        self.items: queue.SimpleQueue[tuple[str, tuple[Any, ...], Future[None]]] = (
            queue.SimpleQueue()
        )
        self.path = path
        threading.Thread(target=self._serve, daemon=True).start()

    def write(self, statement: str, values: tuple[Any, ...]) -> Future[None]:
        """Queue one statement."""
        future: Future[None] = Future()
        self.items.put((statement, values, future))
        return future

    def _serve(self) -> None:
        connection = sqlite3.connect(self.path, isolation_level=None)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("CREATE TABLE runs (id INTEGER PRIMARY KEY, graph TEXT, status TEXT)")
        while True:
            group = [self.items.get()]
            while len(group) < 128 and not self.items.empty():
                group.append(self.items.get())
            connection.execute("BEGIN IMMEDIATE")
            for statement, values, _ in group:
                connection.execute(statement, values)
            connection.execute("COMMIT")
            for _, _, future in group:
                future.set_result(None)


def create(folder: Path) -> FastAPI:
    """The bare application."""
    app = FastAPI()
    writer = Writer(folder / "bare.db")
    done: dict[int, asyncio.Event] = {}
    numbers = iter(range(1, 10**9))

    @app.get("/v1/health")
    async def health() -> JSONResponse:
        return JSONResponse({"ok": True})

    @app.post("/v1/runs")
    async def submit(request: Request) -> JSONResponse:
        body = await request.json()
        number = next(numbers)
        done[number] = asyncio.Event()
        insert = "INSERT INTO runs VALUES (?, ?, 'queued')"
        await asyncio.wrap_future(writer.write(insert, (number, json.dumps(body["graph"]))))
        asyncio.get_running_loop().create_task(finish(number))
        return JSONResponse({"runId": str(number), "status": "queued"}, 201)

    async def finish(number: int) -> None:
        update = "UPDATE runs SET status = 'done' WHERE id = ?"
        await asyncio.wrap_future(writer.write(update, (number,)))
        done[number].set()

    @app.websocket("/v1/runs/{number}/events")
    async def events(websocket: WebSocket, number: int) -> None:
        await websocket.accept()
        await done[number].wait()
        await websocket.send_text(json.dumps({"type": "run_done", "runId": str(number)}))
        await websocket.close()

    @app.websocket("/fan")
    async def fan(websocket: WebSocket) -> None:
        """Serialise once, send to all: `frames` frames to each socket, paced by the client."""
        await websocket.accept()
        count = int(websocket.query_params["frames"])
        text = websocket.query_params["text"]
        await websocket.receive_text()
        for _ in range(count):
            await websocket.send_text(text)
        await websocket.close()

    return app


def main() -> None:
    """Serve on a free port; `server.json` tells which."""
    folder = Path(sys.argv[1])
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    address = {"url": f"http://127.0.0.1:{listener.getsockname()[1]}"}
    (folder / "server.json").write_text(json.dumps(address))
    config = uvicorn.Config(create(folder), log_config=None, access_log=False)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
