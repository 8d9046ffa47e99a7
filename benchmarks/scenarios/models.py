"""Loading, int8 on the way in, streaming, and switching between models, with real-size blocks."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from benchmarks.measure import Result
from benchmarks.subject import ROOT, Subject, ours

LARGEST_TENSOR = 3840 * 10240 * 2
MB = 1e6


def model_load(*, quick: bool) -> list[Result]:
    """A bf16 file of Z-Image's real block size: against the least that maps and assigns it."""
    rounds = 3 if quick else 7
    with _file(1 if quick else 3) as path:
        size = f"{path.stat().st_size / 1e9:.2f} GB file"
        warm = Result("warm load + touch", "s", "lower", gate=2.0, note=size)
        cold = Result("cold load + touch", "s", "lower", gate=1.15, note=size)
        anonymous = Result(
            "anonymous memory of a load", "MB", "lower", gate=1.0, note="limit 30 MB"
        )
        streamed = Result(
            "memory of streaming it elsewhere",
            "MB",
            "lower",
            gate=1.0,
            note="limit: largest tensor + 40 MB",
        )
        for _ in range(rounds):
            for way, samples in (("ours", warm.us), ("bare", warm.limit)):
                samples.append(_load(way, path)["touch_s"])
            for way, samples in (("bare", cold.limit), ("ours", cold.us)):
                _forget(path)
                samples.append(_load(way, path)["touch_s"])
            anonymous.us.append(_load("ours", path)["anonymous"] / MB)
            anonymous.limit.append(30.0)
            streamed.us.append(_load("stream", path)["resident"] / MB)
            streamed.limit.append(LARGEST_TENSOR / MB + 40.0)
    return [warm, cold, anonymous, streamed]


def int8_load(*, quick: bool) -> list[Result]:
    """Peak anonymous memory while a bf16 file becomes int8, against the int8 size itself."""
    peak = Result("anonymous peak of int8 on the way in", "MB", "lower", gate=1.0)
    peak.note = "limit: 1.15 x the int8 size + the largest tensor"
    layers = 1 if quick else 3
    with _file(layers) as path:
        # Values of one real block and of what stands outside, as in tests/unit/devices.
        blocks, outside = layers + 2, 11_852_352
        int8 = blocks * 180_910_336 + 2 * outside
        for _ in range(1 if quick else 3):
            peak.us.append(_load("ours-int8", path)["anonymous"] / MB)
            peak.limit.append((1.15 * int8 + LARGEST_TENSOR) / MB)
    return [peak]


def model_switch(*, quick: bool) -> list[Result]:
    """Three models in turns under a budget that holds one: memory per run, and failures."""
    slope = Result(
        "memory growth, 3 models in turns", "MB/run", "lower", gate=1.0, note="limit 0.1"
    )
    failed = Result("failed runs", "runs", "lower", note="of those above")
    back = Result("back to a model that still fits", "s", "lower", gate=1.0, note="limit 0.03 s")
    runs = 60 if quick else 200
    with _models() as folder:
        environment = {
            "INLINE_MODELS_DIR": str(folder),
            "INLINE_DEMO_MODEL": "false",
            "INLINE_PROFILE": "cpu",
            "INLINE_THREADS": "1",
        }
        with ours(**environment, INLINE_KEEP_RESIDENT_GB="0.12") as server:
            resident, failures = _turns(server, runs)
        slope.us.append(_slope(resident[len(resident) // 4 :]))
        slope.limit.append(0.1)
        failed.us.append(float(failures))
        slope.note += f"; {runs} runs, end {resident[-1]:.0f} MB"
        with ours(**environment) as server:
            for name in ("a", "b", "a"):
                _render(server, name, 1)
            for number in range(3 if quick else 10):
                back.us.append(_load_phase(server, "ab"[number % 2], number))
                back.limit.append(0.03)
    return [slope, failed, back]


@contextmanager
def _file(layers: int) -> Iterator[Path]:
    """Random bf16 weights of Z-Image's real width with a few of its layers, diffusers names."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("INLINE_BENCH_DIR")) as folder:
        path = Path(folder) / "z.safetensors"
        _write(path, {"n_layers": layers, "n_refiner_layers": 1})
        yield path


@contextmanager
def _models() -> Iterator[Path]:
    """Three diffusion models of 41 MB, a VAE and a text encoder, all tiny but real."""
    from tests import tiny

    with tempfile.TemporaryDirectory() as name:
        folder = tiny.save_models(Path(name))
        (folder / "diffusion_models/z.safetensors").unlink()
        config = {
            "dim": 512,
            "n_heads": 8,
            "n_kv_heads": 8,
            "n_layers": 4,
            "n_refiner_layers": 1,
            "cap_feat_dim": tiny.CAP_FEAT_DIM,
            "axes_dims": [16, 24, 24],
        }
        for number, model in enumerate("abc"):
            _write(folder / f"diffusion_models/{model}.safetensors", config, seed=number)
        tiny.settle(folder)
        yield folder


def _write(path: Path, config: Mapping[str, Any], seed: int = 0) -> None:
    import torch
    from diffusers import ZImageTransformer2DModel
    from safetensors.torch import save_file

    with torch.device("meta"):
        state = ZImageTransformer2DModel(**config).state_dict()
    generator = torch.Generator().manual_seed(seed)
    weights = {
        name: (torch.randn(tensor.shape, generator=generator) * 0.02).to(torch.bfloat16)
        for name, tensor in state.items()
    }
    save_file(weights, str(path))


def _load(way: str, path: Path) -> dict[str, Any]:
    """One load in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.load_subject", way, str(path)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _forget(path: Path) -> None:
    """Drop a file from the page cache."""
    with path.open("rb") as file:
        os.fdatasync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _turns(server: Subject, runs: int) -> tuple[list[float], int]:
    """Resident memory in MB after each run, and how many did not end well."""
    resident, failures = [], 0
    for number in range(runs):
        failures += _render(server, "abc"[number % 3], number)["status"] != "done"
        resident.append(server.rss_bytes() / MB)
    return resident, failures


def _render(server: Subject, model: str, seed: int) -> dict[str, Any]:
    params = {"model": f"{model}.safetensors", "seed": seed, "steps": 1, "width": 64, "height": 64}
    nodes = [
        {"id": "p", "type": "input/text", "params": {"text": "a red circle"}},
        {
            "id": "m",
            "type": "alibaba/z-image-turbo",
            "params": params,
            "inputs": {"prompt": {"from": "p", "output": "text"}},
        },
    ]
    body = {"graph": {"schemaVersion": 1, "nodes": nodes}, "target": "m", "force": True}
    reply = httpx.post(f"{server.url}/v1/runs?wait=120", json=body, timeout=130)
    if reply.is_error:
        raise RuntimeError(reply.text)
    found: dict[str, Any] = reply.json()
    return found


def _load_phase(server: Subject, model: str, seed: int) -> float:
    """Seconds to plan a job and to lease all it needs, when everything is loaded already."""
    health = functools.partial(httpx.get, f"{server.url}/v1/health")
    before = health().json()["models"]["pool"]
    run = _render(server, model, seed)
    after = health().json()["models"]
    if after["pool"]["misses"] != before["misses"]:
        raise RuntimeError(run)
    return float(after["sampler"]["lastPrepareS"])


def _slope(values: list[float]) -> float:
    """Least-squares slope per item."""
    count = len(values)
    mean_x, mean_y = (count - 1) / 2, sum(values) / count
    top = sum((x - mean_x) * (y - mean_y) for x, y in enumerate(values))
    return top / sum((x - mean_x) ** 2 for x in range(count))
