"""Prompts: what is taken, what is refused and how, in which order they run."""

from __future__ import annotations

import copy
import json
import uuid
from typing import Any

import pytest

from tests.live import LiveServer
from tests.unit.server.comfyui.prompts import ComfyClient, Prompt, picture_prompt, until_end


def changed(node: str, **inputs: Any) -> Prompt:
    prompt = copy.deepcopy(picture_prompt())
    for name, value in inputs.items():
        if value is ...:
            del prompt[node]["inputs"][name]
        else:
            prompt[node]["inputs"][name] = value
    return prompt


@pytest.mark.parametrize(
    ("prompt", "node", "kind"),
    [
        (changed("1", width=...), "1", "required_input_missing"),
        (changed("1", width="wide"), "1", "invalid_input_type"),
        (changed("1", width=0), "1", "value_smaller_than_min"),
        (changed("1", width=10**6), "1", "value_bigger_than_max"),
        (changed("2", images=["1"]), "2", "bad_linked_input"),
        (changed("2", images=["7", 0]), "2", "bad_linked_input"),
        (changed("2", images=["1", 5]), "2", "bad_linked_input"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_fault_is_told_at_its_node(
    client: ComfyClient, prompt: Prompt, node: str, kind: str
) -> None:
    told = client.refused(prompt)
    assert told["error"]["type"] == "prompt_outputs_failed_validation"
    entry = told["node_errors"][node]
    assert [error["type"] for error in entry["errors"]] == [kind]
    assert set(entry["errors"][0]) == {"type", "message", "details", "extra_info"}
    assert entry["errors"][0]["extra_info"]["input_name"] in {"width", "images"}
    assert entry["dependent_outputs"] == ["2"]
    assert entry["class_type"] == prompt[node]["class_type"]


def test_types_of_links_must_fit(client: ComfyClient) -> None:
    prompt = changed("2")
    prompt["3"] = {"class_type": "PrimitiveInt", "inputs": {"value": 3}}
    prompt["2"]["inputs"]["images"] = ["3", 0]
    error = client.refused(prompt)["node_errors"]["2"]["errors"][0]
    assert error["type"] == "return_type_mismatch"
    assert error["details"] == "images, received_type(INT) mismatch input_type(IMAGE)"
    assert error["extra_info"]["linked_node"] == ["3", 0]


def test_an_option_must_be_one_of_the_list(client: ComfyClient) -> None:
    prompt = changed("2", images=["3", 0])
    scale = {"image": ["1", 0], "width": 8, "height": 8, "crop": "center"}
    prompt["3"] = {"class_type": "ImageScale", "inputs": {**scale, "upscale_method": "magic"}}
    error = client.refused(prompt)["node_errors"]["3"]["errors"][0]
    assert error["type"] == "value_not_in_list"
    assert error["extra_info"]["received_value"] == "magic"


def test_a_missing_model_file_is_not_in_the_list(client: ComfyClient) -> None:
    prompt = picture_prompt()
    prompt["4"] = {"class_type": "UpscaleModelLoader", "inputs": {"model_name": "none.pth"}}
    prompt["5"] = {
        "class_type": "ImageUpscaleWithModel",
        "inputs": {"upscale_model": ["4", 0], "image": ["1", 0]},
    }
    prompt["2"]["inputs"]["images"] = ["5", 0]
    error = client.refused(prompt)["node_errors"]["4"]["errors"][0]
    assert (error["type"], error["details"]) == (
        "value_not_in_list",
        "model_name: 'none.pth' not in []",
    )


def test_a_ring_is_told(client: ComfyClient) -> None:
    prompt = picture_prompt()
    for here, there in (("3", "4"), ("4", "3")):
        prompt[here] = {"class_type": "ImageInvert", "inputs": {"image": [there, 0]}}
    prompt["2"]["inputs"]["images"] = ["4", 0]
    errors = client.refused(prompt)["node_errors"]
    assert {error["type"] for node in errors.values() for error in node["errors"]} == {
        "dependency_cycle"
    }


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({}, "no_prompt"),
        ([], "no_prompt"),
        ({"prompt": 3}, "no_prompt"),
        ({"prompt": {}}, "prompt_no_outputs"),
        ({"prompt": {"1": picture_prompt()["1"]}}, "prompt_no_outputs"),
        ({"prompt": {"1": {"inputs": {}}}}, "missing_node_type"),
        ({"prompt": picture_prompt(), "prompt_id": "me"}, "invalid_prompt_id"),
        ({"prompt": picture_prompt(), "prompt_id": 5}, "invalid_prompt_id"),
        ({"prompt": picture_prompt(), "number": "x"}, "invalid_prompt"),
        ({"prompt": picture_prompt(), "partial_execution_targets": ["1"]}, "prompt_no_outputs"),
    ],
    ids=str,
)
def test_a_body_that_is_no_prompt(client: ComfyClient, body: Any, kind: str) -> None:
    reply = client.http.post("/prompt", content=json.dumps(body))
    assert (reply.status_code, reply.json()["error"]["type"]) == (400, kind)


def test_an_unknown_node_anywhere_refuses_the_whole_prompt(client: ComfyClient) -> None:
    prompt = picture_prompt()
    prompt["9"] = {"class_type": "NoSuchNode", "inputs": {}, "_meta": {"title": "Strange"}}
    error = client.refused(prompt)["error"]
    assert error["type"] == "missing_node_type"
    assert error["extra_info"] == {
        "node_id": "9",
        "class_type": "NoSuchNode",
        "node_title": "Strange",
    }


def test_a_prompt_runs_if_one_output_is_good(client: ComfyClient) -> None:
    prompt = picture_prompt(colour=5)
    prompt["8"] = {"class_type": "PreviewImage", "inputs": {}}
    with client.socket("partly") as socket:
        accepted = client.accepted(prompt, "partly")
        assert set(accepted["node_errors"]) == {"8"}
        until_end(socket, accepted["prompt_id"])
    entry = client.history(accepted["prompt_id"])[accepted["prompt_id"]]
    assert list(entry["outputs"]) == ["2"]
    assert entry["prompt"][4] == ["2"]


def test_only_the_wanted_outputs_run(client: ComfyClient) -> None:
    prompt = picture_prompt(colour=6)
    prompt["8"] = {"class_type": "PreviewImage", "inputs": {"images": ["1", 0]}}
    entry = client.run(prompt, partial_execution_targets=["8"])
    assert list(entry["outputs"]) == ["8"]
    assert entry["outputs"]["8"]["images"][0]["type"] == "temp"


def test_values_are_cast(client: ComfyClient) -> None:
    prompt = changed("1", width="48", height=32.0)
    file = client.run(prompt)["outputs"]["2"]["images"][0]
    assert client.http.get(f"/v1/takes/{file['filename'][5:22]}").json()["width"] == 48


def test_the_id_of_a_client_is_kept_and_makes_it_one_prompt(client: ComfyClient) -> None:
    prompt_id = str(uuid.uuid4())
    first = client.accepted(picture_prompt(colour=7), prompt_id=prompt_id)
    again = client.accepted(picture_prompt(colour=7), prompt_id=prompt_id)
    assert first == again
    assert first["prompt_id"] == prompt_id
    told = client.refused(picture_prompt(colour=8), 409, prompt_id=prompt_id)
    assert told["error"]["type"] == "prompt_id_in_use"


def test_numbers_grow_and_order_the_queue(server: LiveServer, client: ComfyClient) -> None:
    server.services.orchestrator.pause()
    try:
        normal = [client.accepted(picture_prompt(colour=20 + index)) for index in range(3)]
        numbers = [accepted["number"] for accepted in normal]
        assert numbers == list(range(numbers[0], numbers[0] + 3))
        front = client.accepted(picture_prompt(colour=30), front=True)
        assert front["number"] < 0
        between = client.accepted(picture_prompt(colour=31), number=numbers[0] + 0.5)
        assert between["number"] == numbers[0] + 0.5
        rows = client.http.get("/queue").json()["queue_pending"]
        wanted = [front, normal[0], between, normal[1], normal[2]]
        assert [row[1] for row in rows] == [accepted["prompt_id"] for accepted in wanted]
        assert [row[0] for row in rows] == [accepted["number"] for accepted in wanted]
        assert rows[0][2] == picture_prompt(colour=30)
        assert client.http.get("/prompt").json() == {"exec_info": {"queue_remaining": 5}}
        client.http.post("/queue", json={"delete": [front["prompt_id"]]})
        client.http.post("/queue", json={"clear": True})
        assert client.http.get("/queue").json() == {"queue_running": [], "queue_pending": []}
        # What was taken out of the queue is not silently gone.
        entry = client.history(front["prompt_id"])[front["prompt_id"]]
        assert entry["status"]["completed"] is False
        assert entry["status"]["messages"][-1][0] == "execution_interrupted"
    finally:
        server.services.orchestrator.resume()


def test_keys_of_other_services_are_not_kept(client: ComfyClient) -> None:
    extra = {"api_key_comfy_org": "secret", "extra_pnginfo": {"workflow": {"nodes": []}}}
    entry = client.run(picture_prompt(colour=9), extra_data=extra)
    assert entry["prompt"][3] == {
        "extra_pnginfo": {"workflow": {"nodes": []}},
        "client_id": "runner",
    }
