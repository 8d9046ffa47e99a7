"""Programs written for ComfyUI, unchanged: text to image, uploads, faults, cancelling, a restart.

Those that change the process they run in (event loops, logging, telemetry) get one of their own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from comfy_api_simplified import ComfyApiWrapper
from comfy_api_simplified.exceptions import ComfyApiError
from comfy_toolkit import ComfyClient as ToolkitClient
from comfy_toolkit.errors import ComfyExecutionError, ComfySubmitError
from comfyui_xy import ComfyUiClient, ComfyUiHttpError

from tests.live import ROOT
from tests.unit.server.comfyui.prompts import (
    ComfyClient,
    Prompt,
    checkpoint_of,
    comfy_server,
    opened,
    picture_prompt,
    png,
    text_to_image,
    until,
    until_end,
)

TITLE = "Save Image"
SIZE = (64, 64)


def titled(prompt: Prompt) -> Prompt:
    """A prompt in which every node has a title, as exported ones do."""
    for node in prompt.values():
        node.setdefault("_meta", {"title": node["class_type"]})
    return prompt


def program(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program with a home of its own and without telemetry."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    environment = {
        **os.environ,
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "DO_NOT_TRACK": "1",
        "NO_COLOR": "1",
        "PYTHONPATH": str(ROOT),
    }
    return subprocess.run(
        arguments,
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=55,
        check=False,
    )


def comfy(client: ComfyClient, folder: Path, *arguments: str) -> dict[str, Any]:
    """Run comfy-cli against the server; gives the envelope that it prints."""
    port = client.url.rpartition(":")[2]
    place = ["--host", "127.0.0.1", "--port", port]
    start = [sys.executable, "-m", "comfy_cli", "--skip-prompt", "--json", "--where", "local"]
    done = program([*start, *arguments, *place], folder)
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


# ---- comfy-api-simplified ------------------------------------------------------------------------


def test_comfy_api_simplified_makes_a_picture(model_client: ComfyClient) -> None:
    api = ComfyApiWrapper(model_client.url)
    prompt = titled(text_to_image(checkpoint_of(model_client), seed=11))
    images = api.queue_and_wait_images(prompt, TITLE)
    assert [opened(data).size for data in images.values()] == [SIZE]
    assert api.get_queue() == {"queue_running": [], "queue_pending": []}
    assert "KSampler" in api.get_object_info("KSampler")
    assert api.get_embeddings() == []
    assert api.get_system_stats()["devices"]


def test_comfy_api_simplified_uploads(client: ComfyClient, tmp_path: Path) -> None:
    api = ComfyApiWrapper(client.url)
    (tmp_path / "mine.png").write_bytes(png((1, 2, 3)))
    stored = api.upload_image(tmp_path / "mine.png")
    prompt = titled(picture_prompt())
    name = f"{stored['subfolder']}/{stored['name']}"
    prompt["1"] = {"class_type": "LoadImage", "inputs": {"image": name}, "_meta": {"title": "x"}}
    (data,) = api.queue_and_wait_images(prompt, TITLE).values()
    assert opened(data).getpixel((0, 0)) == (1, 2, 3)


def test_comfy_api_simplified_learns_of_faults(client: ComfyClient, tmp_path: Path) -> None:
    api = ComfyApiWrapper(client.url)
    with pytest.raises(ComfyApiError, match="400"):
        api.queue_prompt({"1": {"class_type": "NoSuchNode", "inputs": {}}})
    (tmp_path / "broken.png").write_bytes(b"no picture")
    api.upload_image(tmp_path / "broken.png", "")
    prompt = titled(picture_prompt())
    inputs = {"image": "broken.png"}
    prompt["1"] = {"class_type": "LoadImage", "inputs": inputs, "_meta": {"title": "x"}}
    with pytest.raises(ComfyApiError, match="Execution error"):
        api.queue_and_wait_images(prompt, TITLE)


def test_comfy_api_simplified_cancels(model_client: ComfyClient) -> None:
    api = ComfyApiWrapper(model_client.url)
    with model_client.socket("cancels") as socket:
        prompt = text_to_image(checkpoint_of(model_client), seed=12, steps=1000)
        prompt_id = api.queue_prompt(prompt, "cancels")["prompt_id"]
        until(socket, "progress")
        assert api.get_queue_size_before(prompt_id) == 0
        api.interrupt()
        until_end(socket, prompt_id)
    assert api.get_history(prompt_id)[prompt_id]["status"]["status_str"] == "error"


# ---- comfy-toolkit -------------------------------------------------------------------------------


def test_comfy_toolkit_follows_a_picture(model_client: ComfyClient) -> None:
    toolkit = ToolkitClient(model_client.url)
    steps: list[tuple[int, int]] = []
    nodes: list[str | None] = []
    result = toolkit.submit_and_track(
        text_to_image(checkpoint_of(model_client), seed=13, steps=3),
        on_progress=lambda step, total: steps.append((step, total)),
        on_node=nodes.append,
    )
    assert result["status"] == "completed"
    assert opened(toolkit.download(result["images"][0])).size == SIZE
    assert nodes[-2:] == ["8", "9"]
    assert all(total == 3 for _, total in steps)


def test_comfy_toolkit_learns_of_faults(client: ComfyClient, tmp_path: Path) -> None:
    toolkit = ToolkitClient(client.url)
    with pytest.raises(ComfySubmitError):
        toolkit.submit({"1": {"class_type": "NoSuchNode", "inputs": {}}})
    client.http.post("/upload/image", files={"image": ("bad.png", b"no picture")})
    prompt = picture_prompt()
    prompt["1"] = {"class_type": "LoadImage", "inputs": {"image": "bad.png"}}
    with pytest.raises(ComfyExecutionError):
        toolkit.wait(toolkit.submit(prompt), poll_interval=0.05, max_wait=30)


def test_comfy_toolkit_finds_its_picture_after_a_restart(tmp_path: Path) -> None:
    with comfy_server(tmp_path) as server:
        server.services.orchestrator.pause()
        prompt_id = ToolkitClient(server.url).submit(picture_prompt(colour=1))
    with comfy_server(tmp_path) as server:
        toolkit = ToolkitClient(server.url)
        server.services.orchestrator.resume()
        images = toolkit.wait_for_images(prompt_id, poll_interval=0.05, max_wait=30)
    with comfy_server(tmp_path) as server:
        toolkit = ToolkitClient(server.url)
        result = toolkit.result(prompt_id)
        assert result is not None
        assert result["images"] == images
        assert opened(toolkit.download(images[0])).getpixel((0, 0)) == (0, 0, 1)


# ---- comfyui-xy ----------------------------------------------------------------------------------


def test_comfyui_xy_makes_a_picture(model_client: ComfyClient) -> None:
    with ComfyUiClient(model_client.url, raise_on_error=True) as xy:
        prompt = text_to_image(checkpoint_of(model_client), seed=14)
        prompt["10"] = {"class_type": "PreviewAny", "inputs": {"source": "a text"}}
        found = xy.process_workflow(prompt, execution_timeout=40)
    assert sorted(response.output_type for response in found) == ["file", "text"]
    pictures = [response for response in found if response.is_file]
    assert [response.image.size for response in pictures] == [SIZE]
    assert [response.text for response in found if response.is_text] == ["a text"]


def test_comfyui_xy_uploads_and_learns_of_faults(client: ComfyClient, tmp_path: Path) -> None:
    (tmp_path / "xy.png").write_bytes(png((7, 8, 9)))
    with ComfyUiClient(client.url, raise_on_error=True) as xy:
        assert xy.upload_image(str(tmp_path / "xy.png")) == "xy.png"
        assert xy.upload_mask(str(tmp_path / "xy.png")) == "xy.png"
        assert xy.interrupt() is True
        with pytest.raises(ComfyUiHttpError, match="400"):
            xy.queue_prompt({"1": {"class_type": "NoSuchNode", "inputs": {}}})


# ---- comfykit ------------------------------------------------------------------------------------

COMFYKIT = """
import asyncio, json, sys
from comfykit import ComfyKit

async def main(url, kind, workflow):
    kit = ComfyKit(comfyui_url=url, executor_type=kind)
    result = await kit.execute(workflow, {"prompt": "a cat"})
    print(json.dumps([result.status, result.images, result.msg]))

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_comfykit_makes_a_picture(model_client: ComfyClient, tmp_path: Path, kind: str) -> None:
    prompt = text_to_image(checkpoint_of(model_client), seed=15)
    prompt["6"]["_meta"] = {"title": "$prompt.text!"}
    (tmp_path / "workflow.json").write_text(json.dumps(prompt))
    arguments = [model_client.url, kind, "workflow.json"]
    done = program([sys.executable, "-c", COMFYKIT, *arguments], tmp_path)
    assert done.returncode == 0, done.stderr
    status, images, _ = json.loads(done.stdout.strip().splitlines()[-1])
    assert (status, len(images)) == ("completed", 1)
    assert opened(model_client.http.get(images[0]).content).size == SIZE


def test_comfykit_learns_of_faults(client: ComfyClient, tmp_path: Path) -> None:
    client.http.post("/upload/image", files={"image": ("kit.png", b"no picture")})
    prompt = titled(picture_prompt())
    prompt["1"] = {"class_type": "LoadImage", "inputs": {"image": "kit.png"}}
    (tmp_path / "workflow.json").write_text(json.dumps(prompt))
    arguments = [client.url, "http", "workflow.json"]
    done = program([sys.executable, "-c", COMFYKIT, *arguments], tmp_path)
    status, _, why = json.loads(done.stdout.strip().splitlines()[-1])
    assert status == "error"
    assert "picture" in why


# ---- comfy-script --------------------------------------------------------------------------------

COMFY_SCRIPT = """
import sys
from comfy_script.runtime import *

url, checkpoint = sys.argv[1:]
load(url)
from comfy_script.runtime.nodes import *

with Workflow(wait=True) as workflow:
    model, clip, vae = CheckpointLoaderSimple(checkpoint)
    size = EmptyLatentImage(64, 64, 1)
    wanted, unwanted = CLIPTextEncode("a red circle", clip), CLIPTextEncode("", clip)
    latent = KSampler(model, 16, 2, 2, "euler", "normal", wanted, unwanted, size, 1)
    saved = SaveImage(VAEDecode(latent, vae), "script")
print("MADE", saved.wait().wait()[0].size)
"""


def test_comfy_script_makes_a_picture(model_client: ComfyClient, tmp_path: Path) -> None:
    arguments = [model_client.url, checkpoint_of(model_client)]
    (tmp_path / "script.py").write_text(COMFY_SCRIPT)
    done = program([sys.executable, "script.py", *arguments], tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "MADE (64, 64)" in done.stdout


# ---- comfy-cli -----------------------------------------------------------------------------------


def test_comfy_cli_runs_a_workflow(model_client: ComfyClient, tmp_path: Path) -> None:
    prompt = text_to_image(checkpoint_of(model_client), seed=17)
    (tmp_path / "workflow.json").write_text(json.dumps(prompt))
    told = comfy(model_client, tmp_path, "run", "--workflow", "workflow.json", "--wait")
    assert told["ok"], told
    assert told["data"]["status"] == "completed"
    data = told["data"]
    assert {*data["executed_node_ids"], *data["cached_node_ids"]} == set(prompt)
    (url,) = told["data"]["outputs"]
    assert opened(model_client.http.get(url).content).size == SIZE


def test_comfy_cli_learns_of_faults(client: ComfyClient, tmp_path: Path) -> None:
    prompt = picture_prompt()
    prompt["1"]["inputs"]["width"] = 0
    (tmp_path / "workflow.json").write_text(json.dumps(prompt))
    told = comfy(client, tmp_path, "run", "--workflow", "workflow.json", "--wait")
    assert told["ok"] is False
    # It checks a workflow by itself, with what the server declares.
    assert "width=0 below catalog min 1" in json.dumps(told["error"])


def test_comfy_cli_uploads(client: ComfyClient, tmp_path: Path) -> None:
    (tmp_path / "cli.png").write_bytes(png((3, 2, 1)))
    told = comfy(client, tmp_path, "upload", "cli.png")
    assert told["ok"], told
    assert client.view({"filename": "cli.png", "type": "input"}).content == png((3, 2, 1))


def test_clients_at_the_same_time_do_not_mix(client: ComfyClient) -> None:
    found: dict[int, tuple[int, ...]] = {}

    def run(colour: int) -> None:
        api = ComfyApiWrapper(client.url)
        (data,) = api.queue_and_wait_images(titled(picture_prompt(colour=colour)), TITLE).values()
        found[colour] = opened(data).getpixel((0, 0))  # type: ignore[assignment]

    threads = [threading.Thread(target=run, args=(colour,)) for colour in range(150, 156)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {colour: (0, 0, colour) for colour in range(150, 156)}
