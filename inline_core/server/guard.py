"""The gate in front of every route and socket: Host, Origin, token, HEAD, OPTIONS, 405."""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlencode, urlsplit

from starlette._utils import get_route_path
from starlette.datastructures import Headers
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from inline_core.errors import Forbidden, InlineError, Unauthorized
from inline_core.server.errors import error_response

COOKIE = "inline_token"
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_SOCKET_FORBIDDEN = 4403
_SOCKET_UNAUTHORIZED = 4401


def is_loopback(host: str) -> bool:
    """Whether listening on `host` is reachable from this machine only."""
    if host in _LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Guard:
    """ASGI middleware.  `token` None means no token is asked for."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        host: str,
        token: str | None,
        allowed_hosts: Iterable[str],
        allowed_origins: Iterable[str],
    ) -> None:
        self._app = app
        self._token = token
        self._wide = not is_loopback(host)
        own = {host, socket.gethostname().lower()} if self._wide else {host}
        self._hosts = _LOOPBACK_NAMES | own | {name.lower() for name in allowed_hosts}
        self._origins = frozenset(origin.rstrip("/").lower() for origin in allowed_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or hand on to the application."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            self._check_host(headers)
            self._check_origin(headers)
            self._check_token(scope, headers)
        except InlineError as error:
            await self._refuse(scope, receive, send, error)
            return
        response = self._sign_in(scope)
        if response is not None:
            await response(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _check_host(self, headers: Headers) -> None:
        name = _host_name(headers.get("host", ""))
        if name in self._hosts or (self._wide and _is_address(name)):
            return
        message = (
            f"Host {name!r} is not allowed. Add it with INLINE_ALLOWED_HOSTS if you put the server "
            "behind that name."
        )
        raise Forbidden(message)

    def _check_origin(self, headers: Headers) -> None:
        origin = headers.get("origin")
        if origin is None or origin.rstrip("/").lower() in self._origins:
            return
        if urlsplit(origin).netloc.lower() == headers.get("host", "").lower() != "":
            return
        message = (
            f"Origin {origin!r} is not allowed. Add it with INLINE_ALLOWED_ORIGINS if that site "
            "shall use this server."
        )
        raise Forbidden(message)

    def _check_token(self, scope: Scope, headers: Headers) -> None:
        if self._token is None:
            return
        offered = _offered_token(headers) or _query_token(scope)
        if offered is None or not hmac.compare_digest(offered.encode(), self._token.encode()):
            message = (
                "This server needs a token: send 'Authorization: Bearer <token>', or open the URL "
                "that it printed when it started."
            )
            raise Unauthorized(message)

    def _sign_in(self, scope: Scope) -> Response | None:
        """A page opened with `?token=` gets a cookie and a URL without the token."""
        if self._token is None or scope["type"] != "http" or scope["method"] != "GET":
            return None
        path = get_route_path(scope)
        if _query_token(scope) is None or path.startswith("/v1/"):
            return None
        query = parse_qs(scope["query_string"].decode("latin-1"))
        query.pop("token", None)
        target = (
            scope.get("root_path", "")
            + path
            + (f"?{urlencode(query, doseq=True)}" if query else "")
        )
        response = RedirectResponse(target, 303)
        response.set_cookie(COOKIE, self._token, httponly=True, samesite="strict")
        return response

    @staticmethod
    async def _refuse(scope: Scope, receive: Receive, send: Send, error: InlineError) -> None:
        if scope["type"] == "http":
            await error_response(error)(scope, receive, send)
            return
        await receive()
        code = _SOCKET_UNAUTHORIZED if error.code == "unauthorized" else _SOCKET_FORBIDDEN
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.close", "code": code, "reason": error.message[:120]})


def _host_name(host: str) -> str:
    """The name in a Host header, without port and brackets, lower case."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.rpartition(":")[0].lower() if ":" in host else host.lower()


def _is_address(name: str) -> bool:
    """True for an IP literal, which DNS rebinding cannot fake."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _offered_token(headers: Headers) -> str | None:
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and value:
        return value.strip()
    if "x-inline-token" in headers:
        return headers["x-inline-token"]
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return None
    return morsel.value if morsel is not None else None


def _query_token(scope: Scope) -> str | None:
    values = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token")
    return values[0] if values else None


class UnderPrefix:
    """Serve below a URL prefix, whether the proxy in front strips it or keeps it."""

    def __init__(self, app: ASGIApp, *, prefix: str) -> None:
        self._app = app
        self._prefix = prefix.rstrip("/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Tell the application its prefix; routes are matched without it."""
        if self._prefix and scope["type"] in {"http", "websocket"}:
            if scope["path"] == self._prefix:
                # Without the slash the relative addresses of the page would miss the prefix.
                await RedirectResponse(f"{self._prefix}/", 308)(scope, receive, send)
                return
            scope = {**scope, "root_path": self._prefix}
        await self._app(scope, receive, send)


class MethodRules:
    """HEAD for every GET, OPTIONS, and a 405 that lists what the path really allows."""

    def __init__(self, app: ASGIApp, routes: list[BaseRoute]) -> None:
        self._app = app
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the method question, or hand on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        method = scope["method"]
        known = self._methods(scope)
        if known and method not in known:
            await self._answer(method, known)(scope, receive, send)
        elif method == "HEAD":
            await self._app({**scope, "method": "GET"}, receive, _without_body(send))
        else:
            await self._app(scope, receive, send)

    def _methods(self, scope: Scope) -> set[str]:
        """Methods of all routes on this path; empty for a path that is no route."""
        methods: set[str] = set()
        for route in self._routes:
            match, _ = route.matches(scope)
            if match is not Match.NONE:
                methods |= set(getattr(route, "methods", None) or ())
        if "GET" in methods:
            methods.add("HEAD")
        return methods

    @staticmethod
    def _answer(method: str, known: set[str]) -> Response:
        allow = ", ".join(sorted(known | {"OPTIONS"}))
        if method == "OPTIONS":
            return Response(status_code=204, headers={"Allow": allow})
        body = {
            "error": {
                "code": "method_not_allowed",
                "message": f"{method} is not allowed here; allowed: {allow}.",
            }
        }
        return JSONResponse(body, 405, {"Allow": allow})


def _without_body(send: Send) -> Send:
    async def forward(message: Message) -> None:
        if message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await send(message)

    return forward
