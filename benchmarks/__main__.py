"""Run benchmarks and print the table: `python -m benchmarks [--quick] [--only NAME] [--json F]`."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.measure import Result, noise
from benchmarks.scenarios import (
    footprint,
    graphs,
    group,
    load,
    models,
    preview,
    sampler,
    start,
    streams,
    submit,
    takes,
)

SCENARIOS: tuple[Callable[..., list[Result]], ...] = (
    submit.submit_latency,
    submit.submit_rates,
    graphs.graph_growth,
    graphs.executor_overhead,
    graphs.rerun_cached_http,
    streams.fan_out,
    streams.stalled_reader,
    start.start_up,
    takes.take_png,
    takes.take_write,
    load.while_denoising,
    models.model_load,
    models.int8_load,
    models.model_switch,
    footprint.footprint,
    preview.preview,
    sampler.denoise_overhead,
    sampler.batch_gain,
    sampler.pipeline_overlap,
    group.group_absent,
    group.group_job,
    group.group_start,
)
INTRODUCTION = """# Benchmarks

Made by `python -m benchmarks --markdown docs/reference/benchmarks.md`. The limit of a row is
measured in the same rounds: for the server a bare FastAPI with a group-commit SQLite writer that
keeps the same promise, for PNG Pillow's default encoder.
"""
HEAD = ("scenario", "ours", "limit", "ratio (min..max)", "gate", "note")


def main() -> int:
    """Run what was asked for; 1 if a gate was missed on a calm machine."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--only", action="append", help="scenario function to run")
    parser.add_argument("--json", type=Path, help="write samples there")
    parser.add_argument("--markdown", type=Path, help="write the table there")
    chosen = parser.parse_args()
    before = noise()
    results: list[Result] = []
    for scenario in SCENARIOS:
        if chosen.only and scenario.__name__ not in chosen.only:
            continue
        print(f"... {scenario.__name__}", file=sys.stderr, flush=True)
        results.extend(scenario(quick=chosen.quick))
    after = noise()
    print(table(results))
    if chosen.json:
        body = {"schema": 1, "env": environment(), "noise": [before, after]}
        results_json = [result.as_json() for result in results]
        chosen.json.write_text(json.dumps({**body, "results": results_json}, indent=1))
    if chosen.markdown:
        chosen.markdown.write_text(markdown(results, before, after), encoding="utf-8")
    calm = max(before["load"], after["load"]) <= (os.cpu_count() or 1)
    missed = [result.scenario for result in results if result.passed is False]
    return 1 if missed and calm else 0


def environment() -> dict[str, Any]:
    """What was measured on."""
    return {
        "cores": os.cpu_count(),
        "machine": platform.processor() or platform.machine(),
        "python": platform.python_version(),
    }


def table(results: list[Result]) -> str:
    """The table for a terminal."""
    rows = [HEAD, *(result.row() for result in results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def markdown(results: list[Result], before: dict[str, float], after: dict[str, float]) -> str:
    """The page for `docs/`."""
    calm = (
        f"Machine: {environment()}. Load before and after: {before['load']:.1f}, "
        f"{after['load']:.1f}; synced writes a second: {before['fdatasync_per_s']:.0f}, "
        f"{after['fdatasync_per_s']:.0f}."
    )
    head = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    lines = [INTRODUCTION, calm, "", *head]
    lines += ["| " + " | ".join(result.row()) + " |" for result in results]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
