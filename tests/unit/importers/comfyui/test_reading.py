"""Workflows in JSON of all forms and in media files, and what is said of broken ones."""

from __future__ import annotations

import io
import json
import struct
import time
import zlib
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image as Pillow
from PIL.PngImagePlugin import PngInfo

from inline_core.errors import InlineError, InvalidAsset, InvalidRequest, NoRecipe, PayloadTooLarge
from inline_core.importers.comfyui.flattening import flatten
from inline_core.importers.comfyui.reading import (
    WorkflowFormat,
    format_of,
    read_workflow,
    workflow_in,
)
from inline_core.importers.comfyui.report import Reason
from tests.unit.importers.comfyui.workflows import bare, node, workflow

UI = workflow([node(1, "VAELoader", ["ä"], outputs=["VAE"])], [])
UI_1 = {**UI, "version": 1, "state": {"lastNodeId": 1}}
API = {"1": {"class_type": "VAELoader", "inputs": {"vae_name": "b"}}}
OURS = {"nodes": [{"id": "1", "type": "load", "params": {}, "inputs": {}}], "version": 1}


@pytest.mark.parametrize(
    ("document", "form", "wrappers"),
    [
        (UI, WorkflowFormat.UI_0_4, ()),
        (UI_1, WorkflowFormat.UI_1, ()),
        (API, WorkflowFormat.API, ()),
        ({"prompt": API}, WorkflowFormat.API, ("prompt",)),
        ({"workflow": UI}, WorkflowFormat.UI_0_4, ("workflow",)),
        ({"workflow": json.dumps(UI)}, WorkflowFormat.UI_0_4, ("workflow",)),
        (
            {"extra_data": {"extra_pnginfo": {"workflow": UI}}},
            WorkflowFormat.UI_0_4,
            ("extra_data", "extra_pnginfo", "workflow"),
        ),
        # What a client sends: the prompt is what runs, the workflow may be stale.
        (
            {"prompt": API, "extra_data": {"extra_pnginfo": {"workflow": UI}}},
            WorkflowFormat.API,
            ("prompt",),
        ),
        ({"prompt": {"text": "a cat"}, "workflow": UI}, WorkflowFormat.UI_0_4, ("workflow",)),
        ({"prompt": [3, "id", API, {}, ["1"]]}, WorkflowFormat.API, ("prompt",)),
    ],
)
def test_forms_and_wrappers(document: Any, form: WorkflowFormat, wrappers: tuple[str, ...]) -> None:
    for found in (read_workflow(json.dumps(document).encode()), workflow_in(document)):
        assert (found.format, found.wrappers, found.place) == (form, wrappers, "json")
        assert set(flatten(found).prompt) == {"1"}


def test_links_in_both_spellings() -> None:
    nodes = [
        node(1, "LoadImage", ["x", "image"], outputs=["IMAGE", "MASK"]),
        node("two", "SaveImage", ["o"], inputs=[("images", "IMAGE", 4)]),
    ]
    names = ("id", "origin_id", "origin_slot", "target_id", "target_slot", "type")
    link = [4, 1, 0, "two", 0, "IMAGE"]
    one = flatten(workflow_in(workflow(nodes, [link])))
    entry: Any = dict(zip(names, link, strict=True)) | {"parentId": 3}
    other = flatten(workflow_in(workflow(nodes, [entry]) | {"version": 1}))
    assert bare(one) == bare(other)
    assert one.prompt["two"]["inputs"]["images"] == ["1", 0]


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ('{"nodes": [],\n "links": [', "ends too early", (2, 12)),
        ('{"nodes": [}', "line 1 column 12", (1, 12)),
        ('{"a": "text', "ends too early", (1, 7)),
        ('{"a": 1,\n}', "line 1 column 8|line 2 column 1", None),
        ("", "is empty", (1, 1)),
        ("{'a': 1}", "line 1 column 2", (1, 2)),
    ],
)
def test_broken_json_is_located(text: str, message: str, place: tuple[int, int] | None) -> None:
    with pytest.raises(InvalidRequest, match=message) as caught:
        read_workflow(text)
    if place is not None:
        assert caught.value.details == {"line": place[0], "column": place[1]}


def test_numbers_that_json_does_not_have_are_located() -> None:
    text = '{"1": {"class_type": "A NaN",\n "inputs": {"x": -Infinity, "y": NaN, "z": 1}}}'
    found = read_workflow(text)
    line = found.report.lines[0]
    assert line.reason is Reason.NOT_FINITE
    assert "-Infinity at line 2 column 18 (2 in all)" in line.message
    result = flatten(found)
    assert result.prompt["1"]["inputs"] == {"z": 1}
    assert [entry.input for entry in result.report if entry.node_id] == ["x", "y"]


@pytest.mark.parametrize(
    "document",
    [{}, [], 3, None, "text", {"graph": OURS}, OURS, {"prompt": {}}, {"nodes": [{"id": 1}]}],
)
def test_json_without_a_workflow(document: Any) -> None:
    assert format_of(document) is None
    with pytest.raises(NoRecipe, match="no ComfyUI workflow"):
        read_workflow(json.dumps(document))


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"1": {"class_type": "A", "inputs": ' + "[" * 300 + "]" * 300 + "}}",
        '{"a": ' + "1" * 5000 + "}",
    ],
)
def test_json_that_is_too_deep_or_long(text: str) -> None:
    with pytest.raises(InvalidRequest):
        read_workflow(text)


def test_too_large() -> None:
    with pytest.raises(PayloadTooLarge, match="limit of 10 bytes"):
        read_workflow(json.dumps(UI), max_json_bytes=10)
    with pytest.raises(PayloadTooLarge):
        read_workflow(png(workflow=json.dumps(UI)), max_bytes=50)


def test_bytes_with_marks_and_other_bytes() -> None:
    text = json.dumps(UI, ensure_ascii=False)
    for data in (text.encode("utf-8-sig"), text.encode("utf-16")):
        assert read_workflow(data).document == UI
    with pytest.raises(NoRecipe, match="neither a known media file nor text"):
        read_workflow(b"\x80\x81\x82")


def png(*, packed: bool = False, **texts: str) -> bytes:
    info = PngInfo()
    for key, text in texts.items():
        info.add_itxt(key, text, zip=packed)
    buffer = io.BytesIO()
    Pillow.new("L", (4, 4)).save(buffer, "PNG", pnginfo=info)
    return buffer.getvalue()


def apng(**texts: str) -> bytes:
    data = png()
    for key, text in texts.items():
        body = b"comf" + key.encode() + b"\x00" + text.encode()
        chunk = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
        data = data[:-12] + chunk + data[-12:]
    return data


def exif(kind: str, **texts: str) -> bytes:
    info = Pillow.Exif()
    for tag, (key, text) in zip((0x0110, 0x010F), texts.items(), strict=False):
        info[tag] = f"{key}:{text}"
    buffer = io.BytesIO()
    Pillow.new("RGB", (4, 4)).save(buffer, kind, exif=info)
    return buffer.getvalue()


def film(kind: str, codec: str, **texts: str) -> bytes:
    """A file of one stream with tags."""
    buffer = io.BytesIO()
    options = {"movflags": "use_metadata_tags"} if kind == "mp4" else {}
    with av.open(buffer, "w", kind, options=options) as container:
        container.metadata.update(texts)
        if kind in {"mp4", "webm", "matroska"}:
            video = container.add_stream(codec, rate=Fraction(8))
            video.width = video.height = 16  # type: ignore[union-attr]
            video.pix_fmt = "yuv420p"  # type: ignore[union-attr]
            frame: Any = av.VideoFrame.from_ndarray(np.zeros((16, 16, 3), np.uint8))
            stream: Any = video
        else:
            stream = container.add_stream(codec, rate=48_000, layout="mono")
            kind_of_sample = stream.codec_context.codec.audio_formats[0].name
            frame = av.AudioFrame(kind_of_sample, "mono", 4096)
            frame.sample_rate = 48_000
            for plane in frame.planes:
                plane.update(bytes(plane.buffer_size))
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return buffer.getvalue()


def glb(**texts: str) -> bytes:
    body = json.dumps({"asset": {"version": "2.0", "extras": texts}}).encode()
    return b"glTF" + struct.pack("<IIII", 2, 20 + len(body), len(body), 0x4E4F534A) + body


def latent(**texts: str) -> bytes:
    body = json.dumps({"__metadata__": texts}).encode()
    return struct.pack("<Q", len(body)) + body


FILES: dict[str, Callable[..., bytes]] = {
    "PNG": png,
    "PNG packed": lambda **texts: png(packed=True, **texts),
    "PNG animated": apng,
    "WebP": lambda **texts: exif("WEBP", **texts),
    "JPEG": lambda **texts: exif("JPEG", **texts),
    "AVIF": lambda **texts: exif("AVIF", **texts),
    "mp4": lambda **texts: film("mp4", "mpeg4", **texts),
    "webm": lambda **texts: film("webm", "libvpx", **texts),
    "mkv": lambda **texts: film("matroska", "mpeg4", **texts),
    "flac": lambda **texts: film("flac", "flac", **texts),
    "ogg": lambda **texts: film("ogg", "libopus", **texts),
    "mp3": lambda **texts: film("mp3", "libmp3lame", **texts),
    "GLB": glb,
    "safetensors": latent,
}


@pytest.mark.parametrize("kind", FILES)
def test_workflows_in_files(kind: str) -> None:
    make = FILES[kind]
    found = read_workflow(make(prompt=json.dumps(API), workflow=json.dumps(UI)))
    assert found.document == UI
    assert found.place.endswith(" workflow")
    found = read_workflow(make(prompt=json.dumps(API)))
    assert found.document == API
    with pytest.raises(NoRecipe, match="holds no ComfyUI workflow"):
        read_workflow(make())


def test_the_comment_of_other_savers() -> None:
    comment = json.dumps({"prompt": json.dumps(API), "workflow": UI})
    assert read_workflow(film("mp4", "mpeg4", comment=comment)).document == UI


def test_a_broken_workflow_gives_way_to_the_prompt() -> None:
    found = read_workflow(png(workflow="{", prompt=json.dumps(API), parameters="a cat, Steps: 20"))
    assert found.document == API
    assert found.report.lines[0].reason is Reason.BROKEN_JSON
    with pytest.raises(InvalidRequest, match="'workflow' in this PNG is broken JSON"):
        read_workflow(png(workflow="{"))


@pytest.mark.parametrize("kind", FILES)
def test_damaged_files_never_crash(kind: str) -> None:
    data = FILES[kind](workflow=json.dumps(UI))
    for end in range(12, len(data), max(1, len(data) // 12)):
        try:
            read_workflow(data[:end])
        except InlineError as error:
            assert error.message
    with pytest.raises(InvalidAsset):
        read_workflow(png(workflow=json.dumps(UI))[:60])


def test_a_template_of_193_nodes_is_quick() -> None:
    nodes, links = [], []
    for number in range(193):
        slots = [("model", "MODEL", number), ("positive", "CONDITIONING", None)]
        values = [number, "randomize", 20, 8.0, "euler", "normal", 1.0]
        nodes.append(node(number, "KSampler", values, inputs=slots, outputs=["LATENT"]))
        links.append([number, (number * 7) % 193, 0, number, 0, "MODEL"])
    text = json.dumps(workflow(nodes, links))
    spent = []
    for _ in range(5):
        start = time.process_time()
        assert len(flatten(read_workflow(text)).prompt) == 193
        spent.append(time.process_time() - start)
    assert min(spent) < 0.1


def test_the_comment_of_the_user_in_exif() -> None:
    info = Pillow.Exif()
    info.get_ifd(0x8769)[0x9286] = b"ASCII\x00\x00\x00" + json.dumps({"prompt": API}).encode()
    buffer = io.BytesIO()
    Pillow.new("RGB", (4, 4)).save(buffer, "JPEG", exif=info)
    assert read_workflow(buffer.getvalue()).document == API


def test_exif_behind_a_chunk_of_odd_length() -> None:
    data = exif("WEBP", workflow=json.dumps(UI))
    data = data[:12] + b"odd " + struct.pack("<I", 3) + b"abc\x00" + data[12:]
    assert read_workflow(data).document == UI
