"""How a route gets at the services."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends
from starlette.requests import HTTPConnection

from inline_core.server.services import Services


def services_of(connection: HTTPConnection) -> Services:
    """The services of the application that serves this connection."""
    return cast("Services", connection.app.state.services)


ServicesOf = Annotated[Services, Depends(services_of)]
