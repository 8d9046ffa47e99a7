"""The history: what stays over a restart, what is taken out, how it is paged."""

from __future__ import annotations

from pathlib import Path

from websockets.sync.client import connect

from tests.live import LiveServer, ServerProcess
from tests.unit.server.comfyui.prompts import (
    ComfyClient,
    comfy_server,
    opened,
    picture_prompt,
    until_end,
)


def test_prompts_and_history_survive_a_restart(tmp_path: Path) -> None:
    with comfy_server(tmp_path) as server:
        client = ComfyClient(server)
        done = client.run(picture_prompt(colour=1))
        server.services.orchestrator.pause()
        waiting = client.accepted(picture_prompt(colour=2), "patient")
        queue = client.http.get("/queue").json()
    with comfy_server(tmp_path) as server:
        client = ComfyClient(server)
        assert client.history(done["prompt"][1]) == {done["prompt"][1]: done}
        assert client.view(done["outputs"]["2"]["images"][0]).status_code == 200
        assert client.http.get("/queue").json() == queue
        # The same again is the prompt that waits, not another one.
        again = client.accepted(picture_prompt(colour=2), prompt_id=waiting["prompt_id"])
        assert again == waiting
        assert client.accepted(picture_prompt(colour=3))["number"] > waiting["number"]
        with client.socket("patient") as socket:
            server.services.orchestrator.resume()
            until_end(socket, waiting["prompt_id"])
        assert list(client.http.get("/history").json())[:2] == [
            done["prompt"][1],
            waiting["prompt_id"],
        ]


def test_an_accepted_prompt_survives_a_kill(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data", tmp_path / "models")
    server.http.post("/v1/queue/pause")
    body = {"prompt": picture_prompt(colour=3), "client_id": "me"}
    accepted = server.http.post("/prompt", json=body).json()
    server.kill()
    server = ServerProcess(tmp_path / "data", tmp_path / "models")
    try:
        with connect(server.url.replace("http://", "ws://") + "/ws?clientId=me") as socket:
            server.http.post("/v1/queue/resume")
            until_end(socket, accepted["prompt_id"])
        entry = server.http.get(f"/history/{accepted['prompt_id']}").json()[accepted["prompt_id"]]
        assert entry["status"]["status_str"] == "success"
        (file,) = entry["outputs"]["2"]["images"]
        assert server.http.get("/view", params=file).status_code == 200
    finally:
        assert server.stop() == 0


def test_an_unfinished_or_unknown_prompt_has_no_history(
    server: LiveServer, client: ComfyClient
) -> None:
    server.services.orchestrator.pause()
    waiting = client.accepted(picture_prompt(colour=40))["prompt_id"]
    assert client.history(waiting) == {}
    assert client.history("none") == {}
    client.http.post("/queue", json={"clear": True})
    server.services.orchestrator.resume()


def test_a_run_of_v1_is_no_prompt(client: ComfyClient, server: LiveServer) -> None:
    nodes = [{"id": "t", "type": "input/text", "params": {"text": "hello"}}]
    run_id = server.submit(nodes, "t", clientRunId="mine", wait=30).json()["runId"]
    assert run_id not in client.http.get("/history").text
    assert client.history("mine") == {}


def test_pages_of_the_history(tmp_path: Path) -> None:
    with comfy_server(tmp_path) as server:
        client = ComfyClient(server)
        ids = [client.run(picture_prompt(colour=50 + index))["prompt"][1] for index in range(4)]

        def listed(**params: int) -> list[str]:
            return list(client.http.get("/history", params=params).json())

        assert listed() == ids
        assert listed(max_items=2) == ids[2:]
        assert listed(max_items=2, offset=1) == ids[1:3]
        assert listed(offset=3) == ids[3:]
        assert listed(max_items=0) == []
        client.http.post("/history", json={"delete": [ids[1], "none"]})
        assert listed() == [ids[0], *ids[2:]]
        assert client.history(ids[1]) == {}
        client.http.post("/history", json={"clear": True})
        assert listed() == []
        # Only the history is gone: runs and pictures are still there.
        assert len(server.http.get("/v1/runs?all=true").json()["runs"]) == 4
        assert len(server.http.get("/v1/takes").json()["takes"]) == 4


def test_names_follow_the_prefix(client: ComfyClient) -> None:
    prompt = picture_prompt(colour=60, filename_prefix="../a/%width%x%height%/pic_%year%")
    file = client.run(prompt)["outputs"]["2"]["images"][0]
    assert file["subfolder"] == "a/64x64"
    assert file["filename"].startswith("pic_2")
    assert file["filename"].endswith("_.png")
    assert opened(client.view(file).content).getpixel((0, 0)) == (0, 0, 60)


def test_jobs_tell_of_the_same_prompts(client: ComfyClient) -> None:
    client.run(picture_prompt(colour=60))
    entry = client.run(picture_prompt(colour=61))
    prompt_id = entry["prompt"][1]
    jobs = client.http.get("/api/jobs", params={"limit": 1}).json()
    assert (jobs["jobs"][0]["id"], jobs["jobs"][0]["status"]) == (prompt_id, "completed")
    assert jobs["pagination"]["has_more"] is True
    job = client.http.get(f"/api/jobs/{prompt_id}").json()
    assert job["outputs"] == entry["outputs"]
    assert job["preview_output"] == entry["outputs"]["2"]["images"][0]
    assert client.http.post(f"/api/jobs/{prompt_id}/cancel").json() == {"cancelled": False}
    assert client.http.get("/api/jobs/none").status_code == 404
