"""What hurts people while sampling, over the wire: seeds, batches, metadata, NaN, cancelling.

The ids are those of the collected cases: R reproducibility, Q queue, M memory.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from inline_core.engine import take_files
from inline_core.loading.interruption import Interruption
from inline_core.loading.reader import TensorReader
from inline_core.media.png import encode_png, read_provenance
from inline_core.sampling.noise import NoiseSource
from inline_core.settings import Settings
from tests import tiny
from tests.live import LiveServer, live_server
from tests.unit.server.test_zimage_runs import one_click, pixels, primitives, run


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    settings = Settings(
        data_dir=tmp_path / "data",
        models_dir=tiny.save_models(tmp_path / "models"),
        demo_model=False,
        threads=1,
        profile="cpu",
    )
    with live_server(settings) as running:
        yield running


def picture(server: LiveServer, **params: Any) -> Any:
    return pixels(server, run(server, one_click(**params), force=True)["takes"][0])


def test_r01_a_picture_of_a_batch_can_be_made_alone(server: LiveServer) -> None:
    batch = run(server, primitives(batch=4, seed=7))["takes"]
    for index, take in enumerate(batch):
        alone = run(server, primitives(seed=7 + index))["takes"][0]
        difference = pixels(server, take).astype(int) - pixels(server, alone).astype(int)
        assert np.abs(difference).max() <= 1  # float32: rows are summed in another order
        assert take["provenance"]["seed"] == alone["provenance"]["seed"]


def test_r03_the_noise_of_a_seed_is_the_same_everywhere() -> None:
    drawn = NoiseSource(7, 1, (16, 8, 8), "cpu").draw()
    assert hashlib.sha256(drawn.numpy().tobytes()).hexdigest() == (
        "1202b953f8d50890f2bb4983c255a9a6a6eef99584102364c3d1be1edf4e638d"
    )
    # Where the latents live does not matter: the draw itself is on the CPU in float32.
    meta = NoiseSource(7, 1, (16, 8, 8), "meta").draw()
    assert meta.device.type == "meta"
    assert torch.equal(NoiseSource(7, 1, (16, 8, 8), "cpu").draw(), drawn)


def test_r06_defaults_are_stored_and_names_are_checked(server: LiveServer) -> None:
    nodes, target = primitives()
    for node in nodes:
        if node["id"] == "s":
            del node["params"]["steps"], node["params"]["cfg"]
    take = run(server, (nodes, target))["takes"][0]
    stored = take["provenance"]
    assert (stored["sampler"], stored["scheduler"], stored["steps"]) == ("euler", "simple", 20)
    assert stored["versions"]["inline-core"]
    assert len(stored["sigmas"]) == 21
    assert len(stored["model"]["sha256"]) == len(stored["vae"]["sha256"]) == 64
    other = server.submit(*primitives(sampler="euler_b"))
    assert other.status_code == 422
    assert "euler_a" in other.text
    first = picture(server, sampler="euler_a")
    second = picture(server, sampler="dpmpp_2m")
    assert np.array_equal(picture(server, sampler="euler_a"), first)
    assert not np.array_equal(second, first)


def test_r04_every_picture_carries_its_recipe_or_none_does(tmp_path: Path) -> None:
    for metadata in (True, False):
        settings = Settings(
            data_dir=tmp_path / f"data-{metadata}",
            models_dir=tiny.shared_models(),
            demo_model=False,
            threads=1,
            metadata=metadata,
        )
        with live_server(settings) as server:
            for graph in (one_click(), primitives(batch=2), one_click(sampler="euler_a")):
                for take in run(server, graph)["takes"]:
                    data = server.http.get(f"/v1/takes/{take['id']}/bytes").content
                    assert (read_provenance(data) is not None) is metadata


def begin(server: LiveServer, graph: tuple[list[dict[str, Any]], str]) -> str:
    run_id: str = server.submit(*graph).json()["runId"]
    return run_id


def cancelled_without_takes(server: LiveServer, run_id: str) -> None:
    found = server.wait_until_final(run_id)
    assert found["status"] == "cancelled"
    assert found["takes"] == []


class Held:
    """Holds what calls it at a given call until it is let go."""

    def __init__(self, at_call: int) -> None:
        self.reached, self.go = threading.Event(), threading.Event()
        self.calls = 0
        self.at_call = at_call

    def __call__(self) -> None:
        self.calls += 1
        if self.calls == self.at_call:
            self.reached.set()
            assert self.go.wait(20)

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def held(*args: Any, **kwargs: Any) -> Any:
            self()
            return function(*args, **kwargs)

        return held


def test_q04_cancel_while_a_model_loads(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = None
    held = Held(5)
    with monkeypatch.context() as patch:
        patch.setattr(TensorReader, "mapped", held.around(TensorReader.mapped))
        run_id = begin(server, one_click())
        assert held.reached.wait(20)
        assert server.http.delete(f"/v1/runs/{run_id}").status_code < 300
        cancelled_without_takes(server, run_id)  # while the load still hangs
        calls = held.calls
        held.go.set()
        wanted = picture(server)
    assert held.calls > calls
    stats = server.services.render.stats()["pool"]
    assert all(item["leases"] == 0 for item in stats["held"])
    assert np.array_equal(picture(server), wanted)


def test_q04_cancel_in_the_middle_of_a_decode(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(0)
    with monkeypatch.context() as patch:
        # The hooks are put on when a component is loaded, which is now.
        patch.setattr(Interruption, "_ask", held.around(Interruption._ask))
        before = picture(server)
        # Blocks of the encoder ask as well; its prompt is known, so only the VAE is left.
        held.at_call = held.calls + 6
        run_id = begin(server, one_click(width=1152, height=1152, steps=1))
        assert held.reached.wait(40)
        assert server.http.delete(f"/v1/runs/{run_id}").status_code < 300
        cancelled_without_takes(server, run_id)
        held.go.set()
        server.services.render.free()  # waits for the device
        assert held.calls <= held.at_call + 1
    assert np.array_equal(picture(server), before)


def test_q04_cancel_while_the_file_is_written(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = picture(server)
    held = Held(1)
    with monkeypatch.context() as patch:
        patch.setattr(take_files, "encode_png", held.around(encode_png))
        run_id = begin(server, one_click(seed=99))
        assert held.reached.wait(20)
        assert server.http.delete(f"/v1/runs/{run_id}").status_code < 300
        cancelled_without_takes(server, run_id)
        held.go.set()
    assert np.array_equal(picture(server), before)


def test_m_nan_in_the_middle_of_company_ends_one_run(server: LiveServer, tmp_path: Path) -> None:
    before = picture(server)
    state = tiny.original_keys(tiny.transformer().state_dict())
    state["final_layer.linear.bias"] = torch.full_like(
        state["final_layer.linear.bias"], float("nan")
    )
    path = tmp_path / "models/diffusion_models/nan.safetensors"
    tiny.save(state, path)
    tiny.settle(path.parent)
    bad = server.submit(*one_click(model="nan.safetensors"), wait=40).json()
    assert bad["status"] == "error"
    assert bad["error"]["code"] == "not_finite"
    assert "nan.safetensors" in bad["error"]["message"]
    assert bad["takes"] == []
    again = run(server, one_click(model="z.safetensors"), force=True)
    assert np.array_equal(pixels(server, again["takes"][0]), before)
