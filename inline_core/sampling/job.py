"""One denoising job, its step reports and its result: the seam between graphs and the sampler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from inline_core.loading.component import ComponentRef
from inline_core.sampling.values import Conditioning, Latent


class CancelCheck(Protocol):
    """Anything that can say whether its run was cancelled; safe to call from any thread."""

    def check(self) -> None:
        """Return, or raise `RunCancelled`."""


@dataclass(frozen=True, slots=True)
class StepReport:
    """What the sampler tells after each step; `step` counts from 1.

    `eta_s` is the estimated time to the end of the job.  `preview` gives the current denoised
    estimate as encoded JPEG bytes when called (on the device thread, only if somebody looks).
    """

    step: int
    step_count: int
    sigma: float
    eta_s: float | None
    preview: Callable[[], bytes] | None = None


@dataclass(frozen=True, slots=True)
class SampleJob:
    """All that is needed to denoise one latent; immutable, so it may cross threads freely.

    `cfg` is the classifier-free guidance scale in the usual convention
    ``uncond + cfg * (cond - uncond)``: 1.0 means no guidance.  `denoise` in 0..1 is the share of
    the schedule that is run (1.0: from pure noise).  Picture i of the batch uses `seed + i`.
    `seed` is already resolved (>= 0).
    """

    model: ComponentRef
    positive: Conditioning
    latent: Latent
    steps: int
    cfg: float
    sampler: str
    scheduler: str
    seed: int
    denoise: float = 1.0
    negative: Conditioning | None = None
    cancel: CancelCheck | None = None
    on_step: Callable[[StepReport], None] | None = None
    on_phase: Callable[[str, float, str], None] | None = None


@dataclass(frozen=True, slots=True)
class SampleResult:
    """The denoised latent and what really happened (seeds, sigmas, batch size, dtype, notes)."""

    latent: Latent
    provenance: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
