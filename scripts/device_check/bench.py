"""What every section is given, and the pieces that several of them use."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from device_check.accelerator import Accelerator, Peak
from device_check.report import Report, Row
from device_check.weights import Files
from inline_core.devices.placement import Placement
from inline_core.families.demand import Opened, describe
from inline_core.families.z_image.text import EncodedPrompt
from inline_core.loading.files import open_weights
from inline_core.loading.stream import LoadPlan

MOST_WASTE: Final = 2.0  # a prediction above twice the truth refuses work that would fit


class TimeUpError(Exception):
    """A section used up its time."""


@dataclass(slots=True)
class Deadline:
    """The end of the run, and of the section that is running."""

    end_s: float
    section_end_s: float = field(default=0.0)

    def start(self, seconds: float) -> None:
        """Give a section at most so long."""
        self.section_end_s = min(time.monotonic() + seconds, self.end_s)

    def check(self, needs_s: float = 0.0) -> None:
        """Raise TimeUpError if less than `needs_s` seconds are left to the section."""
        if time.monotonic() + needs_s > self.section_end_s:
            message = "its time was up; what was measured before stands"
            raise TimeUpError(message)


@dataclass(frozen=True, slots=True)
class Bench:
    """The device, the files and where results go.

    `side`, `large` and `small` are the picture sizes in pixels that sections use, `batches` how
    many jobs are stepped together, `tokens` the length of a prompt, `steps` how often a step is
    timed.
    """

    device: Accelerator
    files: Files
    report: Report
    deadline: Deadline
    side: int = 1024
    large: int = 2048
    small: int = 512
    batches: Sequence[int] = (1, 2, 4, 8)
    tokens: int = 512
    steps: int = 3

    def bound(self, value: float) -> float | None:
        """A bound of a ratio of times; a dry run on a busy processor keeps none."""
        return value if self.device.is_cuda else None

    def placement(self, dtype: Any = "bfloat16", **how: Any) -> Placement:
        """A placement on the device under test."""
        return Placement(self.device.name, dtype, **how)

    def opened(self, path: Path) -> Opened:
        """The headers of a file."""
        return describe(open_weights(path))

    def load_plan(self, path: Path, placement: Placement) -> LoadPlan:
        """How a file is loaded there."""
        opened = self.opened(path)
        return LoadPlan(opened.files, opened.identity, placement, path.name, self.deadline.check)

    def add_peak(self, section: str, what: str, predicted_bytes: int, peak: Peak) -> None:
        """A prediction beside the truth: never below it, never above twice of it."""
        measured = peak.allocated
        reserved = "" if peak.reserved is None else f"{peak.reserved / 1e9:.2f} GB reserved"
        self.report.add(
            Row(
                section,
                f"{what}: predicted / measured peak",
                None if measured is None else predicted_bytes / 1e9,
                "GB",
                None if measured is None else measured / 1e9,
                at_least=1.0,
                at_most=MOST_WASTE,
                note=reserved,
            )
        )


@dataclass(frozen=True, slots=True)
class Inputs:
    """One step's input: noise, sigmas and a prompt of full length."""

    latents: Tensor
    sigmas: Tensor
    prompts: list[EncodedPrompt]


def step_inputs(bench: Bench, side: int, members: int, width: int) -> Inputs:
    """Random input of one forward pass; `width` is that of the prompt's features."""
    generator = torch.Generator().manual_seed(5)
    shape = (members, 16, side // 8, side // 8)
    latents = torch.randn(shape, generator=generator).to(bench.device.name)  # (members, c, h, w)
    features = torch.randn((bench.tokens, width), generator=generator).to(bench.device.name)
    sigmas = torch.full((members,), 0.7, device=bench.device.name)  # (members,)
    return Inputs(latents, sigmas, [EncodedPrompt(features)] * members)


def relative_error(found: Tensor, expected: Tensor) -> float:
    """Length of the difference over the length of what was expected."""
    difference = (found.float() - expected.float()).norm()
    return float(difference / expected.float().norm().clamp_min(1e-12))


@contextmanager
def tidy(bench: Bench) -> Iterator[None]:
    """Give the memory of a block back, also when it failed."""
    try:
        yield
    finally:
        bench.device.clean()
