"""Binding the port and running uvicorn on it."""

from __future__ import annotations

import json
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import psutil
import structlog
import uvicorn

from inline_core.errors import PortTaken
from inline_core.server.app import create_app
from inline_core.server.guard import is_loopback
from inline_core.server.services import Services, build_services, resolve_token
from inline_core.settings import Settings

_log = structlog.get_logger(__name__)
_GIL_SWITCH_S = 0.001
_WS_PING_S = 20.0
_WS_MAX_BYTES = 64 * 1024


def serve(settings: Settings, services: Services | None = None) -> None:
    """Serve until a signal ends it; `services` are made here unless they are given.

    The port is bound before anything else, so that a taken one is known at once.
    Raises: PortTaken, AlreadyRunning.
    """
    # Routes answer promptly while the device thread is busy in many small steps.
    sys.setswitchinterval(_GIL_SWITCH_S)
    listener = bind(settings)
    try:
        parts = services or build_services(settings)
        app = create_app(settings, parts)
        url = announce(settings, listener)
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            ws_ping_interval=_WS_PING_S,
            ws_max_size=_WS_MAX_BYTES,
            timeout_graceful_shutdown=5,
            server_header=False,
        )
        _log.info("listening", url=url, data=str(settings.data_dir.resolve()))
        _Server(config, parts).run(sockets=[listener])
    finally:
        listener.close()


class _Server(uvicorn.Server):
    """A server for which SIGINT and SIGTERM are a clean stop (uvicorn dies of them at the end)."""

    def __init__(self, config: uvicorn.Config, services: Services) -> None:
        super().__init__(config)
        self._services = services

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End the open streams at once, so that they do not hold the stop back."""
        self._services.hub.close()
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at the first signal; a second one stops without waiting for connections."""
        signals = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in signals}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def bind(settings: Settings) -> socket.socket:
    """A listening socket on the wanted address.  Raises: PortTaken, naming who has the port."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    if sys.platform != "win32":
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        listener.close()
        holder = port_holder(settings.port)
        by = f" by {holder}" if holder else ""
        message = (
            f"Port {settings.port} on {settings.host} is taken{by}. "
            f"Stop it, or choose another port with --port (for example --port {settings.port + 1})."
        )
        raise PortTaken(message) from error
    listener.set_inheritable(False)
    return listener


def port_holder(port: int) -> str | None:
    """Name and process id of who listens on a port, where the system tells."""
    try:
        connections = psutil.net_connections(kind="tcp")
    except (psutil.AccessDenied, OSError):
        return None
    for connection in connections:
        listens = connection.status == psutil.CONN_LISTEN
        if not listens or getattr(connection.laddr, "port", None) != port:
            continue
        try:
            name = psutil.Process(connection.pid).name() if connection.pid else "a process"
        except psutil.Error:
            name = "a process"
        return f"{name} (process {connection.pid})"
    return None


def announce(settings: Settings, listener: socket.socket) -> str:
    """Print the one URL to open, and leave it for the command line to find."""
    port = listener.getsockname()[1]
    token = resolve_token(settings)
    host = settings.host if is_loopback(settings.host) else socket.gethostname()
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{port}{settings.root_path}/"
    print(f"Open {url}{f'?token={token}' if token else ''}", file=sys.stderr, flush=True)  # noqa: T201
    if not is_loopback(settings.host) and token is None:
        _log.warning("anyone who reaches this port can use the server (--no-auth)")
    local = "127.0.0.1" if settings.host in {"0.0.0.0", ""} else settings.host  # noqa: S104
    address = {"url": f"http://{f'[{local}]' if ':' in local else local}:{port}"}
    (settings.data_dir / "server.json").write_text(json.dumps(address), encoding="utf-8")
    return url
