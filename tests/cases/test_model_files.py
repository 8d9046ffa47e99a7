"""What hurts people with model files today, over the wire: each case, then an untouched next run.

The ids are those of the collected cases: F files, D models folder, M memory.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from diffusers import ZImageTransformer2DModel
from safetensors.torch import save_file

from inline_core.devices import probe
from inline_core.devices.budget import GIB
from inline_core.settings import Settings
from tests import tiny
from tests.live import LiveServer, live_server
from tests.unit.server.test_zimage_runs import one_click, pixels, primitives, run

Graph = tuple[list[dict[str, Any]], str]
LFS = f"version https://git-lfs.github.com/spec/v1\noid sha256:{0:064}\nsize 12309866400\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny.save_models(tmp_path / "models")


@pytest.fixture
def server(folder: Path, tmp_path: Path) -> Iterator[LiveServer]:
    settings = Settings(
        data_dir=tmp_path / "data", models_dir=folder, demo_model=False, threads=1, profile="cpu"
    )
    with live_server(settings) as running:
        yield running


@pytest.fixture(autouse=True)
def next_run_is_untouched(server: LiveServer) -> Iterator[None]:
    """Whatever a case does, the picture of a good run afterwards is the one of before."""
    before = pixels(server, run(server, one_click(model="z.safetensors"))["takes"][0])
    yield
    after = run(server, one_click(model="z.safetensors"), force=True)
    assert np.array_equal(pixels(server, after["takes"][0]), before)


def put(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return settled(path)


def settled(path: Path) -> Path:
    """Make a file look as if it was complete for a while."""
    then = time.time() - 60
    os.utime(path, (then, then))
    return path


def with_model(name: str) -> Graph:
    nodes, target = primitives()
    nodes[1] = {"id": "model", "type": "load/diffusion-model", "params": {"file": name}}
    return nodes, target


def failure(server: LiveServer, graph: Graph) -> dict[str, Any]:
    found = server.submit(*graph, wait=50).json()
    assert found["status"] == "error", found
    error: dict[str, Any] = found["error"]
    return error


def listed(server: LiveServer, name: str) -> dict[str, Any]:
    server.services.catalog.refresh()
    files = server.http.get("/v1/model-files").json()["files"]
    return next(file for file in files if file["name"] == name)


def offered(server: LiveServer, node: str, param: str) -> list[str]:
    params = server.http.get(f"/v1/models/{node}").json()["params"]
    options = next(entry for entry in params if entry["key"] == param)["options"]
    return [option["value"] for option in options]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (LFS.encode(), "is a Git LFS pointer (136 bytes, real file 12.3 GB): run git lfs pull"),
        (b"<!doctype html><title>401</title>", "is an HTML page"),
        (b"GGUF\3\0\0\0", "GGUF"),
    ],
)
def test_f01_what_is_not_weights_is_named(
    server: LiveServer, folder: Path, content: bytes, words: str
) -> None:
    put(folder, "diffusion_models/tiny.safetensors", content)
    error = failure(server, with_model("tiny.safetensors"))
    assert error["code"] == "model_invalid"
    assert error["nodeId"] == "model"
    assert "tiny.safetensors" in error["message"]
    assert words in error["message"]
    shown = listed(server, "tiny.safetensors")
    assert shown["status"] == "broken"
    assert words in shown["reason"]
    assert "tiny.safetensors" not in offered(server, "load/diffusion-model", "file")


@pytest.mark.parametrize("size", [0, 7, -10])
@pytest.mark.parametrize(
    ("name", "node", "kind"),
    [
        ("diffusion_models/cut.safetensors", "model", "load/diffusion-model"),
        ("vae/cut.safetensors", "vae", "load/vae"),
        ("text_encoders/cut.safetensors", "encoder", "load/text-encoder"),
    ],
)
def test_f02_an_interrupted_download_names_file_role_and_bytes(
    server: LiveServer, folder: Path, name: str, node: str, kind: str, size: int
) -> None:
    sources = {
        "model": folder / "diffusion_models/z.safetensors",
        "vae": folder / "vae/ae.safetensors",
        "encoder": next((folder / "text_encoders/qwen").glob("*.safetensors")),
    }
    whole = sources[node].read_bytes()
    put(folder, name, whole[:size])
    nodes, target = primitives()
    entry = next(item for item in nodes if item["id"] == node)
    entry["params"] = {"file": "cut.safetensors"}
    misses = server.services.render.stats()["pool"]["misses"]
    error = failure(server, (nodes, target))
    assert (error["code"], error["nodeId"]) == ("model_invalid", node)
    role = {"model": "diffusion model", "vae": "VAE", "encoder": "text encoder"}[node]
    assert role in error["message"]
    assert "cut.safetensors" in error["message"]
    if size:
        assert "header needs" in error["message"]
    assert server.services.render.stats()["pool"]["misses"] == misses, "nothing else was loaded"
    assert kind == entry["type"]


def test_f04_a_file_of_another_role_is_named_with_the_remedy(
    server: LiveServer, folder: Path
) -> None:
    vae = (folder / "vae/ae.safetensors").read_bytes()
    put(folder, "text_encoders/ae.safetensors", vae)
    nodes, target = primitives()
    nodes[3]["params"] = {"file": "ae.safetensors"}
    message = failure(server, (nodes, target))["message"]
    assert "ae.safetensors is a VAE (decoder.* keys); a text encoder is needed here" in message
    assert "candidates: qwen" in message
    lora = folder / "diffusion_models/style.safetensors"
    name = "diffusion_model.layers.0.attention.to_q"
    save_file(
        {f"{name}.lora_A.weight": torch.zeros(2, 64), f"{name}.lora_B.weight": torch.zeros(64, 2)},
        str(lora),
    )
    settled(lora)
    message = failure(server, with_model("style.safetensors"))["message"]
    assert "style.safetensors looks like a LoRA" in message
    assert "move it to models/loras" in message


def test_f07_a_renamed_weight_fails_with_counts_and_names(server: LiveServer, folder: Path) -> None:
    state = dict(tiny.transformer().state_dict())
    state["layers.0.attention.to_q2.weight"] = state.pop("layers.0.attention.to_q.weight")
    settled(tiny.save(state, folder / "diffusion_models/odd.safetensors"))
    error = failure(server, with_model("odd.safetensors"))
    assert error["code"] == "model_invalid"
    assert "1 weights missing (layers.0.attention.to_q.weight)" in error["message"]
    assert "1 weights unexpected (layers.0.attention.to_q2.weight)" in error["message"]


def test_d01_a_new_file_appears_when_it_is_complete(server: LiveServer, folder: Path) -> None:
    tag = server.http.get("/v1/models").headers["etag"]
    data = (folder / "diffusion_models/z.safetensors").read_bytes()
    path = folder / "diffusion_models/new.safetensors"
    with path.open("wb") as file:
        for part in (data[:1000], data[1000:50_000]):
            file.write(part)
            file.flush()
            server.services.catalog.refresh()
            assert "new.safetensors" not in offered(server, "load/diffusion-model", "file")
        file.write(data[50_000:])
    settled(path)
    # It changed a moment ago, so it is looked at again until it rests.
    deadline = time.monotonic() + 20
    reply = server.http.get("/v1/models", headers={"If-None-Match": tag})
    while reply.status_code == 304 and time.monotonic() < deadline:
        reply = server.http.get("/v1/models", headers={"If-None-Match": tag})
    assert reply.status_code == 200
    assert reply.headers["etag"] != tag
    assert "new.safetensors" in offered(server, "load/diffusion-model", "file")


def test_d04_every_suffix_is_listed_and_said_to_be_usable_or_not(
    server: LiveServer, folder: Path
) -> None:
    good = (folder / "diffusion_models/z.safetensors").read_bytes()
    put(folder, "diffusion_models/x.sft", good)
    for suffix in ("ckpt", "pt", "bin"):
        put(folder, f"diffusion_models/x.{suffix}", b"PK\x03\x04" + b"\0" * 100)
    put(folder, "diffusion_models/x.gguf", b"GGUF\3\0\0\0")
    assert listed(server, "x.sft")["status"] == "ready"
    assert run(server, with_model("x.sft"))["status"] == "done"
    for suffix in ("ckpt", "pt", "bin"):
        shown = listed(server, f"x.{suffix}")
        assert shown["status"] == "broken"
        assert "convert to safetensors" in shown["reason"]
    assert "GGUF" in listed(server, "x.gguf")["reason"]


def test_d06_a_file_that_vanishes_during_the_load(
    server: LiveServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = (folder / "diffusion_models/z.safetensors").read_bytes()
    path = put(folder, "diffusion_models/share.safetensors", data)
    from inline_core.loading.reader import TensorReader

    real = TensorReader.check_unchanged

    def vanish(self: TensorReader) -> None:
        if "share" in self._label:
            path.unlink(missing_ok=True)
        real(self)

    monkeypatch.setattr(TensorReader, "check_unchanged", vanish)
    found = server.submit(*with_model("share.safetensors"), wait=50).json()
    assert found["error"]["code"] == "model_missing"
    assert "share.safetensors vanished during load" in found["error"]["message"]
    monkeypatch.undo()
    put(folder, "diffusion_models/share.safetensors", data)
    server.services.catalog.refresh()
    again = server.http.post(f"/v1/runs/{found['runId']}/retry")
    assert again.status_code < 300, again.text
    assert server.wait_until_final(again.json()["runId"])["status"] == "done"


def test_d07_accents_and_case(server: LiveServer, folder: Path) -> None:
    data = (folder / "diffusion_models/z.safetensors").read_bytes()
    put(folder, "diffusion_models/e\u0301\U0001f600.safetensors", data)
    assert run(server, with_model("\u00e9\U0001f600.safetensors"))["status"] == "done"
    for name in ("A.safetensors", "a.safetensors"):
        put(folder, f"diffusion_models/{name}", data)
        assert run(server, with_model(name))["status"] == "done"


def test_d08_every_file_says_what_it_is_or_why_it_is_not_usable(
    server: LiveServer, folder: Path
) -> None:
    put(folder, "vae/broken.safetensors", b"nothing")
    files = server.http.get("/v1/model-files").json()["files"]
    for file in files:
        if file["status"] == "ready":
            assert {"role", "family", "dtype", "bytes", "parameters"} <= file.keys(), file
        else:
            assert file["reason"], file


def test_m01_switching_models_does_not_grow(server: LiveServer, folder: Path) -> None:
    config = {"dim": 512, "n_heads": 8, "n_kv_heads": 8, "axes_dims": [16, 24, 24]}
    config |= {"n_layers": 4, "cap_feat_dim": tiny.CAP_FEAT_DIM}
    for number, name in enumerate("ab"):
        model = tiny.transformer(number, **config)
        settled(tiny.save(model.state_dict(), folder / f"diffusion_models/{name}.safetensors"))
        del model
    process = psutil.Process()
    server.services.render._pool._keep_bytes = 120_000_000  # one of them, not two
    resident: list[int] = []
    for number in range(20):
        name = f"{'ab'[number % 2]}.safetensors"
        run(server, one_click(model=name, seed=number, steps=1))
        resident.append(process.memory_info().rss)
    assert resident[-1] < 1.1 * resident[2]
    reasons = server.services.render.stats()["pool"]["evictionReasons"]
    assert reasons["keep_resident"] >= 19
    freed = server.http.post("/v1/memory/free").json()
    assert freed["bytesAfter"] == 0
    assert freed["residentAfter"] < freed["residentBefore"]


def test_m02_after_memory_ran_out_the_next_run_is_as_on_a_fresh_server(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from inline_core.families.z_image.denoise import ZImageDenoiser

    wanted = pixels(server, run(server, one_click(seed=3))["takes"][0])
    real, calls = ZImageDenoiser.predict, []

    def fail(self: ZImageDenoiser, *arguments: Any) -> Any:
        calls.append(1)
        if len(calls) >= 2:
            message = "CUDA out of memory. Tried to allocate 2.00 GiB."
            raise torch.OutOfMemoryError(message)
        return real(self, *arguments)

    monkeypatch.setattr(ZImageDenoiser, "predict", fail)
    error = failure(server, one_click(seed=4))
    assert error["code"] == "out_of_memory"
    assert "2.00 GiB asked for" in error["message"]
    assert "MB of host memory are free" in error["message"]
    assert "Make the picture smaller" in error["message"]
    monkeypatch.undo()
    after = run(server, one_click(seed=3), force=True)
    assert np.array_equal(pixels(server, after["takes"][0]), wanted)


def test_m05_a_model_bigger_than_the_container_is_refused_before_reading(
    server: LiveServer, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "diffusion_models/huge.safetensors"
    with torch.device("meta"):
        state = ZImageTransformer2DModel(n_layers=7, n_refiner_layers=1, cap_feat_dim=64)
    size = sparse_file(path, {name: tuple(t.shape) for name, t in state.state_dict().items()})
    assert size > 2.5 * GIB
    settled(path)
    limits = tmp_path / "cgroup"
    limits.mkdir()
    (limits / "memory.max").write_text(str(2 * GIB))
    (limits / "memory.current").write_text(str(GIB // 2))
    monkeypatch.setattr(probe, "_CGROUP", limits)
    monkeypatch.setattr(server.services.render.policy, "_machine", None)
    before = psutil.Process().memory_info().rss
    error = failure(server, with_model("huge.safetensors"))
    assert error["code"] == "does_not_fit"
    assert "huge.safetensors at 128x64 needs" in error["message"]
    assert "available" in error["message"]
    assert psutil.Process().memory_info().rss - before < 64 * 1024**2
    assert server.http.get("/v1/health").json()["device"]["ramTotalMb"] == 2048
    monkeypatch.undo()
    monkeypatch.setattr(server.services.render.policy, "_machine", None)


def sparse_file(path: Path, shapes: dict[str, tuple[int, ...]]) -> int:
    """A valid header and no data: the size is only on paper."""
    header, end = {}, 0
    for name, shape in shapes.items():
        size = 2 * torch.Size(shape).numel()
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
    return end


def test_a_server_with_a_bad_folder_still_answers(server: LiveServer, folder: Path) -> None:
    put(folder, "vae/unreadable.safetensors", b"x" * 100)
    (folder / "vae/unreadable.safetensors").chmod(0)
    health = server.http.get("/v1/health")
    assert health.status_code == 200
