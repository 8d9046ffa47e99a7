"""Servers that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.live import LiveServer
from tests.unit.server.comfyui.prompts import ComfyClient, comfy_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A server without models."""
    with comfy_server(tmp_path_factory.mktemp("comfy")) as running:
        yield running


@pytest.fixture
def client(server: LiveServer) -> ComfyClient:
    return ComfyClient(server)


@pytest.fixture(scope="module")
def model_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A server with tiny files of SD 1.5."""
    with comfy_server(tmp_path_factory.mktemp("comfy-models"), models=True) as running:
        yield running


@pytest.fixture
def model_client(model_server: LiveServer) -> ComfyClient:
    return ComfyClient(model_server)
