"""FLUX.1 over the wire: variants that do not go with a node, Fill as primitives, told variants."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image

from inline_core.settings import Settings
from tests.live import LiveServer, live_server
from tests.pictures import noise_picture
from tests.tiny_families import flux1
from tests.unit.server.test_family_runs import PROMPT, content, edge, masked, run, uploaded


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    folder = tmp_path_factory.mktemp("flux1")
    flux1.save_models(folder / "models")
    settings = Settings(
        data_dir=folder / "data",
        models_dir=folder / "models",
        demo_model=False,
        threads=1,
        walkers=1,
    )
    with live_server(settings) as running:
        yield running


def one_click(node: str, **params: Any) -> tuple[list[dict[str, Any]], str]:
    values = {"seed": 7, "steps": 2, "width": 64, "height": 64, **params}
    made = {"id": "m", "type": f"black-forest-labs/{node}", "params": values}
    return [PROMPT, {**made, "inputs": {"prompt": edge("p", "text")}}], "m"


def shown(server: LiveServer, take: dict[str, Any]) -> Any:
    return np.asarray(Image.open(io.BytesIO(content(server, take))))


@pytest.mark.parametrize(
    ("node", "params", "words"),
    [
        ("flux-1", {"model": "flux-fill.safetensors"}, "is FLUX.1 fill; FLUX.1 needs dev or"),
        ("flux-1-kontext", {"model": "schnell.safetensors"}, "FLUX.1 Kontext needs dev"),
        ("flux-1", {"model": "schnell.safetensors", "guidance": 3.0}, "does not take its guidance"),
        ("flux-1-control", {"model": "flux-canny.safetensors"}, "follows one picture"),
    ],
)
def test_what_does_not_go_together_is_refused(
    server: LiveServer, node: str, params: dict[str, Any], words: str
) -> None:
    found = server.submit(*one_click(node, **params), wait=30).json()
    assert found["status"] == "error"
    assert words in str(found)


def test_krea_is_told_and_has_its_own_guidance(server: LiveServer) -> None:
    told = run(server, one_click("flux-1", variant="krea"))["takes"][0]
    same = run(server, one_click("flux-1", guidance=4.5))["takes"][0]
    other = run(server, one_click("flux-1"))["takes"][0]
    assert np.array_equal(shown(server, told), shown(server, same))
    assert not np.array_equal(shown(server, told), shown(server, other))


def test_fill_of_primitives_gives_the_same_pixels(server: LiveServer) -> None:
    size = (96, 64)
    pictures = [
        uploaded(server, "i", "image", noise_picture(1, size)),
        uploaded(server, "k", "mask", masked(size)),
    ]
    one = one_click("flux-1-fill")[0][1]
    one["params"] = {"seed": 7, "steps": 2}
    one["inputs"] |= {"image": edge("i", "image"), "mask": edge("k", "mask")}
    first = run(server, ([PROMPT, *pictures, one], "m"))["takes"][0]

    def node(name: str, kind: str, wires: dict[str, Any], **params: Any) -> dict[str, Any]:
        return {"id": name, "type": kind, "params": params, "inputs": wires}

    picture = {"image": edge("i", "image"), "mask": edge("k", "mask")}
    nodes = [
        node("model", "load/diffusion-model", {}, file="flux-fill.safetensors"),
        node("vae", "load/vae", {}),
        node("enc", "load/text-encoder", {}),
        node(
            "c",
            "encode/text",
            {"text_encoder": edge("enc", "text_encoder"), "prompt": edge("p", "text")},
        ),
        node(
            "f",
            "conditioning/inpaint",
            {"conditioning": edge("c", "conditioning"), "vae": edge("vae", "vae"), **picture},
        ),
        node("l", "latent/empty", {}, width=96, height=64),
        node(
            "s",
            "sample",
            {
                "model": edge("model", "model"),
                "positive": edge("f", "conditioning"),
                "latent": edge("l", "latent"),
            },
            steps=2,
            cfg=1.0,
            seed=7,
        ),
        node("d", "vae/decode", {"vae": edge("vae", "vae"), "latent": edge("s", "latent")}),
    ]
    second = run(server, ([PROMPT, *pictures, *nodes], "d"))["takes"][0]
    assert shown(server, first).std() > 1
    assert np.array_equal(shown(server, first), shown(server, second))
