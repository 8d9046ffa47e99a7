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
    RescaleScore,
    SkipLayers,
    SoundGuidance,
    ToneMap,
    WeakenNegative,
    ZeroStar,
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
    keep_length: KeepLength | None = None
    projected: ProjectedGuidance | None = None
    intervals: tuple[tuple[_Span, float], ...] = ()
    skips: tuple[tuple[_Span, SkipLayers], ...] = ()
    weak: tuple[tuple[_Span, WeakenNegative], ...] = ()
    tones: tuple[tuple[_Span, ToneMap], ...] = ()
    score: RescaleScore | None = None
    zero_star: bool = False
    sound: tuple[int, float] | None = None

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

    def skipped_layers(self, wanted: Pass, sigma: float) -> tuple[int, ...]:
        """The blocks that an estimate does not go through at `sigma`."""
        if wanted is Pass.SKIPPED:
            skip = self.skip_at(sigma)
            return skip.layers if skip is not None else ()
        if wanted is Pass.NEGATIVE:
            for span, weak in reversed(self.weak):
                if span.holds(sigma):
                    return weak.layers
        return ()

    def passes(self, sigma: float) -> tuple[Pass, ...]:
        """What has to be estimated at `sigma`; the negative only where it counts."""
        wanted = [Pass.POSITIVE]
        scale = self.scale_at(sigma)
        other = self.sound is not None and self.sound[1] != 1.0
        if self.second_cfg is not None:
            wanted += [Pass.SECOND, Pass.NEGATIVE]
        elif scale != 1.0 or other or self.always_negative:
            wanted.append(Pass.NEGATIVE)
        if self.skip_at(sigma) is not None:
            wanted.append(Pass.SKIPPED)
        return tuple(wanted)

    def combine(self, parts: Mapping[Pass, Tensor], latents: Tensor, sigma: float) -> Tensor:
        """One estimate of the clean latents from those of `passes(sigma)`."""
        parts = self._toned(parts, sigma)
        positive = parts[Pass.POSITIVE]
        scale = self.scale_at(sigma)
        guided = self._guided(parts, latents, sigma, scale)
        if guided is not positive:
            if self.rescale:
                guided = rescaled(guided, positive, latents, sigma, self.rescale, flow=self.flow)
            if self.norm:
                guided = normalised(guided, positive, self.norm)
            if self.keep_length is not None:
                guided = of_same_length(guided, positive, latents, self.keep_length)
        skip = self.skip_at(sigma)
        if skip is not None:
            # Skip-layer guidance (Stability AI 2024, SD3.5): away from the weakened model.
            guided = guided + skip.scale * (positive - parts[Pass.SKIPPED])
        if self.score is not None:
            guided = score_rescaled(guided, latents, sigma, self.score, flow=self.flow)
        return guided

    def _toned(self, parts: Mapping[Pass, Tensor], sigma: float) -> Mapping[Pass, Tensor]:
        """The estimates, the positive one with what it adds to the negative tone mapped."""
        for span, tone in self.tones:
            if span.holds(sigma):
                positive, negative = parts[Pass.POSITIVE], parts.get(Pass.NEGATIVE)
                if negative is None:
                    toned = tone_mapped(positive, tone.multiplier)
                else:
                    toned = negative + tone_mapped(positive - negative, tone.multiplier)
                parts = {**parts, Pass.POSITIVE: toned}
        return parts

    def _guided(
        self, parts: Mapping[Pass, Tensor], latents: Tensor, sigma: float, scale: float
    ) -> Tensor:
        """The positive estimate, led away from the negative one in the way of this job."""
        positive, negative = parts[Pass.POSITIVE], parts.get(Pass.NEGATIVE)
        if self.second_cfg is not None:
            return self._dual(parts, scale, self.second_cfg)
        if negative is None:
            return positive
        if self.sound is not None:
            return self._with_sound(positive, negative, scale, self.sound)
        if scale == 1.0:
            return positive
        if self.projected is not None:
            return self.projected.combine(positive, negative, latents, sigma, scale)
        if self.zero_star:
            return zero_star(positive, negative, latents, scale)
        return classifier_free(positive, negative, scale)

    @staticmethod
    def _with_sound(
        positive: Tensor, negative: Tensor, scale: float, sound: tuple[int, float]
    ) -> Tensor:
        """Rows (videos, values) guided with a scale for the values of the video and of the rest."""
        count, other = sound
        video = classifier_free(positive[:, :count], negative[:, :count], scale)
        guided = positive.clone()  # (videos, values)
        guided[:, :count] = video
        guided[:, count:] = classifier_free(positive[:, count:], negative[:, count:], other)
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


def guidance_of(job: SampleJob, table: SigmaTable, video_values: int = 0) -> Guidance:
    """The guidance of a job with the patches of its model.

    `video_values` is how many values of a row belong to the video, where the rest is its sound.
    Raises: InvalidParam.
    """
    patches = job.model.patches
    rescale = last(patches, RescaleGuidance)
    norm = last(patches, NormaliseGuidance)
    project = last(patches, ProjectGuidance)
    sound = last(patches, SoundGuidance)
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
        keep_length=last(patches, KeepLength),
        projected=ProjectedGuidance(project) if project else None,
        intervals=tuple(
            (_Span.of(table, patch.start_percent, patch.end_percent), patch.cfg)
            for patch in every(patches, GuidanceInterval)
        ),
        skips=tuple(
            (_Span.of(table, patch.start_percent, patch.end_percent), patch)
            for patch in every(patches, SkipLayers)
        ),
        weak=tuple(
            (_Span.of(table, patch.start_percent, patch.end_percent), patch)
            for patch in every(patches, WeakenNegative)
        ),
        tones=tuple(
            (_Span.of(table, patch.start_percent, patch.end_percent), patch)
            for patch in every(patches, ToneMap)
        ),
        score=last(patches, RescaleScore),
        zero_star=last(patches, ZeroStar) is not None,
        sound=(video_values, sound.cfg) if sound is not None and video_values else None,
    )


def needs_negative(job: SampleJob) -> bool:
    """Say whether any step of a job may ask for the negative prompt.

    At cfg 1 none does, but for solvers that need the negative estimate itself (CFG++).
    """
    others = any(patch.cfg != 1.0 for patch in every(job.model.patches, GuidanceInterval))
    sound = last(job.model.patches, SoundGuidance)
    others = others or (sound is not None and sound.cfg != 1.0)
    asked = job.cfg != 1.0 or job.second is not None or others
    return asked or solver_named(job.sampler).needs_unguided


def most_rows(job: SampleJob) -> int:
    """The most rows that one picture of a job takes in a forward pass."""
    positive = len(job.positive.every)
    negative = len(job.negative.every) if job.negative is not None else 1
    second = len(job.second.every) if job.second is not None else 0
    skips = positive if last(job.model.patches, SkipLayers) is not None else 0
    return positive + (negative if needs_negative(job) else 0) + second + skips


def classifier_free(positive: Tensor, negative: Tensor, scale: float) -> Tensor:
    """``negative + scale * (positive - negative)`` (Ho and Salimans 2022, equation 6)."""
    return positive + (scale - 1.0) * (positive - negative)


def zero_star(positive: Tensor, negative: Tensor, latents: Tensor, scale: float) -> Tensor:
    """CFG-Zero* (Fan et al. 2025, arXiv:2503.18886, equation 9) for the velocities of a flow model.

    The negative velocity is first scaled to lie nearest to the positive one, picture by picture.
    """
    wanted, given = latents - positive, latents - negative  # velocities, but for 1 / sigma
    axes = tuple(range(1, wanted.ndim))
    length = given.square().sum(axes, keepdim=True).clamp_min(_TINY)
    best = (wanted * given).sum(axes, keepdim=True) / length  # (pictures, 1, ...)
    return latents - (best * given + scale * (wanted - best * given))


def tone_mapped(vectors: Tensor, multiplier: float) -> Tensor:
    """Vectors (pictures, channels, ...) whose length l becomes l / (l / top + 1).

    `top` is `multiplier` times three standard deviations above the mean length of a picture, so
    short ones stay nearly as they are.  The operator of Reinhard et al. 2002, equation 3, on
    lengths over channels.
    """
    length = vectors.norm(dim=1, keepdim=True)  # (pictures, 1, ...)
    axes = tuple(range(1, length.ndim))
    mean, spread = length.mean(axes, keepdim=True), length.std(axes, keepdim=True)
    top = ((3.0 * spread + mean) * multiplier).clamp_min(_TINY)  # (pictures, 1, ...)
    mapped: Tensor = vectors / (length / top + 1.0)  # (pictures, channels, ...)
    return mapped


def score_rescaled(
    estimate: Tensor, latents: Tensor, sigma: float, how: RescaleScore, *, flow: bool
) -> Tensor:
    """Temporal score rescaling (Xu et al. 2025, arXiv:2510.01184) of an estimate.

    The score is multiplied by r = (snr s^2 + 1) / (snr s^2 / k + 1) with s = `how.sigma`.  With
    x = a x0 + b noise the score is (a x0 - x) / b^2, so that x0 becomes r x0 + (1 - r) x / a; the
    last factor is written without the division, which a flow model's first step has no value for.
    """
    scale, noise = (1.0 - sigma, sigma) if flow else (1.0, sigma)
    power = how.sigma**2 * scale / noise**2  # snr s^2 / a
    below = power * scale / how.k + 1.0
    ratio = (power * scale + 1.0) / below
    return ratio * estimate + power * (1.0 / how.k - 1.0) / below * latents


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


def of_same_length(guided: Tensor, positive: Tensor, latents: Tensor, how: KeepLength) -> Tensor:
    """The guided estimate whose velocity has, in each token, the length of the positive one.

    The velocity of a flow model is (x - x0) / sigma; the factor 1 / sigma drops out.  Tokens are
    `side` x `side` latents (..., height, width); sources: QwenImagePipeline of diffusers, and
    LongCatImagePipeline, which only shortens.
    """
    wanted, given = latents - positive, latents - guided
    ratio = _token_length(wanted, how.side) / _token_length(given, how.side).clamp_min(_TINY)
    return latents - given * (ratio.clamp(max=1.0) if how.shorten_only else ratio)


def _token_length(velocity: Tensor, side: int) -> Tensor:
    """Length over channels and the latents of a token, (pictures, 1, ..., height, width)."""
    squares = velocity.square().sum(dim=1, keepdim=True)  # (pictures, 1, ..., height, width)
    *outer, height, width = squares.shape
    tokens = squares.reshape(*outer, height // side, side, width // side, side)
    length = tokens.sum(dim=(-3, -1)).sqrt()  # (pictures, 1, ..., height / side, width / side)
    return length.repeat_interleave(side, -2).repeat_interleave(side, -1)
