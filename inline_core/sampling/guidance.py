"""Guidance: which estimates a step needs, and how they become one.

Every job has its own, so guided, unguided and doubly guided jobs share a forward pass; each
estimate is a row of it.  All formulas work on estimates of the clean latents, shaped (pictures,
channels, ...).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from inline_core.errors import InvalidParam
from inline_core.sampling.patches import (
    GuidanceInterval,
    KeepLength,
    NormaliseGuidance,
    ProjectGuidance,
    RescaleGuidance,
    SkipLayers,
    every,
    last,
)
from inline_core.sampling.projected import ProjectedGuidance
from inline_core.sampling.solvers import solver_named

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.sampling.job import SampleJob
    from inline_core.sampling.sigmas.tables import SigmaTable

DUAL_STYLES: Final = ("regular", "nested")
_TINY: Final = 1e-8


class Pass(StrEnum):
    """One estimate of a step."""

    POSITIVE = "positive"
    NEGATIVE = "negative"
    SECOND = "second"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class _Span:
    """Sigmas from `upper` (included) down to `lower` (not included), as ComfyUI counts them."""

    upper: float
    lower: float

    @classmethod
    def of(cls, table: SigmaTable, start_percent: float, end_percent: float) -> _Span:
        return cls(table.sigma_at(start_percent), table.sigma_at(end_percent))

    def holds(self, sigma: float) -> bool:
        return self.lower < sigma <= self.upper


@dataclass(frozen=True, slots=True)
class Guidance:
    """The guidance of one job; made by `guidance_of`."""

    cfg: float
    flow: bool
    always_negative: bool = False
    second_cfg: float | None = None
    nested: bool = False
    rescale: float = 0.0
    norm: float = 0.0
    token_side: int = 0
    projected: ProjectedGuidance | None = None
    intervals: tuple[tuple[_Span, float], ...] = ()
    skips: tuple[tuple[_Span, SkipLayers], ...] = ()

    def scale_at(self, sigma: float) -> float:
        """The guidance scale at `sigma`."""
        for span, cfg in reversed(self.intervals):
            if span.holds(sigma):
                return cfg
        return self.cfg

    def skip_at(self, sigma: float) -> SkipLayers | None:
        """The layers to be left out of an extra estimate at `sigma`, if any."""
        for span, skip in reversed(self.skips):
            if span.holds(sigma) and skip.scale != 0:
                return skip
        return None

    def passes(self, sigma: float) -> tuple[Pass, ...]:
        """What has to be estimated at `sigma`; the negative only where it counts."""
        wanted = [Pass.POSITIVE]
        scale = self.scale_at(sigma)
        if self.second_cfg is not None:
            wanted += [Pass.SECOND, Pass.NEGATIVE]
        elif scale != 1.0 or self.always_negative:
            wanted.append(Pass.NEGATIVE)
        if self.skip_at(sigma) is not None:
            wanted.append(Pass.SKIPPED)
        return tuple(wanted)

    def combine(self, parts: Mapping[Pass, Tensor], latents: Tensor, sigma: float) -> Tensor:
        """One estimate of the clean latents from those of `passes(sigma)`."""
        positive = parts[Pass.POSITIVE]
        scale = self.scale_at(sigma)
        guided = positive
        if self.second_cfg is not None:
            guided = self._dual(parts, scale, self.second_cfg)
        elif scale != 1.0 and self.projected is not None:
            negative = parts[Pass.NEGATIVE]
            guided = self.projected.combine(positive, negative, latents, sigma, scale)
        elif scale != 1.0:
            guided = classifier_free(positive, parts[Pass.NEGATIVE], scale)
        if guided is not positive:
            if self.rescale:
                guided = rescaled(guided, positive, latents, sigma, self.rescale, flow=self.flow)
            if self.norm:
                guided = normalised(guided, positive, self.norm)
            if self.token_side:
                guided = of_same_length(guided, positive, latents, self.token_side)
        skip = self.skip_at(sigma)
        if skip is not None:
            # Skip-layer guidance (Stability AI 2024, SD3.5): away from the weakened model.
            guided = guided + skip.scale * (positive - parts[Pass.SKIPPED])
        return guided

    def _dual(self, parts: Mapping[Pass, Tensor], scale: float, second_scale: float) -> Tensor:
        """Two conditionings (InstructPix2Pix, Brooks et al. 2023, equation 3), or nested."""
        first, second, negative = (
            parts[Pass.POSITIVE],
            parts[Pass.SECOND],
            parts[Pass.NEGATIVE],
        )
        if self.nested:
            inner = classifier_free(first, second, scale)
            return classifier_free(inner, negative, second_scale)
        return classifier_free(second, negative, second_scale) + scale * (first - second)


def guidance_of(job: SampleJob, table: SigmaTable) -> Guidance:
    """The guidance of a job with the patches of its model.  Raises: InvalidParam."""
    patches = job.model.patches
    rescale = last(patches, RescaleGuidance)
    norm = last(patches, NormaliseGuidance)
    length = last(patches, KeepLength)
    project = last(patches, ProjectGuidance)
    if job.second is not None and job.dual_style not in DUAL_STYLES:
        message = f"unknown style {job.dual_style!r}: use one of {', '.join(DUAL_STYLES)}"
        raise InvalidParam(message, param="style")
    return Guidance(
        cfg=job.cfg,
        flow=table.flow,
        always_negative=solver_named(job.sampler).needs_unguided,
        second_cfg=job.second_cfg if job.second is not None else None,
        nested=job.dual_style == "nested",
        rescale=rescale.multiplier if rescale else 0.0,
        norm=norm.strength if norm else 0.0,
        token_side=length.side if length else 0,
        projected=ProjectedGuidance(project) if project else None,
        intervals=tuple(
            (_Span.of(table, patch.start_percent, patch.end_percent), patch.cfg)
            for patch in every(patches, GuidanceInterval)
        ),
        skips=tuple(
            (_Span.of(table, patch.start_percent, patch.end_percent), patch)
            for patch in every(patches, SkipLayers)
        ),
    )


def needs_negative(job: SampleJob) -> bool:
    """Say whether any step of a job may ask for the negative prompt.

    At cfg 1 none does, but for solvers that need the negative estimate itself (CFG++).
    """
    others = any(patch.cfg != 1.0 for patch in every(job.model.patches, GuidanceInterval))
    asked = job.cfg != 1.0 or job.second is not None or others
    return asked or solver_named(job.sampler).needs_unguided


def most_rows(job: SampleJob) -> int:
    """The most rows that one picture of a job takes in a forward pass."""
    skips = last(job.model.patches, SkipLayers) is not None
    return 1 + int(needs_negative(job)) + int(job.second is not None) + int(skips)


def classifier_free(positive: Tensor, negative: Tensor, scale: float) -> Tensor:
    """``negative + scale * (positive - negative)`` (Ho and Salimans 2022, equation 6)."""
    return positive + (scale - 1.0) * (positive - negative)


def rescaled(
    guided: Tensor,
    positive: Tensor,
    latents: Tensor,
    sigma: float,
    multiplier: float,
    *,
    flow: bool,
) -> Tensor:
    """Guidance rescale (Lin et al. 2023, arXiv:2305.08891, equations 15 and 16).

    The paper scales the velocity.  For a flow model that is (x - x0) / sigma; for a noise-scaled
    one, on x / sqrt(sigma^2 + 1), it is (x / (sigma^2 + 1) - x0) sqrt(sigma^2 + 1) / sigma.  The
    factors are the same for all estimates, so they drop out.
    """
    centre = latents if flow else latents / (sigma**2 + 1)
    wanted, given = centre - positive, centre - guided
    axes = tuple(range(1, wanted.ndim))
    ratio = wanted.std(axes, keepdim=True) / given.std(axes, keepdim=True).clamp_min(_TINY)
    factor = multiplier * ratio + (1.0 - multiplier)  # (pictures, 1, ...)
    return centre - given * factor


def normalised(guided: Tensor, positive: Tensor, strength: float) -> Tensor:
    """The guided estimate, at each place no longer (over channels) than the positive one.

    As in the pipelines of Qwen-Image, but never made longer; times `strength`.
    """
    ratio = positive.norm(dim=1, keepdim=True) / guided.norm(dim=1, keepdim=True).clamp_min(_TINY)
    result: Tensor = guided * ratio.clamp(max=1.0) * strength  # (pictures, channels, ...)
    return result


def of_same_length(guided: Tensor, positive: Tensor, latents: Tensor, side: int) -> Tensor:
    """The guided estimate whose velocity has, in each token, the length of the positive one.

    The velocity of a flow model is (x - x0) / sigma; the factor 1 / sigma drops out.  Tokens are
    `side` x `side` latents (..., height, width); source: QwenImagePipeline of diffusers.
    """
    wanted, given = latents - positive, latents - guided
    ratio = _token_length(wanted, side) / _token_length(given, side).clamp_min(_TINY)
    return latents - given * ratio


def _token_length(velocity: Tensor, side: int) -> Tensor:
    """Length over channels and the latents of a token, (pictures, 1, ..., height, width)."""
    squares = velocity.square().sum(dim=1, keepdim=True)  # (pictures, 1, ..., height, width)
    *outer, height, width = squares.shape
    tokens = squares.reshape(*outer, height // side, side, width // side, side)
    length = tokens.sum(dim=(-3, -1)).sqrt()  # (pictures, 1, ..., height / side, width / side)
    return length.repeat_interleave(side, -2).repeat_interleave(side, -1)
