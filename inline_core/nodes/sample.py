"""Prompts to conditioning, and conditioning to latents: the primitives around the sampler."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from inline_core.graph.ports import PortKind
from inline_core.loading.component import ComponentRef
from inline_core.nodes.base import NodeContext, Param, Port, node
from inline_core.sampling.job import SampleJob, SampleResult, StepReport
from inline_core.sampling.patches import ClipSkip, last
from inline_core.sampling.sigmas.schedules import SCHEDULE_LABELS, SCHEDULES
from inline_core.sampling.sigmas.values import Sigmas
from inline_core.sampling.solver_options import options_from
from inline_core.sampling.solvers import SOLVERS
from inline_core.sampling.values import Conditioning, Latent

# Those of the contract come first.
_FIRST_SAMPLERS = ("euler", "euler_a", "dpmpp_2m", "heun")
_FIRST_SCHEDULERS = ("simple", "karras", "exponential", "beta")
SAMPLERS = tuple(
    (name, SOLVERS[name].label) for name in dict.fromkeys((*_FIRST_SAMPLERS, *SOLVERS))
)
SCHEDULERS = tuple(
    (name, SCHEDULE_LABELS[name]) for name in dict.fromkeys((*_FIRST_SCHEDULERS, *SCHEDULES))
)
_STYLES = (("regular", "Regular"), ("nested", "Nested"))
_NOISES = (("per_picture", "Seed + i for picture i"), ("one_draw", "One draw for the batch"))
_LAST_STEP = 10_000
_SAMPLE_FROM = 0.1
_SAMPLE_TO = 0.9

Model = Annotated[ComponentRef, Port(PortKind.MODEL, "Model")]
Seed = Annotated[int, Param(label="Seed (-1 = random)", widget="seed")]


@node(
    "encode/text",
    title="Encode Text",
    category="Conditioning",
    icon="type",
    outputs=[Port(PortKind.CONDITIONING)],
    needs=["torch"],
)
def encode_text(
    ctx: NodeContext,
    text_encoder: Annotated[ComponentRef, Port(PortKind.TEXT_ENCODER)],
    prompt: str,
) -> Conditioning:
    """Encode a prompt with a text encoder, in the format of the family that will read it.

    Raises: ModelFileInvalid.
    """
    conditioning = prompt_for(text_encoder, prompt)
    ctx.render.encode_text(conditioning, ctx)
    return conditioning


def prompt_for(text_encoder: ComponentRef, prompt: str, **more: Any) -> Conditioning:
    """A prompt, with what was put on its text encoder as options."""
    skip = last(text_encoder.patches, ClipSkip)
    options = dict(more.pop("options", ()))
    if skip is not None:
        options.setdefault("clip_skip", skip.layer)
    plain = replace(text_encoder, patches=())
    return Conditioning(prompt, plain, options=tuple(sorted(options.items())), **more)


@node(
    "sample",
    title="Sample",
    category="Sampling",
    icon="wand",
    outputs=[Port(PortKind.LATENT)],
    needs=["torch"],
)
def sample(
    ctx: NodeContext,
    model: Model,
    positive: Conditioning,
    negative: Conditioning | None = None,
    latent: Annotated[Latent | None, Port(required=True)] = None,
    *,
    steps: Annotated[int, Param(min=1, max=200, step=1)] = 20,
    cfg: Annotated[float, Param(label="CFG", min=0.0, max=30.0, step=0.1)] = 5.0,
    sampler: Annotated[str, Param(options=SAMPLERS)] = "euler",
    scheduler: Annotated[str, Param(options=SCHEDULERS)] = "simple",
    seed: Seed = -1,
    denoise: Annotated[float, Param(min=0.0, max=1.0, step=0.01, advanced=True)] = 1.0,
) -> Latent:
    """Denoise a latent.  `cfg` 1 means no guidance and skips the negative prompt.

    `denoise` below 1 keeps that much of what is in the latent (image to image).
    Raises: ModelFileInvalid, InvalidParam, NotFinite, OutOfMemory.
    """
    if latent is None:
        message = "sample needs a latent"
        raise TypeError(message)
    job = SampleJob(
        model=model,
        positive=positive,
        negative=negative,
        latent=latent,
        steps=steps,
        cfg=cfg,
        sampler=sampler,
        scheduler=scheduler,
        seed=seed,
        denoise=denoise,
    )
    return run_job(ctx, job).latent


@node(
    "sample/advanced",
    title="Sample (Advanced)",
    category="Sampling",
    icon="wand",
    outputs=[Port(PortKind.LATENT), Port(PortKind.LATENT, "Denoised", id="denoised")],
    needs=["torch"],
)
def sample_advanced(
    ctx: NodeContext,
    model: Model,
    positive: Conditioning,
    latent: Latent,
    negative: Conditioning | None = None,
    second: Annotated[Conditioning | None, Port(PortKind.CONDITIONING, "Second")] = None,
    sigmas: Annotated[Sigmas | None, Port(PortKind.SIGMAS, "Sigmas")] = None,
    *,
    steps: Annotated[int, Param(min=1, max=1000, step=1)] = 20,
    cfg: Annotated[float, Param(label="CFG", min=0.0, max=100.0, step=0.1)] = 5.0,
    sampler: Annotated[str, Param(options=SAMPLERS)] = "euler",
    scheduler: Annotated[str, Param(options=SCHEDULERS)] = "simple",
    seed: Seed = -1,
    denoise: Annotated[float, Param(min=0.0, max=1.0, step=0.01, advanced=True)] = 1.0,
    start_step: Annotated[int, Param(min=0, max=_LAST_STEP, step=1)] = 0,
    end_step: Annotated[int, Param(min=0, max=_LAST_STEP, step=1)] = _LAST_STEP,
    add_noise: bool = True,
    leftover_noise: bool = False,
    noise: Annotated[str, Param(options=_NOISES, advanced=True)] = "per_picture",
    second_cfg: Annotated[
        float, Param(label="CFG of second", min=0.0, max=100.0, step=0.1, advanced=True)
    ] = 1.0,
    style: Annotated[str, Param(options=_STYLES, advanced=True)] = "regular",
    solver_options: Annotated[str, Param(label="Solver options", advanced=True)] = "",
) -> tuple[Latent, Latent]:
    """Denoise a part of a schedule, or along sigmas of your own.

    Steps `start_step` to `end_step` of the schedule are run.  With `leftover_noise` the last one
    leaves its noise in, to be gone on with by another sampler without `add_noise`.  Wired `sigmas`
    stand in for scheduler, steps and denoise.  `second` is a conditioning between the positive and
    the negative one: regular adds `cfg` times what sets the positive one apart from it, nested
    guides from it first.  `solver_options` are written `eta=0.5, s_noise=1.0`.  `denoised` is the
    last estimate of the clean latent, which differs where noise is left.
    Raises: ModelFileInvalid, InvalidParam, NotFinite, OutOfMemory.
    """
    job = SampleJob(
        model=model,
        positive=positive,
        negative=negative,
        latent=latent,
        steps=steps,
        cfg=cfg,
        sampler=sampler,
        scheduler=scheduler,
        seed=seed,
        denoise=denoise,
        sigmas=sigmas.values if sigmas is not None else None,
        start_step=start_step,
        end_step=end_step if end_step < _LAST_STEP else None,
        add_noise=add_noise,
        leftover_noise=leftover_noise,
        one_draw=noise == "one_draw",
        second=second,
        second_cfg=second_cfg,
        dual_style=style,
        options=options_from(sampler, solver_options),
    )
    result = run_job(ctx, job)
    return result.latent, result.denoised or result.latent


def run_job(ctx: NodeContext, job: SampleJob) -> SampleResult:
    """Send a job through the sampler; its warnings reach the run and the takes."""
    result = ctx.render.sample(job, ctx)
    for warning in result.warnings:
        ctx.warn(warning)
    return result


def report_step(ctx: NodeContext, report: StepReport) -> None:
    """Tell the run how far denoising is, in the words of the contract; device thread."""
    share = report.step / report.step_count
    ctx.progress(
        "sample",
        _SAMPLE_FROM + share * (_SAMPLE_TO - _SAMPLE_FROM),
        f"Step {report.step}/{report.step_count}",
        step=report.step,
        step_count=report.step_count,
        eta_ms=None if report.eta_s is None else round(report.eta_s * 1000),
    )
    if report.preview is not None:
        ctx.preview(report.preview)
