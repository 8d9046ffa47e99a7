"""The process that uses Ray, as the server sees it: started, listened to, ended.

Ray is kept out of the server's process, which it would end with a lost cluster, and whose signal
handlers and logs it changes.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from multiprocessing.connection import Listener
from pathlib import Path
from typing import IO, Any, Final

import psutil
import structlog

from inline_core.sampling.backends.ray_wire import Wire

_log = structlog.get_logger(__name__)
# Tells the process where the server listens.
DRIVER_VARIABLE: Final = "INLINE_CLUSTER_DRIVER"
_KEY_BYTES: Final = 32
_LOG_TAIL_BYTES: Final = 4000
_END_WAIT_S: Final = 7.0


class Driver:
    """One start of the process.  `inbox` has its messages, {"kind": "gone"} last."""

    def __init__(self, module: str, orders: Mapping[str, Any]) -> None:
        """`module` is run as the process; `orders` is its first message."""
        self.inbox: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.started_s = self.heard_s = time.monotonic()
        self.connected = False
        self.folder = Path(tempfile.mkdtemp(prefix="inline-ray-"))
        self._module = module
        self._orders = dict(orders)
        self._wire: Wire | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._family: dict[int, psutil.Process] = {}
        self._listener: Listener | None = None
        self._log: IO[bytes] | None = None
        self._ended = False

    def start(self) -> None:
        """Start it; it connects to the cluster by itself.  Raises: OSError."""
        key = secrets.token_bytes(_KEY_BYTES)
        address = str(self.folder / "driver.sock")
        self._listener = Listener(address, "AF_UNIX", authkey=key)
        self._log = (self.folder / "driver.log").open("wb")
        environment = {
            **os.environ,
            DRIVER_VARIABLE: json.dumps({"address": address, "key": key.hex()}),
            # An embedded cluster is nobody else's, and needs no key in the user's home.
            **({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(_KEY_BYTES)}
               if self._orders["order"]["address"] == "local" else {}),
        }  # fmt: skip
        self._process = subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "-m", self._module],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            # A Ctrl-C is for the server, which then ends its workers.
            start_new_session=True,
        )
        threading.Thread(target=self._serve, name="ray-driver", daemon=True).start()
        _log.info("cluster_driver_started", pid=self._process.pid)

    def send(self, **message: Any) -> None:
        """Send a message; one that is gone is told as such.  Raises: Internal."""
        if self._wire is not None:
            with contextlib.suppress(OSError):
                self._wire.send(message)

    @property
    def exit_code(self) -> int | None:
        """How the process has ended, None while it runs."""
        return None if self._process is None else self._process.poll()

    @property
    def pids(self) -> tuple[int, ...]:
        """The process and all that belong to it on this host, an embedded cluster too."""
        return tuple(one.pid for one in self._living())

    def _living(self) -> list[psutil.Process]:
        """All of them that run; some may have lost the parent that they were started by."""
        if self._process is None:
            return []
        with contextlib.suppress(psutil.Error):
            mine = psutil.Process(self._process.pid)
            self._family |= {one.pid: one for one in (mine, *mine.children(recursive=True))}
        for one in psutil.process_iter():
            # The process leads a session, which its children stay in.
            with contextlib.suppress(OSError):
                if os.getsid(one.pid) == self._process.pid:
                    self._family[one.pid] = one
        return [one for one in self._family.values() if one.is_running()]

    def log_tail(self) -> str:
        """The end of what it has printed."""
        with contextlib.suppress(OSError):
            data = (self.folder / "driver.log").read_bytes()[-_LOG_TAIL_BYTES:]
            return data.decode(errors="replace").strip()
        return ""

    def end(self) -> None:
        """Let it end its workers, and end what is left of it; safe to call twice."""
        if self._ended or self._process is None:
            return
        self._ended = True
        # Asked for before it ends, because nobody knows its children afterwards.
        self._living()
        if self.connected:
            self.send(kind="stop")
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_WAIT_S)
        left = self._living()
        for one in left:
            with contextlib.suppress(psutil.Error):
                one.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_WAIT_S)
        psutil.wait_procs([one for one in left if one.pid != self._process.pid], _END_WAIT_S)
        if self._wire is not None:
            with contextlib.suppress(OSError):
                self._wire.close()
        else:
            # Who still waits for it to connect has to notice.
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as knock:
                knock.connect(str(self.folder / "driver.sock"))
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.close()
        if self._log is not None:
            self._log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _serve(self) -> None:
        """Pass on everything that it says."""
        assert self._listener is not None
        try:
            wire = Wire(self._listener.accept())
            order = {**self._orders["order"], "folder": str(self.folder)}
            wire.send({**self._orders, "kind": "orders", "order": order})
            self._wire = wire
            while True:
                self.inbox.put(wire.receive())
        except Exception as error:  # noqa: BLE001 - what cannot be read is as good as gone
            self.inbox.put({"kind": "gone", "why": str(error)})
