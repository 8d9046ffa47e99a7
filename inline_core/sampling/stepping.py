"""One job between two estimates: its schedule, solver, guidance and mask; no threads, no batch."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import torch

from inline_core.errors import InvalidParam, NotFinite
from inline_core.sampling.family import Prepared, PromptPart, Row, StepMemory, video_values
from inline_core.sampling.guidance import Guidance, Pass, guidance_of, most_rows
from inline_core.sampling.job import SampleJob, SampleResult
from inline_core.sampling.masking import Differing, KeptPart, latent_mask
from inline_core.sampling.noise import NoiseSource, picture_seed
from inline_core.sampling.patches import Differential, NoiseScale, StepCache, last
from inline_core.sampling.process import end_state, start_state
from inline_core.sampling.regions import Box, box_of, combined, counts_at
from inline_core.sampling.sigmas.lists import between
from inline_core.sampling.sigmas.schedules import sigmas_for
from inline_core.sampling.solvers import Estimate, Query, Solver, Steps, Trajectory, solver_named
from inline_core.sampling.values import Region

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.sampling.sigmas.tables import SigmaTable

_LEAST_SIGMAS: Final = 2
_EVERYWHERE: Final = Region()

Way = tuple[Pass, int]
"""One estimate of a step: what for, and of which of the prompts that are combined for it."""


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """What a job needs estimated now: each picture in several ways, at one sigma.

    `latents` (pictures, channels, ...); `rows[way]` has a row for each picture, `boxes[way]` says
    of which part of the latents, if not of all.
    """

    latents: Tensor
    sigma: float
    rows: Mapping[Way, Sequence[Row]]
    boxes: Mapping[Way, Box] = field(default_factory=dict)

    def seen(self, way: Way) -> Tensor:
        """The latents of one way, (pictures, channels, ...)."""
        box = self.boxes.get(way)
        return self.latents if box is None else box.of(self.latents)


class Stepping:
    """Runs one job's solver from estimate to estimate.  Device thread only.

    `latents` is the result once `done`; `step` counts the steps that are complete.
    """

    def __init__(self, job: SampleJob, prepared: Prepared) -> None:
        """Draw the noise and ask the solver for its first wish.  Raises: InvalidParam."""
        self.prepared = prepared
        self._name = secrets.randbits(63)
        self.solver = solver_named(job.sampler)
        self.sigmas = job_sigmas(job, prepared.table, self.solver)
        self.done = False
        self.step = 0
        self.denoised: Tensor | None = None
        self._job = job
        self._table = prepared.table
        self._guidance: Guidance = guidance_of(
            job, prepared.table, video_values(prepared.space, job.latent)
        )
        cache = last(job.model.patches, StepCache)
        self._cache = cache if cache is not None and cache.threshold > 0 else None
        self._memories: dict[tuple[Way, int], StepMemory] = {}
        self._kept: KeptPart | None = None
        self.latents, draw = self._start()
        self._steps: Steps | None = None
        self._query: Query | None = None
        if len(self.sigmas) < _LEAST_SIGMAS:
            self.done = True
            return
        start = Trajectory(self.latents, self.sigmas, draw, prepared.table.flow)
        self._steps = self.solver.function(start, **job.options)
        self._query = next(self._steps)

    @property
    def step_count(self) -> int:
        """How many steps the job takes."""
        return max(len(self.sigmas) - 1, 0)

    def ask(self) -> Ask:
        """What is needed next."""
        assert self._query is not None
        latents, sigma = self._query.latents, self._query.sigma
        if self._kept is not None:
            latents = self._kept.before(latents, sigma)
        rows: dict[Way, list[Row]] = {}
        boxes: dict[Way, Box] = {}
        for wanted in self._guidance.passes(sigma):
            for place, part in enumerate(self._parts(wanted)):
                if not counts_at(part.region, sigma, self._table):
                    continue
                way = (wanted, place)
                rows[way] = [
                    self._row(way, part, index, sigma) for index in range(latents.shape[0])
                ]
                box = box_of(part.region, latents, self.prepared.space.factor)
                if box is not None:
                    boxes[way] = box
        if not rows:
            # Nobody counts here: better the first prompt than nothing.
            part = self._parts(Pass.POSITIVE)[0]
            first = (Pass.POSITIVE, 0)
            rows[first] = [self._row(first, part, index, sigma) for index in range(len(latents))]
        return Ask(latents, sigma, rows, boxes)

    def advance(self, asked: Ask, found: Mapping[Way, Tensor]) -> bool:
        """Take the estimates of `asked`; True when a step is complete.

        Raises: NotFinite.
        """
        assert self._query is not None
        assert self._steps is not None
        estimates = {
            wanted: self._one(wanted, asked, found) for wanted in self._guidance.passes(asked.sigma)
        }
        denoised = self._guidance.combine(estimates, asked.latents, asked.sigma)
        unguided = estimates.get(Pass.NEGATIVE, denoised)
        if self._kept is not None:
            denoised = self._kept.after(denoised, asked.sigma)
            unguided = self._kept.after(unguided, asked.sigma)
        if not bool(torch.isfinite(denoised).all()):
            raise self._not_finite()
        self.denoised = denoised
        try:
            self._query = self._steps.send(Estimate(denoised, unguided))
        except StopIteration as end:
            self._finish(end.value)
            return True
        complete = self._query.step > self.step
        self.step = self._query.step
        return complete

    def close(self) -> None:
        """Let go of what the solver holds."""
        if self._steps is not None:
            self._steps.close()
        self._memories.clear()

    def result(self, largest_batch: int) -> SampleResult:
        """What came out, with all that is needed to make it again."""
        job, prepared = self._job, self.prepared
        samples = self.latents.to("cpu", torch.float32)
        cached = sum(memory.reused for memory in self._memories.values())
        provenance = {
            **prepared.provenance,
            **job_facts(job),
            "guided": most_rows(job) > 1,
            "sigmas": [round(sigma, 7) for sigma in self.sigmas],
            "dtype": prepared.dtype,
            "device": prepared.device,
            "batch": largest_batch,
        }
        if self._cache is not None:
            provenance["stepCache"] = {"threshold": self._cache.threshold, "reusedPasses": cached}
        latent = replace(
            job.latent,
            samples=samples,
            space=prepared.space.name,
            normalised=True,
            size_bytes=samples.numel() * 4,
            provenance=provenance,
        )
        denoised = None
        if self.denoised is not None:
            denoised = replace(latent, samples=self.denoised.to("cpu", torch.float32))
        warnings = prepared.warnings()
        if not self.step_count:
            warnings = (*warnings, "No step was run: the latent came out as it went in.")
        return SampleResult(latent, provenance, warnings, denoised)

    def _finish(self, latents: Tensor) -> None:
        self.step = self.step_count
        self.latents = end_state(latents, self.sigmas[-1], self._table)
        self.done = True
        self._query = None

    def _not_finite(self) -> NotFinite:
        assert self._query is not None
        message = (
            f"NaN or infinity in the latents at step {self._query.step + 1} of {self.step_count} "
            f"({self._job.model.name}, {self.prepared.dtype}): no picture was made"
        )
        return NotFinite(message)

    def _parts(self, wanted: Pass) -> tuple[PromptPart, ...]:
        """The prompts that are combined for a pass, mostly one."""
        prepared = self.prepared
        name = "positive" if wanted is Pass.SKIPPED else wanted.value
        several = prepared.parts.get(name)
        if several is not None:
            return several
        encoded = {
            "positive": prepared.positive,
            "negative": prepared.negative,
            "second": prepared.second,
        }[name]
        return (PromptPart(encoded, _EVERYWHERE, self._job.positive.guidance),)

    def _one(self, wanted: Pass, asked: Ask, found: Mapping[Way, Tensor]) -> Tensor:
        """The estimate of a pass from those of its prompts."""
        if self.prepared.parts.get("positive" if wanted is Pass.SKIPPED else wanted.value) is None:
            return found[wanted, 0]
        mine = {place: part for (of, place), part in found.items() if of is wanted}
        return combined(self._parts(wanted), mine, asked.latents, self.prepared.space.factor)

    def _row(self, way: Way, part: PromptPart, index: int, sigma: float) -> Row:
        return Row(
            part.encoded,
            guidance=part.guidance,
            skipped_layers=self._guidance.skipped_layers(way[0], sigma),
            memory=self._memory(way, index, sigma),
            negative=way[0] is Pass.NEGATIVE,
            key=(self._name, way[0].value, way[1], index),
        )

    def _memory(self, way: Way, index: int, sigma: float) -> StepMemory | None:
        """What a row may reuse of its earlier steps; nothing in passes with layers left out."""
        cache = self._cache
        if cache is None or self._guidance.skipped_layers(way[0], sigma):
            return None
        inside = (
            self._table.sigma_at(cache.end_percent)
            < sigma
            <= self._table.sigma_at(cache.start_percent)
        )
        if not inside:
            return None
        return self._memories.setdefault((way, index), StepMemory(cache.threshold))

    def _start(self) -> tuple[Tensor, Any]:
        """The latents to start from, and how more noise is drawn."""
        job, prepared = self._job, self.prepared
        latent, space = job.latent, prepared.space
        shape = space.shape(latent.width, latent.height, latent.frames, latent.fps)
        source = NoiseSource(job.seed, latent.batch, shape, prepared.device, one_draw=job.one_draw)
        clean = _given(job, prepared, shape)
        # Without steps an empty latent stays empty, as in ComfyUI.
        first = self.sigmas[0] if self.sigmas else 0.0
        noise = source.draw() if job.add_noise else None  # (pictures, c, h, w)
        scaled = last(job.model.patches, NoiseScale)
        if scaled is not None and noise is not None:
            noise = noise * scaled.scale
        if clean is None and noise is None:
            clean = torch.zeros((latent.batch, *shape), device=prepared.device)
        if not self.sigmas and clean is not None:
            return clean, source.draw
        start = start_state(clean, noise, first, self._table)
        if latent.mask is not None:
            still = torch.zeros_like(start)
            self._kept = KeptPart(
                latent_mask(latent.mask, start),
                still if clean is None else clean,
                still if noise is None else noise,
                self._table.flow,
                self._differential(),
            )
        return start, source.draw

    def _differential(self) -> Differing | None:
        patch = last(self._job.model.patches, Differential)
        if patch is None or not self.sigmas:
            return None
        end = max(self.sigmas[-1], self._table.smallest)
        return Differing(self._table, self.sigmas[0], end, patch.strength)


def job_sigmas(job: SampleJob, table: SigmaTable, solver: Solver) -> tuple[float, ...]:
    """The sigmas that a job runs through.  Raises: InvalidParam."""
    if job.sigmas is not None:
        sigmas = job.sigmas
        if any(not 0 <= sigma < float("inf") for sigma in sigmas):
            message = "sigmas must be numbers of 0 or more"
            raise InvalidParam(message, param="sigmas")
        for place, (left, right) in enumerate(pairwise(sigmas), start=1):
            if left == right:
                message = f"sigmas {place} and {place + 1} are both {left}: leave one of them out"
                raise InvalidParam(message, param="sigmas")
    else:
        sigmas = sigmas_for(
            job.scheduler,
            job.steps,
            table,
            job.denoise,
            drops_penultimate=solver.drops_penultimate,
        )
    if job.start_step or job.end_step is not None or job.leftover_noise:
        if job.end_step is not None and job.start_step >= job.end_step:
            span = f"start_step {job.start_step} is not before end_step {job.end_step}"
            message = f"{span}: no step is left"
            raise InvalidParam(message, param="start_step")
        end = len(sigmas) if job.end_step is None else job.end_step
        return between(sigmas, job.start_step, end, job.leftover_noise)
    return tuple(sigmas)


def job_facts(job: SampleJob) -> dict[str, Any]:
    """What a job was asked to do, for the provenance."""
    facts: dict[str, Any] = {
        "seed": job.seed,
        "seeds": [
            job.seed if job.one_draw else picture_seed(job.seed, index)
            for index in range(job.latent.batch)
        ],
        "sampler": job.sampler,
        "scheduler": "sigmas" if job.sigmas is not None else job.scheduler,
        "steps": job.steps,
        "cfg": job.cfg,
        "denoise": job.denoise,
        "width": job.latent.width,
        "height": job.latent.height,
        "prompt": job.positive.prompt,
        "negative": job.negative.prompt if job.negative else "",
    }
    if job.start_step or job.end_step is not None:
        facts["range"] = [job.start_step, job.end_step]
    if job.second is not None:
        facts["second"] = {"prompt": job.second.prompt, "cfg": job.second_cfg}
    if job.model.patches:
        facts["patches"] = [repr(patch) for patch in job.model.patches]
    if job.one_draw:
        facts["noise"] = "one draw"
    if job.options:
        facts["options"] = dict(job.options)
    if job.latent.mask is not None:
        facts["masked"] = True
    if job.latent.frames > 1:
        facts |= {"frames": job.latent.frames, "fps": job.latent.fps}
    if job.positive.options:
        facts["textOptions"] = dict(job.positive.options)
    if job.positive.references:
        facts["references"] = [[item.width, item.height] for item in job.positive.references]
    return facts


def _given(job: SampleJob, prepared: Prepared, shape: tuple[int, ...]) -> Tensor | None:
    """The latents a job starts from, checked; None for an empty latent."""
    latent, space = job.latent, prepared.space
    if latent.samples is None:
        return None
    clean: Tensor = latent.samples.to(prepared.device, torch.float32)  # (pictures or 1, c, ...)
    fitting = {None, space.name} if latent.normalised else {None, prepared.vae_family}
    if tuple(clean.shape[1:]) != shape or latent.space not in fitting:
        message = (
            f"the latent has shape {tuple(clean.shape[1:])} in space {latent.space}; the model "
            f"needs {shape} in space {space.name}"
        )
        raise InvalidParam(message, port="latent")
    if not latent.normalised:
        clean = space.normalised(clean)
    return clean.expand(latent.batch, *shape)
