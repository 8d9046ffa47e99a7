"""Every family over the wire: takes of the right kind and size, equal bytes, one graph or another."""

from __future__ import annotations

import io
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image, ImageDraw

from inline_core.settings import Settings
from tests.live import LiveServer, live_server
from tests.pictures import noise_picture
from tests.tiny_families import FamilyRun, families

FAMILIES = {module.NAME: module for module in families() if module.RUNS}
PROMPT = {"id": "p", "type": "input/text", "params": {"text": "a red circle"}}
NOTHING = {"id": "n", "type": "input/text", "params": {"text": ""}}


@pytest.fixture(scope="module", params=FAMILIES, ids=str)
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ModuleType, LiveServer]]:
    module = FAMILIES[request.param]
    folder = tmp_path_factory.mktemp("family")
    module.save_models(folder / "models")
    wanted = Settings(
        data_dir=folder / "data",
        models_dir=folder / "models",
        demo_model=False,
        threads=1,
        walkers=1,
    )
    with pytest.MonkeyPatch.context() as patch, live_server(wanted) as running:
        for name, value in getattr(module, "SMALLER", ()):
            patch.setattr(name, value)
        yield module, running


def edge(node: str, output: str) -> dict[str, str]:
    return {"from": node, "output": output}


def uploaded(server: LiveServer, node: str, kind: str, picture: Any) -> dict[str, Any]:
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    asset = server.http.post("/v1/assets", content=buffer.getvalue()).json()["id"]
    return {"id": node, "type": f"input/{kind}", "params": {"asset": {"ref": "asset", "id": asset}}}


def masked(size: tuple[int, int]) -> Any:
    mask = Image.new("L", size, 0)
    quarter = (size[0] // 4, size[1] // 4, size[0] * 3 // 4, size[1] * 3 // 4)
    ImageDraw.Draw(mask).rectangle(quarter, fill=255)
    return mask


def one_click(server: LiveServer, wanted: FamilyRun) -> tuple[list[dict[str, Any]], str]:
    nodes: list[dict[str, Any]] = [PROMPT]
    wires: dict[str, Any] = {"prompt": edge("p", "text")}
    for port, size in wanted.images.items():
        nodes.append(uploaded(server, f"in-{port}", "image", noise_picture(1, size)))
        wires[port] = edge(f"in-{port}", "image")
    for port, size in wanted.masks.items():
        nodes.append(uploaded(server, f"in-{port}", "mask", masked(size)))
        wires[port] = edge(f"in-{port}", "mask")
    params: dict[str, Any] = {"seed": 7, "width": wanted.size[0], "height": wanted.size[1]}
    if (wanted.images and wanted.masks) or "seconds" in wanted.params:
        params = {"seed": 7}
    node = {"id": "m", "type": wanted.node, "params": {**params, **wanted.params}, "inputs": wires}
    return [*nodes, node], "m"


def primitives(wanted: FamilyRun) -> tuple[list[dict[str, Any]], str]:
    """The same of loaders, prompts, a sampler and a VAE."""
    assert wanted.same_as is not None
    sample: dict[str, Any] = {"steps": wanted.params.get("steps"), "seed": 7, **wanted.same_as}
    frames = sample.pop("frames", wanted.params.get("frames"))
    nodes: list[dict[str, Any]] = [PROMPT, NOTHING]
    for node, kind in (("model", "diffusion-model"), ("vae", "vae"), ("encoder", "text-encoder")):
        nodes.append({"id": node, "type": f"load/{kind}", "params": {}})
    wires: dict[str, Any]
    for node, text in (("c", "p"), ("nc", "n")):
        wires = {"text_encoder": edge("encoder", "text_encoder"), "prompt": edge(text, "text")}
        nodes.append({"id": node, "type": "encode/text", "inputs": wires})
    width, height = wanted.size
    video, audio = frames is not None, "seconds" in wanted.params
    size: dict[str, Any] = {"width": width, "height": height}
    if video:
        size |= {"frames": frames, "fps": wanted.fps}
    if audio:
        size = {"seconds": wanted.params["seconds"]}
    ending = "-video" if video else "-audio" if audio else ""
    kind = f"latent/empty{ending}"
    nodes.append({"id": "l", "type": kind, "params": size})
    ends: dict[str, Any] = {
        "model": edge("model", "model"),
        "positive": edge("c", "conditioning"),
        "negative": edge("nc", "conditioning"),
        "latent": edge("l", "latent"),
    }
    guidance = sample.pop("guidance", None)
    if guidance is not None:
        told = {"conditioning": edge("c", "conditioning")}
        guided = {"id": "g", "type": "conditioning/guidance", "params": {"guidance": guidance}}
        nodes.append({**guided, "inputs": told})
        ends["positive"] = edge("g", "conditioning")
    nodes.append({"id": "s", "type": "sample", "params": sample, "inputs": ends})
    ends = {"vae": edge("vae", "vae"), "latent": edge("s", "latent")}
    nodes.append({"id": "d", "type": f"vae/decode{ending}", "inputs": ends})
    return nodes, "d"


def run(server: LiveServer, graph: tuple[list[dict[str, Any]], str], **more: Any) -> Any:
    found = server.submit(*graph, wait=50, **more).json()
    assert found.get("status") == "done", found
    return found


def content(server: LiveServer, take: dict[str, Any]) -> bytes:
    return server.http.get(f"/v1/takes/{take['id']}/bytes").content


def pixels(server: LiveServer, take: dict[str, Any]) -> Any:
    """Those of a picture (H, W, 3), or of all frames of a video (n, H, W, 3)."""
    file = io.BytesIO(content(server, take))
    if take["kind"] == "image":
        return np.asarray(Image.open(file))
    with av.open(file, "r") as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


def test_runs_give_their_takes_and_the_same_bytes_twice(
    served: tuple[ModuleType, LiveServer],
) -> None:
    module, server = served
    assert server.http.get("/v1/models").is_success
    for wanted in module.RUNS:
        graph = one_click(server, wanted)
        first, again = (run(server, graph, force=True) for _ in range(2))
        kinds = tuple((take["kind"], take["uri"].rpartition(".")[2]) for take in first["takes"])
        assert kinds == wanted.takes
        assert [take["hash"] for take in first["takes"]] == [
            take["hash"] for take in again["takes"]
        ]
        for take in first["takes"]:
            if take["kind"] != "audio":
                assert (take["width"], take["height"]) == wanted.size
        if wanted.fps is not None:
            assert first["takes"][0]["fps"] == wanted.fps
        if wanted.seconds is not None:
            for take in first["takes"]:
                assert abs(take["durationMs"] / 1000 - wanted.seconds) < 0.05


def test_the_primitive_graph_gives_the_same_pixels(
    served: tuple[ModuleType, LiveServer],
) -> None:
    module, server = served
    same = [wanted for wanted in module.RUNS if wanted.same_as is not None]
    assert same
    for wanted in same:
        one = run(server, one_click(server, wanted))["takes"][0]
        two = run(server, primitives(wanted))["takes"][0]
        if one["kind"] != "audio":
            first, second = (pixels(server, take) for take in (one, two))
            assert first.std() > 1
            assert np.array_equal(first, second)
        if one["kind"] == "audio":
            # The files tell how they were made; the samples stand at their end.
            count = round(one["durationMs"] * 2)
            assert content(server, one)[-count:] == content(server, two)[-count:]


def test_another_seed_is_another_picture(served: tuple[ModuleType, LiveServer]) -> None:
    module, server = served
    wanted = module.RUNS[0]
    nodes, target = one_click(server, wanted)
    first = run(server, (nodes, target))["takes"][0]["hash"]
    other = {**nodes[-1], "params": {**nodes[-1]["params"], "seed": 8}}
    assert run(server, ([*nodes[:-1], other], target))["takes"][0]["hash"] != first
