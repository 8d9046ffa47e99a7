"""A loaded diffusion model as one job sees it: with its own adapters, whatever others use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from inline_core.loading.deltas import AdapterSwitch, LoadedAdapter
from inline_core.sampling.family import Denoiser

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class SharedDenoiser:
    """What the pool holds: the denoiser and the switch of its adapters.  Device thread only."""

    denoiser: Any
    switch: AdapterSwitch

    @classmethod
    def around(cls, denoiser: Any) -> SharedDenoiser:
        """Wrap a denoiser that has its network as `module`."""
        return cls(denoiser, AdapterSwitch(denoiser.module))


@dataclass(frozen=True, slots=True, eq=False)
class AdaptedDenoiser:
    """Implements `Denoiser`: switches its adapters on before each pass."""

    shared: SharedDenoiser
    adapters: Sequence[tuple[LoadedAdapter, float]]

    def predict(self, latents: Tensor, sigmas: Tensor, conditioning: Sequence[Any]) -> Tensor:
        """See `Denoiser.predict`."""
        self.shared.switch.use(self.adapters)
        denoiser: Denoiser = self.shared.denoiser
        return denoiser.predict(latents, sigmas, conditioning)
