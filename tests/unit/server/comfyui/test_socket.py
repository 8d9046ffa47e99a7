"""The socket: which messages, to whom, in which order, and what a reconnect gives."""

from __future__ import annotations

import json
import struct
from socket import SHUT_RDWR
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from tests.live import LiveServer
from tests.unit.server.comfyui.prompts import (
    TIMEOUT_S,
    ComfyClient,
    checkpoint_of,
    messages,
    opened,
    picture_prompt,
    text_to_image,
    until,
    until_end,
)

QUIET = {"status", "progress", "progress_state"}


def story(found: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    """Types and nodes, without what comes in between."""
    return [
        (message["type"], message["data"].get("node", message["data"].get("nodes")))
        for message in found
        if message["type"] not in QUIET
    ]


def test_the_messages_of_a_prompt_come_in_order(client: ComfyClient) -> None:
    with client.socket("order") as socket:
        first = json.loads(socket.recv(timeout=TIMEOUT_S))
        assert first == {
            "type": "status",
            "data": {"status": {"exec_info": {"queue_remaining": 0}}, "sid": "order"},
        }
        prompt_id = client.accepted(picture_prompt(colour=100), "order")["prompt_id"]
        found = until_end(socket, prompt_id)
        last = until(socket, "status")
    assert story(found) == [
        ("execution_start", None),
        ("execution_cached", []),
        ("executing", "1"),
        ("executing", "2"),
        ("executed", "2"),
        ("execution_success", None),
        ("executing", None),
    ]
    assert last["data"] == {"status": {"exec_info": {"queue_remaining": 0}}}
    told = {message["type"]: message["data"] for message in found}
    assert all(told[kind]["prompt_id"] == prompt_id for kind in told.keys() - {"status"})
    entry = client.history(prompt_id)[prompt_id]
    assert told["executed"]["output"] == entry["outputs"]["2"]
    kept = [message[0] for message in entry["status"]["messages"]]
    assert kept == ["execution_start", "execution_cached", "execution_success"]
    states = told["progress_state"]["nodes"]
    assert {node: state["state"] for node, state in states.items()} == {
        "1": "finished",
        "2": "finished",
    }
    assert set(states["1"]) == {
        "value", "max", "state", "prompt_id",
        "node_id", "display_node_id", "parent_node_id", "real_node_id",
    }  # fmt: skip


def test_the_same_again_is_cached_and_shown_again(client: ComfyClient) -> None:
    before = client.run(picture_prompt(colour=101))
    with client.socket("again") as socket:
        prompt_id = client.accepted(picture_prompt(colour=101), "again")["prompt_id"]
        found = until_end(socket, prompt_id)
    assert story(found) == [
        ("execution_start", None),
        ("execution_cached", ["1", "2"]),
        ("executed", "2"),
        ("execution_success", None),
        ("executing", None),
    ]
    entry = client.history(prompt_id)[prompt_id]
    assert entry["outputs"] == before["outputs"]
    assert entry["status"]["messages"][1][1]["nodes"] == ["1", "2"]


def test_only_the_client_of_a_prompt_is_told(client: ComfyClient) -> None:
    with client.socket("mine") as mine, client.socket("other", "/api/ws") as other:
        first = client.accepted(picture_prompt(colour=102), "mine")["prompt_id"]
        until_end(mine, first)
        second = client.accepted(picture_prompt(colour=103), "other")["prompt_id"]
        found = until_end(other, second)
    assert {m["data"]["prompt_id"] for m in found if m["type"] != "status"} == {second}


def test_a_client_without_an_id_gets_one(client: ComfyClient) -> None:
    with client.socket("") as socket:
        sid = until(socket, "status")["data"]["sid"]
        prompt_id = client.accepted(picture_prompt(colour=104), sid)["prompt_id"]
        assert until_end(socket, prompt_id)


def test_who_connects_after_queueing_misses_nothing(client: ComfyClient) -> None:
    prompt_id = client.accepted(picture_prompt(colour=105), "late")["prompt_id"]
    with client.socket("late") as socket:
        found = until_end(socket, prompt_id)
    assert found[0]["type"] == "status"
    # It counts until its end was told, so that nobody takes the queue for empty before that.
    assert found[0]["data"]["status"]["exec_info"]["queue_remaining"] == 1
    assert story(found)[0] == ("execution_start", None)


def test_a_reconnect_goes_on_where_it_was(server: LiveServer, client: ComfyClient) -> None:
    server.services.orchestrator.pause()
    with client.socket("back") as socket:
        until(socket, "status")
        prompt_id = client.accepted(picture_prompt(colour=106), "back")["prompt_id"]
        until(socket, "status")
    server.services.orchestrator.resume()
    with client.socket("back") as socket:
        found = until_end(socket, prompt_id)
    assert story(found) == [
        ("execution_start", None),
        ("execution_cached", []),
        ("executing", "1"),
        ("executing", "2"),
        ("executed", "2"),
        ("execution_success", None),
        ("executing", None),
    ]
    with client.socket("back") as socket:
        # It was told: nothing of it comes again.
        assert until(socket, "status")["data"]["status"]["exec_info"]["queue_remaining"] == 0
        again = client.accepted(picture_prompt(colour=107), "back")["prompt_id"]
        until_end(socket, again)


def test_after_a_lost_connection_all_is_told_again(client: ComfyClient) -> None:
    with client.socket("lost") as lost:
        prompt_id = client.accepted(picture_prompt(colour=110), "lost")["prompt_id"]
        # Everything is sent, and the connection breaks: the server cannot know what arrived.
        until_end(lost, prompt_id)
        lost.socket.shutdown(SHUT_RDWR)
    with client.socket("lost") as socket:
        assert story(until_end(socket, prompt_id))[0] == ("execution_start", None)


def test_the_newer_socket_of_a_client_replaces_the_older(client: ComfyClient) -> None:
    with client.socket("twice") as older, client.socket("twice") as newer:
        until(newer, "status")
        prompt_id = client.accepted(picture_prompt(colour=108), "twice")["prompt_id"]
        until_end(newer, prompt_id)
        with pytest.raises(ConnectionClosed):
            list(messages(older))


def test_a_node_that_fails_is_told(server: LiveServer, client: ComfyClient) -> None:
    # The picture is there when the prompt is checked, and is no picture.
    folder = server.settings.input_folder
    folder.mkdir(exist_ok=True)
    (folder / "broken.png").write_bytes(b"no picture")
    prompt = picture_prompt()
    prompt["1"] = {"class_type": "LoadImage", "inputs": {"image": "broken.png"}}
    with client.socket("fails") as socket:
        prompt_id = client.accepted(prompt, "fails")["prompt_id"]
        found = until_end(socket, prompt_id)
    error = next(message for message in found if message["type"] == "execution_error")["data"]
    assert (error["node_id"], error["node_type"]) == ("1", "LoadImage")
    assert set(error) == {
        "prompt_id", "node_id", "node_type", "executed", "exception_message", "exception_type",
        "traceback", "current_inputs", "current_outputs", "timestamp",
    }  # fmt: skip
    entry = client.history(prompt_id)[prompt_id]
    assert entry["status"]["status_str"] == "error"
    kind, kept = entry["status"]["messages"][-1]
    assert (kind, kept["exception_message"]) == ("execution_error", error["exception_message"])
    assert kept["current_inputs"] == {"image": "broken.png"}


def test_a_text_is_told_and_kept(client: ComfyClient) -> None:
    prompt = picture_prompt(colour=109)
    prompt["3"] = {"class_type": "PreviewAny", "inputs": {"source": ["1", 0]}}
    with client.socket("text") as socket:
        prompt_id = client.accepted(prompt, "text")["prompt_id"]
        found = until_end(socket, prompt_id)
    executed = {m["data"]["node"]: m["data"]["output"] for m in found if m["type"] == "executed"}
    assert executed["3"] == {"text": ["picture of 64x64"]}
    assert client.history(prompt_id)[prompt_id]["outputs"]["3"] == executed["3"]


# ---- with a model: progress, previews, cancelling ------------------------------------------------


def test_sampling_tells_its_steps(model_client: ComfyClient) -> None:
    prompt = text_to_image(checkpoint_of(model_client), steps=3)
    with model_client.socket("steps") as socket:
        prompt_id = model_client.accepted(prompt, "steps")["prompt_id"]
        found = until_end(socket, prompt_id)
    assert ("executing", "3") in story(found)
    nodes = [node for kind, node in story(found) if kind == "executing"]
    assert nodes.index("3") < nodes.index("8") < nodes.index("9")
    entry = model_client.history(prompt_id)[prompt_id]
    picture = model_client.view(entry["outputs"]["9"]["images"][0])
    assert opened(picture.content).size == (64, 64)


def endless(client: ComfyClient, seed: int) -> dict[str, Any]:
    return text_to_image(checkpoint_of(client), seed=seed, steps=1000)


@pytest.mark.parametrize("named", [True, False], ids=["named", "whatever runs"])
def test_interrupting_ends_a_running_prompt(model_client: ComfyClient, named: bool) -> None:
    with model_client.socket("stop") as socket:
        prompt_id = model_client.accepted(endless(model_client, int(named)), "stop")["prompt_id"]
        progress = until(socket, "progress")["data"]
        assert (progress["node"], progress["max"]) == ("3", 1000)
        assert model_client.http.get("/queue").json()["queue_running"][0][1] == prompt_id
        model_client.http.post("/interrupt", json={"prompt_id": "some other"})
        body = {"prompt_id": prompt_id} if named else {}
        assert model_client.http.post("/interrupt", json=body).status_code == 200
        found = until_end(socket, prompt_id)
    told = next(m["data"] for m in found if m["type"] == "execution_interrupted")
    assert (told["node_id"], told["node_type"]) == ("3", "KSampler")
    assert "4" in told["executed"]
    entry = model_client.history(prompt_id)[prompt_id]
    assert entry["status"]["status_str"] == "error"
    assert entry["status"]["completed"] is False


def test_previews_go_to_those_who_asked(model_client: ComfyClient) -> None:
    with model_client.socket("previews") as socket:
        until(socket, "status")
        flags = {"type": "feature_flags", "data": {"supports_preview_metadata": True}}
        socket.send(json.dumps(flags))
        assert until(socket, "feature_flags")["data"]["supports_preview_metadata"] is True
        prompt_id = model_client.accepted(endless(model_client, 3), "previews")["prompt_id"]
        frame = binary(socket)
        kind, length = struct.unpack_from(">II", frame)
        told = json.loads(frame[8 : 8 + length])
        assert (kind, told["node_id"], told["prompt_id"]) == (4, "3", prompt_id)
        assert opened(frame[8 + length :]).format is None
        model_client.http.post("/interrupt", json={})
        until_end(socket, prompt_id)


def test_plain_previews_only_for_prompts_that_want_them(model_client: ComfyClient) -> None:
    with model_client.socket("plain") as socket:
        extra = {"preview_method": "auto"}
        prompt = endless(model_client, 4)
        prompt_id = model_client.accepted(prompt, "plain", extra_data=extra)["prompt_id"]
        frame = binary(socket)
        assert struct.unpack_from(">II", frame) == (1, 1)
        assert frame[8:11] == b"\xff\xd8\xff"
        model_client.http.post("/interrupt", json={})
        until_end(socket, prompt_id)


def binary(socket: Any) -> bytes:
    while True:
        message = socket.recv(timeout=TIMEOUT_S)
        if isinstance(message, bytes):
            return message


def test_pictures_over_the_socket(client: ComfyClient) -> None:
    prompt = picture_prompt(colour=0x0A0B0C)
    prompt["2"] = {"class_type": "SaveImageWebsocket", "inputs": {"images": ["1", 0]}}
    for _ in range(2):
        # The second time it is cached, and the client wants it all the same.
        with client.socket("pictures") as socket:
            prompt_id = client.accepted(prompt, "pictures")["prompt_id"]
            frame = binary(socket)
            until_end(socket, prompt_id)
        assert struct.unpack_from(">II", frame) == (1, 2)
        assert opened(frame[8:]).getpixel((0, 0)) == (10, 11, 12)
    assert client.history(prompt_id)[prompt_id]["outputs"] == {}
