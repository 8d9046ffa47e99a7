"""Videos and sounds through a real server: in, worked on, out as takes, and away again."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as PillowImage

from inline_core.graph.ports import PortKind
from inline_core.graph.spec import NodeSpec
from inline_core.media.audio import write_wav
from inline_core.media.reading import read_clip, read_waveform
from inline_core.media.values import Clip, Waveform
from inline_core.media.video import encode_mp4
from inline_core.nodes.base import NodeContext, Port, node, spec_of
from inline_core.settings import Settings
from tests.fault_nodes import specs_with_faults
from tests.live import LiveServer, live_server
from tests.processes import children
from tests.unit.media.clips import media_file, moving, tone

RAW = {"content-type": "application/octet-stream"}


@node(
    "test/film",
    title="Film",
    category="Test",
    outputs=[Port(PortKind.VIDEO), Port(PortKind.AUDIO)],
    output_kind="video",
)
def film(
    ctx: NodeContext,
    *,
    seed: int = 1,
    count: int = 24,
    width: int = 64,
    seconds: float = 1.0,
    loud: float = 1.0,
    broken: bool = False,
) -> tuple[Clip, Waveform]:
    """What a model gives that makes a video and its sound in one pass."""
    rng = np.random.default_rng(seed)
    frames = np.repeat(rng.integers(0, 255, (count, 12, width // 4, 3), np.uint8), 4, axis=1)
    frames = np.repeat(frames, 4, axis=2)
    frames = np.concatenate([frames, frames[:, :, : width % 4]], axis=2)
    sound = tone(seconds)
    factor = np.nan if broken else loud
    sound = Waveform((sound.samples * np.float32(factor)), sound.sample_rate_hz, {"seed": seed})
    return Clip(frames, 23.976, sound, {"seed": seed}), sound


@node(
    "test/endless",
    title="Endless",
    category="Test",
    outputs=[Port(PortKind.VIDEO)],
    output_kind="video",
)
def endless(ctx: NodeContext) -> Clip:
    """Hours of video that take no memory, to be cancelled while they are written."""
    return Clip(np.broadcast_to(np.uint8(90), (500_000, 256, 256, 3)), 24.0)


def specs() -> Mapping[str, NodeSpec]:
    more = {spec.type: spec for spec in (spec_of(film), spec_of(endless))}
    return {**specs_with_faults(), **more}


@pytest.fixture
def server(settings: Settings) -> Iterator[LiveServer]:
    with live_server(settings, specs()) as running:
        yield running


def film_node(**params: Any) -> dict[str, Any]:
    return {"id": "f", "type": "test/film", "params": params}


def wired(node_id: str, kind: str, port: str, source: str, **params: Any) -> dict[str, Any]:
    name, _, output = source.partition(".")
    inputs = {port: {"from": name, "output": output}}
    return {"id": node_id, "type": kind, "params": params, "inputs": inputs}


def upload(server: LiveServer, path: Path) -> dict[str, str]:
    reply = server.http.post("/v1/assets", content=path.read_bytes())
    assert reply.status_code in {200, 201}, reply.text
    return {"ref": "asset", "id": reply.json()["id"]}


def run_of(server: LiveServer, nodes: list[dict[str, Any]], target: str, **more: Any) -> Any:
    run = server.submit(nodes, target, wait=30, **more).json()
    assert run["status"] == "done", run
    return run


def stored(server: LiveServer) -> list[str]:
    return sorted(path.name for path in server.settings.takes_dir.rglob("*") if not path.is_dir())


def take_file(server: LiveServer, take: dict[str, Any], folder: Path) -> Path:
    path = folder / Path(take["uri"]).name
    path.write_bytes(server.http.get(f"/v1/{take['uri']}").content)
    return path


def test_a_video_comes_in_is_cut_and_goes_out(server: LiveServer, tmp_path: Path) -> None:
    drawn = Clip(moving(48, fps=23.976).frames, 23.976, tone(2.002))
    encode_mp4(drawn, tmp_path / "in.mp4")
    nodes = [
        {
            "id": "v",
            "type": "input/video",
            "params": {"asset": upload(server, tmp_path / "in.mp4")},
        },
        wired("s", "video/slice", "video", "v.video", start=0.5, duration=1.0),
        wired("p", "video/frame", "video", "s.video", index=-1),
    ]
    run = run_of(server, nodes, "p")
    video, picture = run["takes"]
    assert (video["kind"], video["width"], video["height"]) == ("video", 64, 48)
    assert video["uri"] == f"takes/{video['id']}.mp4"
    assert video["fps"] == 24000 / 1001
    assert (video["durationMs"], video["hasSound"], video["sampleRateHz"]) == (1001, True, 48_000)
    assert picture["kind"] == "image"
    assert not {"fps", "durationMs", "posterUri", "hasSound"} & picture.keys()
    back = read_clip(media_file(take_file(server, video, tmp_path)))
    assert np.abs(back.frames[:, 8:16].astype(int) - drawn.frames[12:36, 8:16]).max() <= 6
    assert back.sound is not None
    assert back.sound.samples.shape == (2, 48_048)
    png = server.http.get(f"/v1/{picture['uri']}").content
    with PillowImage.open(io.BytesIO(png)) as shown:
        assert np.array_equal(np.asarray(shown), back.frames[-1])


def test_a_video_is_served_as_browsers_ask_for_it(server: LiveServer) -> None:
    take = run_of(server, [film_node()], "f")["takes"][0]
    whole = server.http.get(f"/v1/{take['uri']}")
    assert whole.headers["content-type"] == "video/mp4"
    assert len(whole.content) == take["bytes"]
    part = server.http.get(f"/v1/takes/{take['id']}/bytes", headers={"Range": "bytes=100-299"})
    assert part.status_code == 206
    assert part.content == whole.content[100:300]
    assert take["posterUri"] == f"takes/{take['id']}/poster"
    poster = server.http.get(f"/v1/{take['posterUri']}")
    assert poster.headers["content-type"] == "image/jpeg"
    with PillowImage.open(io.BytesIO(poster.content)) as picture:
        assert picture.size == (64, 48)
    etag = {"If-None-Match": poster.headers["etag"]}
    assert server.http.get(f"/v1/{take['posterUri']}", headers=etag).status_code == 304
    assert server.http.get(f"/v1/takes/{take['id']}").json() == take
    listed = server.http.get("/v1/takes?kind=video").json()["takes"]
    assert listed == [take]


def test_video_with_sound_is_two_takes_with_recipes(server: LiveServer, tmp_path: Path) -> None:
    run = run_of(server, [film_node(seconds=2.0, loud=2.5, width=63)], "f")
    video, sound = run["takes"]
    assert (video["kind"], sound["kind"]) == ("video", "audio")
    assert (sound["durationMs"], sound["sampleRateHz"]) == (2000, 48_000)
    assert (video["width"], video["height"], video["durationMs"]) == (64, 48, 1001)
    assert "posterUri" not in sound
    told = " ".join(warning["message"] for warning in run["warnings"])
    for words in ("63x48", "64x48", "cut at their end", "louder than full scale"):
        assert words in told
    assert "64x48" in " ".join(video["provenance"]["warnings"])
    whole = server.http.get(f"/v1/{sound['uri']}")
    assert whole.headers["content-type"] == "audio/wav"
    part = server.http.get(f"/v1/{sound['uri']}", headers={"Range": "bytes=0-3"})
    assert (part.status_code, part.content) == (206, b"RIFF")
    kept = read_waveform(media_file(take_file(server, sound, tmp_path), "audio"))
    assert kept.samples.shape == (2, 96_000)
    for take in (video, sound):
        content = server.http.get(f"/v1/{take['uri']}").content
        found = server.http.post("/v1/import", content=content, headers=RAW)
        assert found.status_code == 200, found.text
        recipe = found.json()
        assert recipe["params"]["seed"] == 1
        again = run_of(server, recipe["graph"]["nodes"], recipe["target"], force=True)
        assert [entry["hash"] for entry in again["takes"]] == [video["hash"], sound["hash"]]
        assert server.http.get(f"/v1/takes/{take['id']}/graph").json()["target"] == "f"


def test_no_recipe_is_no_recipe(server: LiveServer, tmp_path: Path) -> None:
    encode_mp4(moving(2), tmp_path / "a.mp4", comment='{"made": "elsewhere"}')
    reply = server.http.post("/v1/import", content=(tmp_path / "a.mp4").read_bytes(), headers=RAW)
    assert reply.json()["error"]["code"] == "no_recipe"


def test_what_is_reused_gives_what_a_fresh_run_gives(settings: Settings) -> None:
    nodes = [
        film_node(),
        wired("s", "video/slice", "video", "f.video", start=0.25),
        wired("t", "audio/trim", "audio", "f.audio", start=0.5),
        wired("g", "audio/gain", "audio", "t.audio", decibels=-6),
    ]
    with live_server(settings, specs()) as server:
        fresh = [run_of(server, nodes, target)["takes"][-1]["hash"] for target in ("s", "g")]
    with live_server(settings, specs()) as server:
        run = run_of(server, nodes, "s")
        assert {name: entry["state"] for name, entry in run["nodes"].items()} == {
            "f": "cached", "s": "cached",
        }  # fmt: skip
        for take in run["takes"]:
            if take["nodeId"] in {"s", "t", "g"}:
                assert server.http.delete(f"/v1/takes/{take['id']}").status_code == 204
        run = run_of(server, nodes, "s")
        assert run["nodes"]["f"]["state"] == "cached"
        assert run["nodes"]["s"]["state"] == "done"
        assert run["takes"][-1]["hash"] == fresh[0]
        forced = [
            run_of(server, nodes, target, force=True)["takes"][-1]["hash"] for target in ("s", "g")
        ]
        assert forced == fresh


def test_deleting_frees_the_video_and_its_poster(server: LiveServer) -> None:
    first = run_of(server, [film_node()], "f")
    second = run_of(server, [film_node(loud=0.5)], "f")  # the same pictures, another sound
    one, other = first["takes"][0], second["takes"][0]
    assert one["hash"] != other["hash"]
    names = stored(server)
    assert [name.rpartition(".")[2] for name in names].count("jpg") == 1
    assert server.http.delete(f"/v1/takes/{one['id']}").status_code == 204
    gone = server.http.get(f"/v1/takes/{one['id']}/poster")
    assert (gone.status_code, gone.json()["error"]["code"]) == (410, "output_unavailable")
    assert server.http.get(f"/v1/takes/{other['id']}/poster").status_code == 200
    assert server.http.delete(f"/v1/takes/{other['id']}").status_code == 204
    assert {name.rpartition(".")[2] for name in stored(server)} == {"wav"}
    for run in (first, second):
        assert server.http.delete(f"/v1/runs/{run['runId']}/record").status_code == 204
    assert stored(server) == []


def test_other_takes_have_no_poster(server: LiveServer) -> None:
    picture = run_of(server, [{"id": "a", "type": "test/paint"}], "a")["takes"][0]
    sound = run_of(server, [film_node()], "f")["takes"][1]
    for take in (picture, sound):
        reply = server.http.get(f"/v1/takes/{take['id']}/poster")
        assert (reply.status_code, reply.json()["error"]["code"]) == (404, "not_found")
        assert take["kind"] in reply.json()["error"]["message"]


def test_cancelling_while_a_video_is_written_leaves_nothing(server: LiveServer) -> None:
    run_id = server.submit([{"id": "e", "type": "test/endless"}], "e").json()["runId"]
    with server.socket(run_id) as socket:
        # No event tells that the encoder runs.
        pause, deadline = threading.Event(), time.monotonic() + 20
        while not children():
            assert time.monotonic() < deadline, "no encoder was started"
            pause.wait(0.01)
        server.http.delete(f"/v1/runs/{run_id}")
        for _ in socket:
            pass
    assert server.run(run_id)["status"] == "cancelled"
    server.services.media_pool.shutdown(wait=True)  # whatever encodes has ended then
    assert children() == []
    assert stored(server) == []


def test_a_sound_that_is_not_finite_fails_by_name(server: LiveServer) -> None:
    run = server.submit([film_node(broken=True)], "f", wait=20).json()
    assert run["status"] == "error"
    assert (run["error"]["code"], run["error"]["nodeId"]) == ("not_finite", "f")
    assert stored(server) == []


def test_pictures_and_sound_become_a_video_and_come_apart(
    server: LiveServer, tmp_path: Path
) -> None:
    write_wav(tone(1.0, 44_100), tmp_path / "in.wav")
    paint = [
        {"id": f"p{shade}", "type": "test/paint", "params": {"shade": shade, "size": 32}}
        for shade in (10, 90, 200)
    ]
    nodes = [
        *paint,
        {
            "id": "w",
            "type": "input/audio",
            "params": {"asset": upload(server, tmp_path / "in.wav")},
        },
        {
            "id": "m",
            "type": "video/make",
            "params": {"fps": 12.5},
            "inputs": {
                "images": [{"from": entry["id"], "output": "image"} for entry in paint],
                "audio": {"from": "w", "output": "audio"},
            },
        },
        wired("c", "video/components", "video", "m.video"),
        wired("k", "image/from-batch", "image", "c.images", index=1),
        wired("j", "audio/join", "first", "c.audio"),
    ]
    nodes[-1]["inputs"]["second"] = {"from": "c", "output": "audio"}
    run = run_of(server, nodes, "k")
    video = next(take for take in run["takes"] if take["kind"] == "video")
    assert (video["fps"], video["durationMs"], video["sampleRateHz"]) == (12.5, 240, 44_100)
    png = server.http.get(f"/v1/{run['takes'][-1]['uri']}").content
    with PillowImage.open(io.BytesIO(png)) as picture:
        assert abs(int(np.asarray(picture)[20, 20, 0]) - 90) <= 3
    joined = run_of(server, nodes, "j")["takes"][-1]
    assert (joined["kind"], joined["durationMs"]) == ("audio", 480)


def test_audio_takes_can_be_flac(settings: Settings) -> None:
    with live_server(settings.model_copy(update={"audio_format": "flac"}), specs()) as server:
        sound = run_of(server, [film_node()], "f")["takes"][1]
        assert sound["uri"].endswith(".flac")
        reply = server.http.get(f"/v1/{sound['uri']}")
        assert (reply.headers["content-type"], reply.content[:4]) == ("audio/flac", b"fLaC")


def test_a_node_says_what_is_wrong_with_a_file(server: LiveServer, tmp_path: Path) -> None:
    encode_mp4(moving(48), tmp_path / "in.mp4")
    asset = upload(server, tmp_path / "in.mp4")
    nodes = [
        {"id": "v", "type": "input/video", "params": {"asset": asset}},
        wired("s", "video/slice", "video", "v.video", start=9.0),
    ]
    run = server.submit(nodes, "s", wait=20).json()
    assert (run["error"]["code"], run["error"]["nodeId"]) == ("invalid_param", "s")
    assert "9 s" in run["error"]["message"]
    write_wav(tone(0.5), tmp_path / "in.wav")
    nodes[0]["params"] = {"asset": upload(server, tmp_path / "in.wav")}
    run = server.submit(nodes, "s", wait=20).json()
    assert (run["error"]["code"], run["error"]["nodeId"]) == ("invalid_asset", "v")
