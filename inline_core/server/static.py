"""Pages: a built front end if there is one, else our own; 404 in the envelope for the rest."""

from __future__ import annotations

import mimetypes
from importlib.util import find_spec
from pathlib import Path

from starlette._utils import get_route_path
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.types import Receive, Scope, Send

from inline_core.errors import Forbidden
from inline_core.settings import Settings
from inline_core.takes.files import confined

_OWN_PAGES = Path(__file__).parent / "pages"
_FRONTEND_PACKAGE = "inline_studio_frontend"
# Some systems map .js to text/plain, which browsers refuse for modules.
_MEDIA_TYPES = {
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".css": "text/css",
    ".html": "text/html",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".wasm": "application/wasm",
    ".ico": "image/x-icon",
}
_POLICY = (
    "default-src 'self'; img-src 'self' blob: data:; connect-src 'self' ws: wss:; "
    "style-src 'self' 'unsafe-inline'; frame-ancestors 'none'; base-uri 'self'"
)


def frontend_root(settings: Settings) -> tuple[Path, bool]:
    """The folder of pages to serve, and whether it is our own.

    Order: `--front-end-root`, the installed `inline_studio_frontend` package, our page.
    """
    if settings.frontend_root is not None:
        return settings.frontend_root, False
    spec = find_spec(_FRONTEND_PACKAGE)
    for location in (spec.submodule_search_locations or ()) if spec is not None else ():
        static = Path(location) / "static"
        if (static / "index.html").is_file():
            return static, False
    return _OWN_PAGES, True


class Pages:
    """ASGI fallback for paths that are no route."""

    def __init__(self, settings: Settings) -> None:
        self._root, self._own = frontend_root(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a file of the front end, or 404."""
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.accept"})
            await send({"type": "websocket.close", "code": 4404, "reason": "no such socket"})
            return
        response = self._respond(scope["method"], get_route_path(scope))
        await response(scope, receive, send)

    def _respond(self, method: str, path: str) -> Response:
        file = self._file(path)
        if file is None:
            message = f"Nothing is at {path!r}."
            return JSONResponse({"error": {"code": "not_found", "message": message}}, 404)
        if method not in {"GET", "HEAD"}:
            body = {
                "error": {
                    "code": "method_not_allowed",
                    "message": f"{method} is not allowed here; allowed: GET, HEAD.",
                }
            }
            return JSONResponse(body, 405, {"Allow": "GET, HEAD, OPTIONS"})
        media_type = _MEDIA_TYPES.get(file.suffix.lower()) or mimetypes.guess_type(file.name)[0]
        headers = {"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}
        if self._own:
            headers["Content-Security-Policy"] = _POLICY
        return FileResponse(file, media_type=media_type, headers=headers)

    def _file(self, path: str) -> Path | None:
        if path.startswith("/v1/") or "\0" in path:
            return None
        relative = path.lstrip("/") or "index.html"
        if relative == "docs":
            return _OWN_PAGES / "docs.html"
        try:
            file = confined(self._root, self._root / relative)
        except (Forbidden, OSError, ValueError):
            return None
        if file.is_dir():
            file = file / "index.html"
        return file if file.is_file() else None
