"""The process that uses Ray for a server: `python -m inline_core.engine.cluster_driver`.

It ends with the server, whatever happens to that, and takes its workers with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import sys
import threading
from multiprocessing.connection import Client
from typing import Any, Final

from inline_core.engine.cluster_dispatch import Dispatcher
from inline_core.engine.cluster_fleet import ClusterOrder, Fleet
from inline_core.errors import InlineError
from inline_core.sampling.backends.ray_driver import DRIVER_VARIABLE
from inline_core.sampling.backends.ray_wire import Wire

_TICK_S: Final = 0.2
_SERVER: Final = 0

Inbox = queue.SimpleQueue[tuple[int, Any]]


def main() -> int:
    """Work for the server until it says stop or is gone; gives the exit code."""
    told = json.loads(os.environ.pop(DRIVER_VARIABLE))
    wire = Wire(Client(told["address"], authkey=bytes.fromhex(told["key"])))
    orders = wire.receive()
    inbox: Inbox = queue.SimpleQueue()
    connected = threading.Event()
    threading.Thread(target=_listen, args=(wire, inbox, connected), daemon=True).start()
    fleet = Fleet(ClusterOrder(**orders["order"]), inbox)
    try:
        fleet.connect()
    except InlineError as error:
        wire.send({"kind": "unreachable", "message": error.message})
        return 1
    connected.set()
    wire.send({"kind": "connected"})

    def tell(message: dict[str, Any]) -> None:
        # A server that is gone is noticed by who listens to it.
        with contextlib.suppress(OSError):
            wire.send(message)

    dispatcher = Dispatcher(
        fleet, tell, orders["versions"], orders["most_jobs"], orders["start_timeout_s"]
    )
    try:
        _work(inbox, dispatcher)
    finally:
        fleet.close()
    # Its log too: a server that is gone does not look into it.
    shutil.rmtree(orders["order"]["folder"], ignore_errors=True)
    return 0


def _work(inbox: Inbox, dispatcher: Dispatcher) -> None:
    while True:
        with contextlib.suppress(queue.Empty):
            sender, message = inbox.get(timeout=_TICK_S)
            while True:
                if sender != _SERVER:
                    dispatcher.from_worker(sender, message)
                elif message["kind"] == "stop":
                    return
                else:
                    dispatcher.from_server(message)
                sender, message = inbox.get_nowait()
        dispatcher.tick()


def _listen(wire: Wire, inbox: Inbox, connected: threading.Event) -> None:
    """Pass on what the server says, and its end."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            inbox.put((_SERVER, wire.receive()))
    if not connected.is_set():
        # Ray may wait long for a cluster; what it has started ends with this process.
        os._exit(1)
    inbox.put((_SERVER, {"kind": "stop"}))


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
