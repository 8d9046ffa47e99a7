"""One denoising job, its step reports and its result: the seam between graphs and the sampler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from inline_core.devices.split import Split
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
    estimate as encoded picture bytes when called (on any thread, only if somebody looks).
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

    `sigmas` stands in for scheduler, steps and denoise.  Of either, steps `start_step` to
    `end_step` are run; with `leftover_noise` the last one does not go down to 0.  Without
    `add_noise` the latent is taken as noisy already (the second half of a split sampling).
    `one_draw` draws the noise of a batch as ComfyUI does (see `NoiseSource`).
    `split` is how the passes of the job are divided over a group of processes (None: they are not).
    `second` is another conditioning between the positive and the negative one (`second_cfg`,
    `dual_style`: regular or nested).  `options` are those of the solver.  Of two waiting jobs the
    one with the higher `priority` is first.
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
    sigmas: tuple[float, ...] | None = None
    start_step: int = 0
    end_step: int | None = None
    add_noise: bool = True
    leftover_noise: bool = False
    one_draw: bool = False
    second: Conditioning | None = None
    second_cfg: float = 1.0
    dual_style: str = "regular"
    options: Mapping[str, Any] = field(default_factory=dict)
    priority: int = 0
    split: Split | None = None
    cancel: CancelCheck | None = None
    on_step: Callable[[StepReport], None] | None = None
    on_phase: Callable[[str, float, str], None] | None = None

    @property
    def controls(self) -> tuple[ComponentRef, ...]:
        """The ControlNets of all its prompts, each once, in order."""
        models = (control.model for prompt in self.prompts for control in prompt.controls)
        return tuple(dict.fromkeys(models))

    @property
    def prompts(self) -> tuple[Conditioning, ...]:
        """All its conditionings, those that others are combined with among them."""
        given = [item for item in (self.positive, self.negative, self.second) if item is not None]
        return tuple(one for item in given for one in item.every)


@dataclass(frozen=True, slots=True)
class SampleResult:
    """The denoised latent and what really happened (seeds, sigmas, batch size, dtype, notes).

    `denoised` is the last estimate of the clean latent; None where no step was run.
    """

    latent: Latent
    provenance: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    denoised: Latent | None = None
