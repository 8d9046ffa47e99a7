"""The check for GPU machines runs from end to end on the processor, so that it works there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "scripts/gpu_check.py"


def run(*arguments: str, timeout_s: float = 110) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
        cwd=ROOT.parent,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
    )


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_dry_run_does_every_section(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    done = run("--cpu-dry-run", "--folder", str(tmp_path), "--json", str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(out.read_text())
    assert found["failures"] == []
    assert found["pass"] is True
    assert {result["scenario"].partition(":")[0] for result in found["results"]} == {
        "a load",
        "b rungs",
        "c memory",
        "d batches",
        "e eviction",
        "e out of memory",
        "f equality",
        "f lora",
    }
    gates = {result["scenario"]: result["pass"] for result in found["results"]}
    assert gates["e eviction: dropped to make room"] is True
    assert gates["f lora: int8 streamed: error against bf16 resident + LoRA"] is True
    assert gates["c memory: decode 64 whole: predicted / measured peak"] is None
    assert "not measured on cpu" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.skipif("INLINE_LONG" not in os.environ, reason="takes two minutes: INLINE_LONG=1")
def test_the_dry_run_splits_a_picture(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    folder = ("--folder", str(tmp_path), "--json", str(out))
    done = run("--multi", "--cpu-dry-run", *folder, timeout_s=170)
    assert done.returncode == 0, done.stdout + done.stderr
    gates = {row["scenario"]: row["pass"] for row in json.loads(out.read_text())["results"]}
    assert gates["g several: xdit:ulysses=2: error"] is True
    assert gates["g several: xdit:ring=2: error"] is True
    assert gates["g several: diffusers:ulysses=2: error"] is True
    assert gates["g lost rank: error of the next job"] is True


def test_several_need_two_gpus() -> None:
    done = run("--multi")
    assert done.returncode == 2
    assert "two NVIDIA GPUs or more" in done.stderr


def test_without_a_gpu_it_says_so() -> None:
    done = run()
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1].startswith("There is no")
