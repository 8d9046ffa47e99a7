"""Prompts for the tests, and a client that speaks the protocol plainly."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from PIL import Image
from websockets.sync.client import ClientConnection, connect

from inline_core.settings import Settings
from tests.live import LiveServer, live_server
from tests.tiny_families import sd15

TIMEOUT_S = 50.0
Prompt = dict[str, Any]


def picture_prompt(colour: int = 255, *, width: int = 64, **save: Any) -> Prompt:
    """A picture of one colour: no model, no torch."""
    size = {"width": width, "height": 64, "batch_size": 1}
    return {
        "1": {"class_type": "EmptyImage", "inputs": {**size, "color": colour}},
        "2": {
            "class_type": "SaveImage",
            "inputs": {"images": ["1", 0], "filename_prefix": "test", **save},
            "_meta": {"title": "Save Image"},
        },
    }


def text_to_image(checkpoint: str, *, seed: int = 1, steps: int = 2) -> Prompt:
    """The workflow that ComfyUI opens with, small."""
    sampling = {"seed": seed, "steps": steps, "cfg": 2.0, "denoise": 1.0}
    wires = {
        "model": ["4", 0],
        "positive": ["6", 0],
        "negative": ["7", 0],
        "latent_image": ["5", 0],
    }
    return {
        "3": {
            "class_type": "KSampler",
            "inputs": {**sampling, "sampler_name": "euler", "scheduler": "normal", **wires},
        },
        "4": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": checkpoint}},
        "5": {
            "class_type": "EmptyLatentImage",
            "inputs": {"width": 64, "height": 64, "batch_size": 1},
        },
        "6": {"class_type": "CLIPTextEncode", "inputs": {"text": "a red circle", "clip": ["4", 1]}},
        "7": {"class_type": "CLIPTextEncode", "inputs": {"text": "", "clip": ["4", 1]}},
        "8": {"class_type": "VAEDecode", "inputs": {"samples": ["3", 0], "vae": ["4", 2]}},
        "9": {
            "class_type": "SaveImage",
            "inputs": {"images": ["8", 0], "filename_prefix": "tiny"},
            "_meta": {"title": "Save Image"},
        },
    }


def png(colour: tuple[int, ...] = (200, 30, 30), size: tuple[int, int] = (32, 24)) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGBA" if len(colour) == 4 else "RGB", size, colour).save(buffer, "PNG")
    return buffer.getvalue()


def opened(data: bytes) -> Image.Image:
    with Image.open(io.BytesIO(data)) as picture:
        picture.load()
        return picture.copy()


class ComfyClient:
    """A plain client; `messages` reads a socket up to the end of a prompt."""

    def __init__(self, server: LiveServer) -> None:
        self.url = server.url
        self.http = server.http

    def queue(self, prompt: Any, client_id: str | None = None, **more: Any) -> httpx.Response:
        body = {"prompt": prompt, **({"client_id": client_id} if client_id else {}), **more}
        return self.http.post("/prompt", json=body)

    def accepted(self, prompt: Any, client_id: str | None = None, **more: Any) -> dict[str, Any]:
        reply = self.queue(prompt, client_id, **more)
        assert reply.status_code == 200, reply.text
        found: dict[str, Any] = reply.json()
        return found

    def refused(self, prompt: Any, status: int = 400, **more: Any) -> dict[str, Any]:
        reply = self.queue(prompt, **more)
        assert reply.status_code == status, reply.text
        found: dict[str, Any] = reply.json()
        assert set(found) == {"error", "node_errors"}
        assert set(found["error"]) == {"type", "message", "details", "extra_info"}
        return found

    def history(self, prompt_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.http.get(f"/history/{prompt_id}").json()
        return found

    def socket(self, client_id: str, path: str = "/ws") -> ClientConnection:
        address = self.url.replace("http://", "ws://")
        return connect(f"{address}{path}?clientId={client_id}", ping_interval=None, max_size=None)

    def run(self, prompt: Any, client_id: str = "runner", **more: Any) -> dict[str, Any]:
        """Queue a prompt, wait for its end, and give its history."""
        with self.socket(client_id) as socket:
            prompt_id = self.accepted(prompt, client_id, **more)["prompt_id"]
            until_end(socket, prompt_id)
        entry: dict[str, Any] = self.history(prompt_id)[prompt_id]
        return entry

    def view(self, file: Mapping[str, str], **more: str) -> httpx.Response:
        return self.http.get("/view", params={**file, **more})


def messages(socket: ClientConnection) -> Iterator[dict[str, Any]]:
    """The text messages of a socket."""
    while True:
        text = socket.recv(timeout=TIMEOUT_S)
        if isinstance(text, str):
            yield json.loads(text)


def until_end(socket: ClientConnection, prompt_id: str) -> list[dict[str, Any]]:
    """All text messages up to the one that ends a prompt."""
    found = []
    for message in messages(socket):
        found.append(message)
        if message["type"] == "executing" and message["data"]["node"] is None:
            assert message["data"]["prompt_id"] == prompt_id
            return found
    raise AssertionError


def until(socket: ClientConnection, kind: str) -> dict[str, Any]:
    """The next message of a type."""
    return next(message for message in messages(socket) if message["type"] == kind)


@contextmanager
def comfy_server(folder: Path, *, models: bool = False, **more: Any) -> Iterator[LiveServer]:
    """A server on `folder`, with tiny files of SD 1.5 if asked."""
    if models and not (folder / "models").exists():
        sd15.save_models(folder / "models")
    settings = Settings(
        data_dir=folder / "data",
        models_dir=folder / "models",
        demo_model=False,
        threads=1,
        **{"warm_up": models, **more},
    )
    with live_server(settings) as server:
        yield server


def checkpoint_of(client: ComfyClient) -> str:
    """The name of the tiny checkpoint, as the server offers it."""
    info = client.http.get("/object_info/CheckpointLoaderSimple").json()
    name: str = info["CheckpointLoaderSimple"]["input"]["required"]["ckpt_name"][0][0]
    return name
