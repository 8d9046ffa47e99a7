"""What `inline-core doctor` says about several GPUs; the demo model is always there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from inline_core.devices.budget import GIB, Machine
from inline_core.devices.policy import DevicePolicy
from inline_core.devices.topology import read_topology
from inline_core.doctor import Report, examine
from inline_core.settings import Settings
from tests.unit.devices.fake_nvml import ALL_OF_FOUR, FakeNvml, gpus
from tests.unit.devices.hosts import LIBRARIES


def examined(folder: Path, count: int, **settings: Any) -> Report:
    """The report for a machine with so many GPUs joined by NVLink; none: a processor."""
    found = gpus(count)
    machine = Machine("cuda" if count else "cpu", "NVIDIA L40", 256 * GIB, found, reason="found")
    asked = Settings(models_dir=folder, data_dir=folder / "data", **settings)
    topology = read_topology(FakeNvml(count, ALL_OF_FOUR), found)
    return examine(asked, DevicePolicy(asked, machine, topology, LIBRARIES))


WHAT = slice(10, 28)  # the columns that say what a line is about


def about(report: Report, what: str) -> str:
    """What is said about something."""
    (line,) = (line for line in report.lines if line[WHAT].strip() == what)
    return line[WHAT.stop :]


def split_line(report: Report) -> str:
    """What is said about the split of the one family whose files are there."""
    (line,) = (
        line for line in report.lines if not line[WHAT].strip() and " split" in f" {line[28:]}"
    )
    return line[WHAT.stop :]


@pytest.mark.parametrize(
    ("count", "words"), [(1, "1 GPU"), (2, "2 GPUs, all NVLink"), (4, "4 GPUs, all NVLink")]
)
def test_links_are_told(tmp_path: Path, count: int, words: str) -> None:
    assert about(examined(tmp_path, count), "links") == words


def test_a_processor_has_no_links(tmp_path: Path) -> None:
    assert not any(line[WHAT].strip() == "links" for line in examined(tmp_path, 0).lines)


@pytest.mark.parametrize(
    ("count", "settings", "setting", "words"),
    [
        (0, {}, "off", "not split: off"),
        (1, {}, "off", "not split: off"),
        (4, {}, "off", "not split: off: 4 GPUs are here; --multi-gpu would use xdit, Ulysses 4"),
        (4, {"multi_gpu": True}, "auto", "split: xdit, Ulysses 4 on 4 ranks: 4 GPUs, all NVLink"),
        (0, {"multi_gpu": True}, "auto", "not split: there are no NVIDIA GPUs"),
        (1, {"parallel": "auto"}, "auto", "not split: there is one GPU"),
        (0, {"parallel": "ulysses=2"}, "ulysses=2", "split: xdit, Ulysses 2 on 2 ranks"),
        (
            4,
            {"parallel": "ulysses=2,backend=diffusers"},
            "ulysses=2,backend=diffusers",
            "split: diffusers, Ulysses 2 on 2 ranks: INLINE_PARALLEL=ulysses=2",
        ),
    ],
)
def test_the_planned_split_of_a_family_is_told(
    tmp_path: Path, count: int, settings: dict[str, Any], setting: str, words: str
) -> None:
    report = examined(tmp_path, count, **settings)
    assert about(report, "parallel") == setting
    assert words in split_line(report)
    assert not report.broken


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"parallel": "pipefusion=2"}, "Z-Image has no PipeFusion in xfuser 0.7.0: use ulysses=2"),
        ({"parallel": "cfg=2,backend=diffusers"}, "Z-Image has no CFG in diffusers 0.42.1: use"),
    ],
)
def test_a_split_that_cannot_be_is_a_fault(
    tmp_path: Path, settings: dict[str, Any], words: str
) -> None:
    report = examined(tmp_path, 4, **settings)
    assert report.broken
    assert words in split_line(report)
    assert any(words in step for step in report.steps)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("ulysses=two", "ulysses=two: not a whole number"),
        ("ulysses=8", "ulysses=8 needs 8 ranks, and there are 4 GPUs"),
    ],
)
def test_a_setting_that_cannot_be_is_a_fault(tmp_path: Path, setting: str, words: str) -> None:
    report = examined(tmp_path, 4, parallel=setting)
    assert report.broken
    assert words in about(report, "parallel")
    assert any(words in step for step in report.steps)
