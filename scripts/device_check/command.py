"""The command line; what needs no GPU is answered before any big library is imported."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from typing import Final

from inline_core.devices.probe import probe

_LIMIT_S: Final = 345.0
_SEVERAL: Final = 2
_NEEDED: Final = (
    "torch",
    "diffusers",
    "transformers",
    "accelerate",
    "safetensors",
    "tokenizers",
    "numpy",
    "PIL",
    "pydantic",
    "pydantic_settings",
)


def main() -> int:
    """0 if all gates hold, 1 if not, 2 without a GPU."""
    asked = _arguments()
    machine = probe(allow_gpu=not asked.cpu_dry_run)
    if asked.multi and not asked.cpu_dry_run and len(machine.gpus) < _SEVERAL:
        print("--multi needs two NVIDIA GPUs or more:", file=sys.stderr)
        print(f"{len(machine.gpus)} found ({machine.reason}).", file=sys.stderr)
        return 2
    if machine.kind != "cuda" and not asked.cpu_dry_run:
        print(f"There is no NVIDIA GPU to measure: {machine.reason}.", file=sys.stderr)
        return 2
    needed = (*_NEEDED, "xfuser", "msgpack") if asked.multi else _NEEDED
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        print(f"Not installed: {', '.join(missing)}.", file=sys.stderr)
        return 1
    from device_check import run

    return run.measure(machine, asked)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gpu_check.py", description="Measure on an NVIDIA GPU.")
    parser.add_argument("--json", type=Path, help="write everything there")
    parser.add_argument("--folder", type=Path, help="where model files are kept between runs")
    parser.add_argument("--only", action="append", help="first letter of a section to run")
    parser.add_argument("--text-layers", type=int, default=12, help="of Qwen3 4B, which has 36")
    parser.add_argument("--limit-s", type=float, default=_LIMIT_S, help="end the run after this")
    parser.add_argument("--cpu-dry-run", action="store_true", help="small models, no GPU")
    parser.add_argument("--multi", action="store_true", help="split pictures over all GPUs")
    return parser.parse_args()
