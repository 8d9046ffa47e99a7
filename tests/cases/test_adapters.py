"""What hurts people with LoRA files today, over the wire (cases L)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from inline_core.devices.budget import Demand
from inline_core.devices.ladder import Plan
from inline_core.settings import Settings
from tests import tiny
from tests.live import LiveServer, live_server
from tests.unit.server.test_zimage_runs import edge, one_click, pixels, primitives, run

STEM = "layers.0.attention.to_q"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tiny.save_models(tmp_path_factory.mktemp("models"))
    generator = torch.Generator().manual_seed(3)
    down = torch.randn(2, 64, generator=generator)
    up = torch.randn(64, 2, generator=generator)
    loras = made / "loras"
    loras.mkdir()
    good = {f"transformer.{STEM}.lora_A.weight": down, f"transformer.{STEM}.lora_B.weight": up}
    save_file(good, str(loras / "my.v1.0.safetensors"))
    other = {"A": down.clone(), "B": up.clone()}
    extra = {f"transformer.nowhere.lora_{side}.weight": part for side, part in other.items()}
    save_file(good | extra, str(loras / "part.safetensors"))
    kohya = "lora_unet_input_blocks_4_1_transformer_blocks_0_attn2_to_k"
    sdxl = {
        f"{kohya}.lora_down.weight": torch.zeros(4, 2048),
        f"{kohya}.lora_up.weight": torch.zeros(640, 4),
        f"{kohya}.alpha": torch.tensor(4.0),
    }
    save_file(sdxl, str(loras / "sdxl.safetensors"), {"ss_base_model_version": "sdxl_base_v1-0"})
    save_file({f"{STEM}.dora_scale": torch.zeros(64)} | good, str(loras / "dora.safetensors"))
    tiny.save(tiny.original_keys(tiny.transformer().state_dict()), loras / "whole.safetensors")
    tiny.settle(loras)
    return made


@pytest.fixture(scope="module")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    data = tmp_path_factory.mktemp("data")
    settings = Settings(
        data_dir=data, models_dir=folder, demo_model=False, threads=1, profile="cpu"
    )
    with live_server(settings) as running:
        yield running


def with_lora(file: str, **params: Any) -> tuple[list[dict[str, Any]], str]:
    node = {"id": "lora", "type": "load/lora", "params": {"file": file, **params}}
    return one_click({"lora": edge("lora", "lora")}, [node])


def picture(server: LiveServer, graph: tuple[list[dict[str, Any]], str]) -> Any:
    return pixels(server, run(server, graph, force=True)["takes"][0])


def applied(*chosen: tuple[str, float]) -> tuple[list[dict[str, Any]], str]:
    """The primitive graph with one `lora/apply` after the other."""
    nodes, target = primitives()
    source = "model"
    for number, (file, strength) in enumerate(chosen):
        params = {"file": file, "strength": strength}
        name = f"apply{number}"
        nodes.insert(
            2 + number,
            {
                "id": name,
                "type": "lora/apply",
                "params": params,
                "inputs": {"model": edge(source, "model")},
            },
        )
        source = name
    sample = next(node for node in nodes if node["id"] == "s")
    sample["inputs"]["model"] = edge(source, "model")
    return nodes, target


def test_the_node_and_the_port_give_the_same_picture(server: LiveServer) -> None:
    base = picture(server, one_click())
    port = picture(server, with_lora("my.v1.0.safetensors", strength=0.8))
    node = picture(server, applied(("my.v1.0.safetensors", 0.8)))
    assert np.array_equal(port, node)
    assert not np.array_equal(port, base)
    assert np.array_equal(picture(server, one_click()), base), "the base is untouched"
    twice = picture(server, applied(("my.v1.0.safetensors", 0.4), ("my.v1.0.safetensors", 0.4)))
    assert np.abs(twice.astype(int) - port).max() <= 1


def test_l01_a_partial_match_is_a_warning_with_counts_or_refused_when_asked(
    server: LiveServer,
) -> None:
    found = run(server, with_lora("part.safetensors"))
    assert any("only 1 of 2 modules fit" in entry["message"] for entry in found["warnings"])
    strict = server.submit(*with_lora("part.safetensors", unmatched="error"), wait=50).json()
    assert strict["error"]["code"] == "model_invalid"
    assert "nowhere" in strict["error"]["message"]


def test_l04_on_an_int8_base_it_works(server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = picture(server, one_click()).astype(float)
    wanted = picture(server, with_lora("my.v1.0.safetensors")).astype(float) - plain
    policy = server.services.render.policy
    real = policy.plan

    def int8(demand: Demand) -> Plan:
        plan = real(demand)
        return replace(plan, rung="int8", model=replace(plan.model, quantization="int8"))

    monkeypatch.setattr(policy, "plan", int8)
    base = picture(server, one_click()).astype(float)
    got = picture(server, with_lora("my.v1.0.safetensors")).astype(float) - base
    assert 0 < np.abs(base - plain).mean() < 2
    assert np.linalg.norm(got - wanted) < 0.3 * np.linalg.norm(wanted)


def test_l06_what_is_no_adapter_for_this_model_gets_a_verdict(server: LiveServer) -> None:
    messages = {}
    for name in ("sdxl", "dora", "whole"):
        found = server.submit(*with_lora(f"{name}.safetensors"), wait=50).json()
        assert found["error"]["code"] == "model_invalid", found
        messages[name] = found["error"]["message"]
    assert "made for SDXL, the model is Z-Image" in messages["sdxl"]
    assert "is a DoRA adapter, which is not supported" in messages["dora"]
    assert "whole.safetensors is a Z-Image diffusion model" in messages["whole"]
    assert "a LoRA is needed here" in messages["whole"]
    assert run(server, one_click(seed=55))["status"] == "done"
