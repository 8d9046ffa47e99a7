"""A loaded diffusion model as one job sees it: with its own adapters, whatever others use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from inline_core.errors import InvalidParam
from inline_core.families.attending import attending
from inline_core.families.blocks import BlockControl
from inline_core.families.compiling import CompiledBlocks
from inline_core.families.denoiser import NetworkDenoiser
from inline_core.loading.component import ComponentRef
from inline_core.loading.deltas import AdapterSwitch, LoadedAdapter
from inline_core.sampling.family import Denoiser, GuidedDenoiser, Row
from inline_core.sampling.patches import SkipLayers, StepCache, every

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class SharedDenoiser:
    """What the pool holds: the denoiser, the switch of its adapters, the control of its blocks.

    `attention` is the backend of its passes.  Device thread only.
    """

    denoiser: Any
    switch: AdapterSwitch
    control: BlockControl
    attention: str = "native"
    compiled: CompiledBlocks | None = None

    @classmethod
    def around(
        cls, denoiser: NetworkDenoiser, attention: str = "native", *, compiled: bool = False
    ) -> SharedDenoiser:
        """Wrap the denoiser of a family."""
        blocks, others = denoiser.blocks, denoiser.other_blocks
        # First compiled, then controlled: what the control decides is never part of the code.
        code = CompiledBlocks([*blocks, *others]) if compiled else None
        control = BlockControl(blocks, others, two_streams=denoiser.two_streams)
        return cls(denoiser, AdapterSwitch(denoiser.module), control, attention, code)

    def check_layers(self, model: ComponentRef) -> None:
        """Raise InvalidParam if layers shall be left out that the model does not have."""
        wanted = [patch for patch in model.patches if isinstance(patch, SkipLayers | StepCache)]
        if wanted and not self.control.count:
            message = (
                f"{model.name} has no blocks that can be left out or reused: take step cache and "
                "skip-layer guidance off"
            )
            raise InvalidParam(message, param="layers")
        for patch in every(model.patches, SkipLayers):
            unknown = [str(layer) for layer in patch.layers if layer >= self.control.count]
            if unknown:
                message = (
                    f"{model.name} has blocks 0 to {self.control.count - 1} that can be left out, "
                    f"not {', '.join(unknown)}"
                )
                raise InvalidParam(message, param="layers")

    @property
    def notes(self) -> tuple[str, ...]:
        """What a run should know about how its passes were made."""
        note = getattr(self.denoiser.module, "note", "")
        if self.compiled is None or not self.compiled.problem:
            return (note,) if note else ()
        return (f"The blocks were not compiled, but run as they are ({self.compiled.problem})",)


@dataclass(frozen=True, slots=True, eq=False)
class AdaptedDenoiser:
    """Implements `Denoiser` and `BatchDenoiser`: switches its adapters on before each pass."""

    shared: SharedDenoiser
    adapters: Sequence[tuple[LoadedAdapter, float]]

    @property
    def notes(self) -> tuple[str, ...]:
        """What a run should know about how its passes were made."""
        return self.shared.notes

    def predict(
        self,
        latents: Tensor,
        sigmas: Tensor,
        conditioning: Sequence[Any],
        guidance: Sequence[float | None] = (),
    ) -> Tensor:
        """See `Denoiser.predict`; `guidance` for each member, where the model takes it as input."""
        shared = self.shared
        shared.switch.use(self.adapters)
        if shared.compiled is not None:
            shared.compiled.active = not any(strength for _, strength in self.adapters)
        denoiser: Denoiser = shared.denoiser
        with attending(shared.attention):
            if any(value is not None for value in guidance):
                guided: GuidedDenoiser = shared.denoiser
                return guided.predict(latents, sigmas, conditioning, guidance)
            return denoiser.predict(latents, sigmas, conditioning)

    def estimate(
        self, latents: Tensor, sigmas: Tensor, rows: Sequence[Row], check: Callable[[], None]
    ) -> Tensor:
        """See `BatchDenoiser.estimate`."""
        with self.shared.control.passing(rows, check):
            encoded = [row.conditioning for row in rows]
            return self.predict(latents, sigmas, encoded, [row.guidance for row in rows])
