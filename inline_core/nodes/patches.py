"""What is put on a model before it is sampled: its schedule's shift, its guidance, a step cache."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated

from inline_core.errors import InvalidParam
from inline_core.families.registry import family_of
from inline_core.graph.ports import PortKind
from inline_core.loading.component import ComponentRef, Patch
from inline_core.nodes.base import NodeContext, Param, Port, node
from inline_core.nodes.sample import Model
from inline_core.sampling.family import ScheduleFor
from inline_core.sampling.patches import (
    Differential,
    ExpertBoundary,
    FluxShift,
    GuidanceInterval,
    GuidingModel,
    KeepLength,
    NoiseScale,
    NormaliseGuidance,
    ProjectGuidance,
    RescaleGuidance,
    RescaleScore,
    Shift,
    SkipLayers,
    SoundGuidance,
    StepCache,
    ToneMap,
    WeakenNegative,
    ZeroStar,
    last,
    with_patch,
)

_MODEL = (Port(PortKind.MODEL, "Model"),)
Start = Annotated[float, Param(label="Start", min=0.0, max=1.0, step=0.001, advanced=True)]
End = Annotated[float, Param(label="End", min=0.0, max=1.0, step=0.001, advanced=True)]


@node("model/shift", title="Schedule Shift", category="Model", icon="sliders", outputs=_MODEL)
def shift(
    ctx: NodeContext,
    model: Model,
    *,
    shift: Annotated[float, Param(min=0.01, max=100.0, step=0.01)] = 3.0,
) -> ComponentRef:
    """Shift a flow model's schedule: above 1 more steps are spent where there is much noise."""
    return _patched(ctx, model, Shift(shift), flow_only=True)


@node(
    "model/flux-shift",
    title="Schedule Shift by Size",
    category="Model",
    icon="sliders",
    outputs=_MODEL,
)
def flux_shift(
    ctx: NodeContext,
    model: Model,
    *,
    max_shift: Annotated[float, Param(min=0.0, max=100.0, step=0.01)] = 1.15,
    base_shift: Annotated[float, Param(min=0.0, max=100.0, step=0.01)] = 0.5,
) -> ComponentRef:
    """Shift a flow model's schedule with the size of the picture, as FLUX.1 does it."""
    return _patched(ctx, model, FluxShift(base_shift, max_shift), flow_only=True)


@node(
    "guidance/rescale",
    title="Rescale Guidance",
    category="Guidance",
    icon="sliders",
    outputs=_MODEL,
)
def rescale(
    ctx: NodeContext,
    model: Model,
    *,
    multiplier: Annotated[float, Param(min=0.0, max=1.0, step=0.01)] = 0.7,
) -> ComponentRef:
    """Keep strong guidance from washing out or burning a picture (Lin et al. 2023)."""
    return _patched(ctx, model, RescaleGuidance(multiplier))


@node(
    "guidance/normalise",
    title="Normalise Guidance",
    category="Guidance",
    icon="sliders",
    outputs=_MODEL,
)
def normalise(
    ctx: NodeContext,
    model: Model,
    *,
    strength: Annotated[float, Param(min=0.0, max=100.0, step=0.01)] = 1.0,
) -> ComponentRef:
    """Let the guided estimate be no longer than the positive one, times `strength`."""
    return _patched(ctx, model, NormaliseGuidance(strength))


@node(
    "model/pair",
    title="Pair of Experts",
    category="Model",
    icon="box",
    outputs=_MODEL,
)
def pair(
    model: Annotated[ComponentRef, Port(PortKind.MODEL, "Much noise")],
    second: Annotated[ComponentRef, Port(PortKind.MODEL, "Little noise")],
    *,
    boundary: Annotated[float, Param(label="Boundary (sigma)", min=0.0, max=1.0, step=0.005)] = (
        0.875
    ),
) -> ComponentRef:
    """Let two models take turns: `model` from `boundary` upwards, `second` below (Wan 2.2 A14B).

    The published boundaries are 0.875 for text and 0.9 for image to video.  Guidance and schedule
    are those of the first one.
    Raises: InvalidParam for models of different families.
    """
    return with_patch(_with_second(model, second, ExpertBoundary), ExpertBoundary(boundary))


@node(
    "model/guided-by",
    title="Guided by Another Model",
    category="Model",
    icon="box",
    outputs=_MODEL,
)
def guided_by(
    model: Annotated[ComponentRef, Port(PortKind.MODEL, "Model")],
    second: Annotated[ComponentRef, Port(PortKind.MODEL, "Guiding model")],
) -> ComponentRef:
    """Let another model make the negative estimates that guidance leads away from (Ideogram 4).

    Guidance scale and schedule are those of the first one.
    Raises: InvalidParam for models of different families, and for a pair of experts.
    """
    return with_patch(_with_second(model, second, GuidingModel), GuidingModel())


def _with_second(model: ComponentRef, second: ComponentRef, kind: type[Patch]) -> ComponentRef:
    """The model with another one that works together with it in one way.  Raises: InvalidParam."""
    if model.family != second.family:
        message = f"{model.name} and {second.name} are of different families"
        raise InvalidParam(message, port="second")
    if model.others and last(model.patches, kind) is None:
        message = f"{model.name} works together with {model.others[0].name} already"
        raise InvalidParam(message, port="model")
    return replace(model, others=(replace(second, others=(), patches=()),))


@node(
    "guidance/keep-length",
    title="Keep Length of Guidance",
    category="Guidance",
    icon="sliders",
    outputs=_MODEL,
)
def keep_length(
    ctx: NodeContext,
    model: Model,
    *,
    side: Annotated[int, Param(label="Latents of a token", min=1, max=4, step=1)] = 2,
) -> ComponentRef:
    """Give the guided velocity of each token the length of the positive one.

    As Qwen-Image is guided by its reference; its one-click nodes have it on.
    """
    return _patched(ctx, model, KeepLength(side), flow_only=True)


@node(
    "guidance/project",
    title="Project Guidance (sound)",
    category="Guidance",
    icon="sliders",
    outputs=_MODEL,
)
def project(
    ctx: NodeContext,
    model: Model,
    *,
    threshold: Annotated[float, Param(min=0.0, max=100.0, step=0.1)] = 2.5,
    momentum: Annotated[float, Param(min=-1.0, max=1.0, step=0.05)] = -0.75,
) -> ComponentRef:
    """Guide a sound by what stands across its positive estimate (Sadat et al. 2024).

    As ACE-Step is guided by its reference; its one-click node has it on.
    """
    return _patched(ctx, model, ProjectGuidance(threshold, momentum), flow_only=True)


@node(
    "guidance/interval",
    title="Guidance Interval",
    category="Guidance",
    icon="sliders",
    outputs=_MODEL,
)
def interval(
    ctx: NodeContext,
    model: Model,
    *,
    cfg: Annotated[float, Param(label="CFG", min=0.0, max=100.0, step=0.1)] = 1.0,
    start_percent: Start = 0.0,
    end_percent: End = 1.0,
) -> ComponentRef:
    """Use another guidance scale in a part of the sampling; at 1 that part runs twice as fast."""
    _check_span(start_percent, end_percent)
    return _patched(ctx, model, GuidanceInterval(cfg, start_percent, end_percent))


@node(
    "guidance/skip-layers",
    title="Skip-Layer Guidance",
    category="Guidance",
    icon="sliders",
    outputs=_MODEL,
)
def skip_layers(
    ctx: NodeContext,
    model: Model,
    *,
    layers: str = "7, 8, 9",
    scale: Annotated[float, Param(min=0.0, max=10.0, step=0.1)] = 3.0,
    start_percent: Start = 0.01,
    end_percent: End = 0.15,
) -> ComponentRef:
    """Guide away from what the model gives without some of its blocks; takes one more estimate.

    `layers` are numbers of blocks from 0.  Raises: InvalidParam.
    """
    _check_span(start_percent, end_percent)
    numbers = _numbers(layers)
    return _patched(ctx, model, SkipLayers(numbers, scale, start_percent, end_percent))


@node(
    "guidance/weaken-negative",
    title="Weaken Negative",
    category="Guidance",
    icon="sliders",
    outputs=_MODEL,
)
def weaken_negative(
    ctx: NodeContext,
    model: Model,
    *,
    layers: str = "7, 8, 9",
    start_percent: Start = 0.0,
    end_percent: End = 1.0,
) -> ComponentRef:
    """Leave blocks out of the negative estimate: guidance leads away from a weaker model.

    It costs nothing more.  `layers` are numbers of blocks from 0.  Raises: InvalidParam.
    """
    _check_span(start_percent, end_percent)
    return _patched(ctx, model, WeakenNegative(_numbers(layers), start_percent, end_percent))


@node(
    "guidance/sound",
    title="Guidance of Sound",
    category="Guidance",
    icon="sliders",
    outputs=_MODEL,
)
def sound_guidance(
    ctx: NodeContext,
    model: Model,
    *,
    cfg: Annotated[float, Param(label="CFG", min=0.0, max=100.0, step=0.1)] = 7.0,
) -> ComponentRef:
    """Guide the sound of a video by another scale than its pictures (LTX-2)."""
    return _patched(ctx, model, SoundGuidance(cfg))


@node(
    "model/noise-scale",
    title="Scale of Noise",
    category="Model",
    icon="sliders",
    outputs=_MODEL,
)
def noise_scale(
    ctx: NodeContext,
    model: Model,
    *,
    scale: Annotated[float, Param(min=0.0, max=100.0, step=0.01)] = 1.0,
) -> ComponentRef:
    """Multiply the noise that the sampling starts from, for models that were trained so."""
    return _patched(ctx, model, NoiseScale(scale))


@node(
    "guidance/zero-star",
    title="CFG-Zero*",
    category="Guidance",
    icon="sliders",
    outputs=_MODEL,
)
def zero_star(ctx: NodeContext, model: Model) -> ComponentRef:
    """Scale the negative velocity to the positive one before guiding (Fan et al. 2025)."""
    return _patched(ctx, model, ZeroStar(), flow_only=True)


@node(
    "guidance/tone-map",
    title="Tone Map Guidance",
    category="Guidance",
    icon="sliders",
    outputs=_MODEL,
)
def tone_map(
    ctx: NodeContext,
    model: Model,
    *,
    multiplier: Annotated[float, Param(min=0.0, max=100.0, step=0.01)] = 1.0,
    start_percent: Start = 0.0,
    end_percent: End = 1.0,
) -> ComponentRef:
    """Compress what guidance adds where it adds the most (Reinhard); less with a larger multiplier.

    It lets high guidance scales keep their colours.
    """
    _check_span(start_percent, end_percent)
    return _patched(ctx, model, ToneMap(multiplier, start_percent, end_percent))


@node(
    "guidance/rescale-score",
    title="Temporal Score Rescaling",
    category="Guidance",
    icon="sliders",
    outputs=_MODEL,
)
def rescale_score(
    ctx: NodeContext,
    model: Model,
    *,
    k: Annotated[float, Param(min=0.01, max=100.0, step=0.001)] = 1.0,
    sigma: Annotated[float, Param(min=0.01, max=100.0, step=0.001)] = 1.0,
) -> ComponentRef:
    """Sample as from a sharper (`k` above 1) or a more diverse distribution (Xu et al. 2025)."""
    return _patched(ctx, model, RescaleScore(k, sigma))


@node(
    "model/differential",
    title="Differential Diffusion",
    category="Model",
    icon="sliders",
    outputs=_MODEL,
)
def differential(
    ctx: NodeContext,
    model: Model,
    *,
    strength: Annotated[float, Param(min=0.0, max=1.0, step=0.01)] = 1.0,
) -> ComponentRef:
    """Let the grey of a noise mask say from when on a place is made anew (Levin and Fried 2023)."""
    return _patched(ctx, model, Differential(strength))


@node("model/step-cache", title="Step Cache", category="Model", icon="zap", outputs=_MODEL)
def step_cache(
    ctx: NodeContext,
    model: Model,
    *,
    threshold: Annotated[float, Param(min=0.0, max=1.0, step=0.01)] = 0.1,
    start_percent: Start = 0.0,
    end_percent: End = 1.0,
) -> ComponentRef:
    """Leave out most of a step while its first block says that little has changed.

    Faster and a little off: the larger `threshold`, the more of both (docs/reference/accelerators).
    """
    _check_span(start_percent, end_percent)
    return _patched(ctx, model, StepCache(threshold, start_percent, end_percent))


def _patched(
    ctx: NodeContext, model: ComponentRef, patch: Patch, *, flow_only: bool = False
) -> ComponentRef:
    if flow_only and not family_of(model).table(ScheduleFor(model.variant)).flow:
        ctx.warn(f"{model.name} is no flow model: its schedule has no shift, nothing was changed.")
        return model
    return with_patch(model, patch)


def _check_span(start_percent: float, end_percent: float) -> None:
    if start_percent >= end_percent:
        message = f"start {start_percent} is not before end {end_percent}: nothing would be changed"
        raise InvalidParam(message, param="start_percent")


def _numbers(text: str) -> tuple[int, ...]:
    parts = [part for part in re.split(r"[,\s]+", text.strip()) if part]
    for part in parts:
        if not part.isdecimal():
            message = f"{part!r} is no number of a block: write numbers from 0 with commas between"
            raise InvalidParam(message, param="layers")
    if not parts:
        message = "no block is named: write numbers from 0 with commas between"
        raise InvalidParam(message, param="layers")
    return tuple(sorted({int(part) for part in parts}))
