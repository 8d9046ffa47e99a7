"""Adaptive projected guidance: only what stands across the positive estimate, with momentum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.sampling.patches import ProjectGuidance

_TIME: Final = -1  # axis of the latent frames of a sound
_TINY: Final = 1e-12


class ProjectedGuidance:
    """The guidance of one job, which remembers the differences of its earlier steps.

    Sadat et al. 2024 (arXiv:2410.02416), for the velocities of a flow model with lengths taken over
    time, as AceStepPipeline guides.
    """

    def __init__(self, patch: ProjectGuidance) -> None:
        self._patch = patch
        self._running: Tensor | None = None

    def combine(
        self, positive: Tensor, negative: Tensor, latents: Tensor, sigma: float, scale: float
    ) -> Tensor:
        """The guided estimate of the clean latents, all shaped (sounds, channels, frames)."""
        patch = self._patch
        velocity = (latents - positive) / sigma  # (sounds, channels, frames)
        change = (negative - positive) / sigma  # (sounds, channels, frames)
        if self._running is not None:
            change = change + patch.momentum * self._running
        self._running = change
        length = change.norm(dim=_TIME, keepdim=True).clamp_min(_TINY)
        change = change * (patch.threshold / length).clamp(max=1.0)
        # Double, as nearly all of a difference may lie along.
        across, along = change.double(), velocity.double()
        along = along / along.norm(dim=_TIME, keepdim=True).clamp_min(_TINY)
        across = across - (across * along).sum(dim=_TIME, keepdim=True) * along
        guided = velocity + (scale - 1.0) * across.to(velocity.dtype)
        clean: Tensor = latents - sigma * guided  # (sounds, channels, frames)
        return clean
