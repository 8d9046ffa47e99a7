"""What can be put on a model without touching its weights; carried by `ComponentRef.patches`.

Percents are shares of the sampling in 0..1, as ComfyUI counts them: 0 is pure noise, 1 the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from inline_core.loading.component import ComponentRef, Patch

P = TypeVar("P", bound=Patch)


@dataclass(frozen=True, slots=True)
class Shift(Patch):
    """Another shift of a flow model's schedule (3.0 for Z-Image, 1.0 leaves time as it is)."""

    shift: float


@dataclass(frozen=True, slots=True)
class FluxShift(Patch):
    """A shift that grows with the picture: mu from `base_shift` at 256 tokens to `max_shift`."""

    base_shift: float = 0.5
    max_shift: float = 1.15


@dataclass(frozen=True, slots=True)
class RescaleGuidance(Patch):
    """Pull the spread of the guided output back to that of the positive one; 0 off, 1 full."""

    multiplier: float = 0.7


@dataclass(frozen=True, slots=True)
class NormaliseGuidance(Patch):
    """Let the guided estimate be no longer than the positive one, times `strength`."""

    strength: float = 1.0


@dataclass(frozen=True, slots=True)
class KeepLength(Patch):
    """Give the guided velocity, token by token, the length of the positive one.

    A token is `side` x `side` latents; as the pipelines of Qwen-Image guide.  `shorten_only` never
    makes it longer, as those of LongCat-Image have it.
    """

    side: int = 2
    shorten_only: bool = False


@dataclass(frozen=True, slots=True)
class ProjectGuidance(Patch):
    """Guide a sound by what stands across its positive velocity, no longer than `threshold`.

    `momentum` is the share of earlier differences (below 0: against them); the values are those of
    the reference of ACE-Step.
    """

    threshold: float = 2.5
    momentum: float = -0.75


@dataclass(frozen=True, slots=True)
class ExpertBoundary(Patch):
    """The sigma from which on (upwards) the first of two experts is used, below it the second."""

    sigma: float = 0.875


@dataclass(frozen=True, slots=True)
class GuidingModel(Patch):
    """The second of two models makes the negative estimates, from which guidance leads away."""


@dataclass(frozen=True, slots=True)
class GuidanceInterval(Patch):
    """Another guidance scale between two percents of the sampling; 1 means none there."""

    cfg: float = 1.0
    start_percent: float = 0.0
    end_percent: float = 1.0


@dataclass(frozen=True, slots=True)
class SkipLayers(Patch):
    """Skip-layer guidance: away from what the model gives without some of its blocks."""

    layers: tuple[int, ...]
    scale: float = 3.0
    start_percent: float = 0.0
    end_percent: float = 1.0


@dataclass(frozen=True, slots=True)
class WeakenNegative(Patch):
    """Leave blocks out of the negative estimate, so that guidance leads away from a weaker model.

    It takes no estimate more, and does nothing at a guidance of 1.
    """

    layers: tuple[int, ...]
    start_percent: float = 0.0
    end_percent: float = 1.0


@dataclass(frozen=True, slots=True)
class SoundGuidance(Patch):
    """Another guidance scale for the sound of a video than for its pictures."""

    cfg: float = 1.0


@dataclass(frozen=True, slots=True)
class NoiseScale(Patch):
    """Start from more or less noise than the schedule says; for models that were trained so."""

    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class ZeroStar(Patch):
    """Scale the negative velocity to the positive one before guiding (CFG-Zero*)."""


@dataclass(frozen=True, slots=True)
class ToneMap(Patch):
    """Compress the longest vectors of what guidance adds, place by place (Reinhard et al. 2002).

    The larger `multiplier`, the less; see `sampling.guidance.tone_mapped`.
    """

    multiplier: float = 1.0
    start_percent: float = 0.0
    end_percent: float = 1.0


@dataclass(frozen=True, slots=True)
class RescaleScore(Patch):
    """Temporal score rescaling: sample as from a sharper (`k` > 1) or a wider distribution.

    `sigma` is the spread of the distribution's modes that is assumed.
    """

    k: float = 1.0
    sigma: float = 1.0


@dataclass(frozen=True, slots=True)
class Differential(Patch):
    """Let grey of a noise mask say from when on a place is made anew, not how much of it.

    `strength` is how much of that there is: 0 leaves grey as it is, 1 is all of it.
    """

    strength: float = 1.0


@dataclass(frozen=True, slots=True)
class ClipSkip(Patch):
    """On a text encoder: take the states of this layer of CLIP, counted from the end (1: last)."""

    layer: int = 1


@dataclass(frozen=True, slots=True)
class StepCache(Patch):
    """Reuse what the blocks added in an earlier step while the first block changes little.

    `threshold` is the relative change that is still little (0 reuses nothing, 0.1 is cautious).
    """

    threshold: float = 0.1
    start_percent: float = 0.0
    end_percent: float = 1.0


def with_patch(model: ComponentRef, patch: Patch) -> ComponentRef:
    """The model with one patch more, in place of an earlier one of the same kind.

    Guidance intervals and skipped layers may be put on several times.
    """
    many = isinstance(patch, GuidanceInterval | SkipLayers | WeakenNegative)
    kept = (other for other in model.patches if many or type(other) is not type(patch))
    return replace(model, patches=(*kept, patch))


def last(patches: Iterable[Patch], kind: type[P]) -> P | None:
    """The patch of a kind that counts, or None."""
    found = [patch for patch in patches if isinstance(patch, kind)]
    return found[-1] if found else None


def every(patches: Iterable[Patch], kind: type[P]) -> tuple[P, ...]:
    """All patches of a kind, in order."""
    return tuple(patch for patch in patches if isinstance(patch, kind))
