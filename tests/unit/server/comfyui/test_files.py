"""Files: uploads into the input folder, and looking at inputs and results."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.live import LiveServer
from tests.unit.server.comfyui.prompts import ComfyClient, opened, picture_prompt, png


def upload(client: ComfyClient, data: bytes, name: str, kind: str = "image", **fields: str) -> Any:
    return client.http.post(f"/upload/{kind}", files={"image": (name, data)}, data=fields)


def test_an_upload_lies_in_the_input_folder(server: LiveServer, client: ComfyClient) -> None:
    reply = upload(client, png(), "first.png")
    assert reply.json() == {"name": "first.png", "subfolder": "", "type": "input"}
    assert (server.settings.input_folder / "first.png").read_bytes() == png()
    found = client.view({"filename": "first.png", "type": "input"})
    assert found.content == png()
    assert found.headers["content-type"] == "image/png"
    assert "sandbox" in found.headers["content-security-policy"]


def test_the_same_name_with_other_content_gets_a_number(client: ComfyClient) -> None:
    first, other = png((1, 2, 3)), png((4, 5, 6))
    assert upload(client, first, "same.png").json()["name"] == "same.png"
    assert upload(client, first, "same.png").json()["name"] == "same.png"
    assert upload(client, other, "same.png").json()["name"] == "same (1).png"
    assert upload(client, other, "same.png", overwrite="true").json()["name"] == "same.png"
    assert client.view({"filename": "same.png", "type": "input"}).content == other


def test_a_subfolder_is_made(client: ComfyClient) -> None:
    reply = upload(client, png(), "deep.png", subfolder="a/b")
    assert reply.json() == {"name": "deep.png", "subfolder": "a/b", "type": "input"}
    file = {"filename": "deep.png", "subfolder": "a/b", "type": "input"}
    assert client.view(file).content == png()
    options = client.http.get("/object_info/LoadImage").json()["LoadImage"]["input"]["required"]
    assert "a/b/deep.png" in options["image"][0]


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("x.png", {"subfolder": "../out"}),
        ("x.png", {"subfolder": "a/../../out"}),
        ("x.png", {"type": "output"}),
        ("..", {}),
        (".hidden", {}),
        ("a:b.png", {}),
    ],
)
def test_no_upload_leaves_the_input_folder(
    server: LiveServer, client: ComfyClient, name: str, fields: dict[str, str]
) -> None:
    before = sorted(server.settings.data_dir.rglob("*.png"))
    reply = upload(client, png(), name, **fields)
    assert reply.status_code in {400, 403}
    assert set(reply.json()) == {"error", "node_errors"}
    assert sorted(server.settings.data_dir.rglob("*.png")) == before


@pytest.mark.parametrize("name", ["schöne blume.png", "花.png", "a (2) & b.png"])
def test_names_may_have_any_letters(client: ComfyClient, name: str) -> None:
    data = png((name.encode()[0], len(name), 3))
    assert upload(client, data, name).json()["name"] == name
    assert client.view({"filename": name, "type": "input"}).content == data


def test_a_path_in_the_name_is_only_a_name(client: ComfyClient) -> None:
    assert upload(client, png((9, 9, 9)), "../../plain.png").json()["name"] == "plain.png"


@pytest.mark.parametrize(
    "sent",
    [
        {"content": png(), "headers": {"Content-Type": "image/png"}},
        {"content": b"", "headers": {"Content-Type": "multipart/form-data; boundary=x"}},
        {"content": b"--x\r\nbroken", "headers": {"Content-Type": "multipart/form-data"}},
        {"files": {"other": ("x.png", png())}},
    ],
    ids=["no form", "empty", "no boundary", "another field"],
)
def test_what_is_no_upload_is_refused(client: ComfyClient, sent: Any) -> None:
    reply = client.http.post("/upload/image", **sent)
    assert reply.status_code in {400, 422}
    assert set(reply.json()) == {"error", "node_errors"}


def test_an_uploaded_picture_runs(client: ComfyClient) -> None:
    name = upload(client, png((10, 20, 30), (40, 32)), "run.png").json()["name"]
    prompt = picture_prompt()
    prompt["1"] = {"class_type": "LoadImage", "inputs": {"image": name}}
    file = client.run(prompt)["outputs"]["2"]["images"][0]
    picture = opened(client.view(file).content)
    assert (picture.size, picture.getpixel((3, 3))) == ((40, 32), (10, 20, 30))
    # A result is read again by its name, as clients write it.
    again = picture_prompt()
    again["1"] = {"class_type": "LoadImage", "inputs": {"image": f"{file['filename']} [output]"}}
    assert client.run(again)["outputs"]["2"]["images"]


def test_a_graph_names_input_files_too(server: LiveServer, client: ComfyClient) -> None:
    def pixel(name: str, subfolder: str = "") -> Any:
        asset = {"ref": "input", "name": f"{subfolder}{name}"}
        wired = {"image": {"from": "i", "output": "image"}}
        nodes = [
            {"id": "i", "type": "input/image", "params": {"asset": asset}},
            {"id": "o", "type": "output/image", "inputs": wired},
        ]
        run = server.submit(nodes, "o", wait=30).json()
        assert run["status"] == "done", run
        return opened(server.http.get(f"/v1/{run['takes'][0]['uri']}").content).getpixel((0, 0))

    for colour in ((1, 1, 1), (2, 2, 2)):
        # Other content under the same name is another picture.
        upload(client, png(colour), "graph.png", overwrite="true", subfolder="of")
        assert pixel("graph.png", "of/") == colour
    for name in ("none.png", "../runs.db", "/etc/passwd", "of"):
        asset = {"ref": "input", "name": name}
        nodes = [{"id": "i", "type": "input/image", "params": {"asset": asset}}]
        run = server.submit(nodes, "i", wait=30).json()
        assert run["error"]["code"] == "invalid_asset"
        assert repr(name) in run["error"]["message"]


@pytest.mark.parametrize(
    "name", ["none.png", "../secret.png", "/etc/passwd", "take_0123456789ab_.png [output]"]
)
def test_a_file_that_is_not_there_is_a_fault_of_its_node(client: ComfyClient, name: str) -> None:
    prompt = picture_prompt()
    prompt["1"] = {"class_type": "LoadImage", "inputs": {"image": name}}
    error = client.refused(prompt)["node_errors"]["1"]["errors"][0]
    assert error["type"] == "custom_validation_failed"
    assert name in error["details"]


def test_a_mask_is_merged_into_its_picture(client: ComfyClient) -> None:
    upload(client, png((10, 20, 30), (40, 32)), "base.png")
    reference = {"filename": "base.png", "subfolder": "", "type": "input"}
    mask = png((0, 0, 0, 77), (40, 32))
    reply = upload(
        client, mask, "mask.png", "mask", original_ref=json.dumps(reference), subfolder="clipspace"
    )
    assert reply.json() == {"name": "mask.png", "subfolder": "clipspace", "type": "input"}
    merged = opened(client.view({**reply.json(), "filename": reply.json()["name"]}).content)
    assert merged.getpixel((5, 5)) == (10, 20, 30, 77)


def test_a_mask_goes_onto_a_result_too(client: ComfyClient) -> None:
    file = client.run(picture_prompt(colour=0x112233))["outputs"]["2"]["images"][0]
    reply = upload(
        client, png((0, 0, 0, 5)), "m2.png", "mask", original_ref=json.dumps(file), type="input"
    )
    merged = opened(client.view({"filename": reply.json()["name"], "type": "input"}).content)
    assert merged.getpixel((5, 5)) == (0x11, 0x22, 0x33, 5)


def test_a_mask_may_come_alone(client: ComfyClient) -> None:
    reply = upload(client, png((0, 0, 0, 9)), "alone.png", "mask")
    assert reply.json() == {"name": "alone.png", "subfolder": "", "type": "input"}


@pytest.mark.parametrize(
    "reference", ["no json", "[]", "{}", '{"filename": "none.png", "type": "input"}']
)
def test_a_mask_needs_its_picture(client: ComfyClient, reference: str) -> None:
    reply = upload(client, png((0, 0, 0, 5)), "m3.png", "mask", original_ref=reference)
    assert reply.status_code in {400, 404}


@pytest.mark.parametrize(
    ("preview", "kind"),
    [("webp;90", "WEBP"), ("jpeg;50", "JPEG"), ("webp", "WEBP"), ("odd;x", "WEBP")],
)
def test_previews_of_pictures(client: ComfyClient, preview: str, kind: str) -> None:
    upload(client, png(), "first.png")
    reply = client.view({"filename": "first.png", "type": "input"}, preview=preview)
    assert reply.headers["content-type"] == f"image/{kind.lower()}"
    assert opened(reply.content).size == (32, 24)


def test_channels_of_pictures(client: ComfyClient) -> None:
    upload(client, png((10, 20, 30, 77)), "alpha.png")
    file = {"filename": "alpha.png", "type": "input"}
    assert opened(client.view(file, channel="rgb").content).getpixel((0, 0)) == (10, 20, 30)
    assert opened(client.view(file, channel="a").content).getpixel((0, 0)) == (0, 0, 0, 77)
    assert client.view(file, channel="rgba").content == png((10, 20, 30, 77))


@pytest.mark.parametrize(
    ("file", "status"),
    [
        ({"filename": "none.png"}, 404),
        ({"filename": "none.png", "type": "input"}, 404),
        ({"filename": "x_take_0123456789ab_.png"}, 404),
        ({"filename": "../runs.db", "type": "input"}, 400),
        ({"filename": "runs.db", "subfolder": "..", "type": "input"}, 400),
        ({"filename": "/etc/passwd", "type": "input"}, 400),
        ({"filename": "x.png", "type": "secret"}, 400),
        ({}, 404),
    ],
)
def test_what_cannot_be_seen(client: ComfyClient, file: dict[str, str], status: int) -> None:
    reply = client.view(file)
    assert (reply.status_code, set(reply.json())) == (status, {"error", "node_errors"})


def test_a_page_that_was_uploaded_is_never_run(client: ComfyClient) -> None:
    upload(client, b"<script>alert(1)</script>", "page.html")
    reply = client.view({"filename": "page.html", "type": "input"})
    assert reply.headers["content-type"] == "application/octet-stream"
    assert reply.headers["x-content-type-options"] == "nosniff"


def test_files_of_a_client(client: ComfyClient) -> None:
    stored = client.http.post("/userdata/workflows%2Fmine.json", content=b'{"a": 1}')
    assert stored.json() == "workflows/mine.json"
    assert client.http.get("/api/userdata/workflows%2Fmine.json").json() == {"a": 1}
    listed = client.http.get("/userdata", params={"dir": "workflows", "recurse": "true"})
    assert listed.json() == ["mine.json"]
    info = client.http.get("/userdata", params={"dir": "workflows", "full_info": "true"}).json()
    assert (info[0]["path"], info[0]["size"]) == ("mine.json", 8)
    kept = client.http.post("/userdata/workflows%2Fmine.json?overwrite=false", content=b"{}")
    assert kept.status_code == 409
    assert client.http.get("/userdata/..%2Fruns.db").status_code == 403
    assert client.http.delete("/userdata/workflows%2Fmine.json").status_code == 204
    assert client.http.get("/userdata/workflows%2Fmine.json").status_code == 404
