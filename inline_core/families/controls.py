"""ControlNets beside a diffusion model: checked, leased, and put into the prompts they belong to.

A family that takes them has `load_control(plan)` in its runtime; its denoiser finds those of each
row as `controls` of the encoded prompt.  Lives on the device thread; never imports torch itself.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from inline_core.devices.placement import Placement
from inline_core.errors import InvalidParam
from inline_core.families.leasing import Leasing
from inline_core.loading.component import ComponentRef
from inline_core.sampling.family import ModelFamily
from inline_core.sampling.job import SampleJob
from inline_core.sampling.sigmas.tables import SigmaTable
from inline_core.sampling.values import Conditioning, Control

if TYPE_CHECKING:
    from torch import Tensor

Put = Callable[[Any, Conditioning | None], Any]
_WIDTH = "cross_attention_dim"


@dataclass(frozen=True, slots=True, eq=False)
class LoadedControl:
    """A leased ControlNet and what it looks at: `hint` (3, height, width) in 0..1 on the device.

    It counts from sigma `upper` (included) down to `lower` (not included).
    """

    network: Any
    hint: Tensor
    strength: float
    upper: float
    lower: float

    def counts_at(self, sigma: float) -> bool:
        """False outside of its share of the sampling, where it need not be run."""
        return self.strength != 0 and self.lower < sigma <= self.upper


class ControlNets:
    """Loads ControlNets for jobs."""

    def __init__(self, leasing: Leasing) -> None:
        self._leasing = leasing

    def check(self, job: SampleJob, family: ModelFamily) -> None:
        """Raise InvalidParam for ControlNets that the model of a job cannot use."""
        for reference in job.controls:
            if not family.controlled:
                message = (
                    f"{family.rules.label} takes no ControlNet in this release: leave "
                    f"{reference.name} out"
                )
                raise InvalidParam(message, port="positive")
            needs = self._leasing.opened.open(job.model).identity.geometry.get(_WIDTH)
            has = self._leasing.opened.open(reference).identity.geometry.get(_WIDTH)
            if reference.family != family.name or (needs and has and needs != has):
                what = self._leasing.opened.open(reference).identity.in_words()
                message = (
                    f"{reference.name} is {what}; {job.model.name} ({family.rules.label}) needs a "
                    "ControlNet that was made for it"
                )
                raise InvalidParam(message, port="positive")

    def start(
        self,
        job: SampleJob,
        family: ModelFamily,
        placement: Placement,
        table: SigmaTable,
        check: Callable[[], None],
    ) -> tuple[Put, Callable[[], None]]:
        """What puts the ControlNets of a conditioning into its encoded prompt; and how to end.

        Raises: ModelFileInvalid, ModelFileMissing, OutOfMemory, RunCancelled.
        """
        place = Placement(placement.device, placement.dtype)
        runtime = importlib.import_module(family.runtime)
        networks: dict[ComponentRef, Any] = {}
        hints: dict[int, Tensor] = {}
        with contextlib.ExitStack() as leases:
            for reference in job.controls:
                plan = self._leasing.plan(reference, place, check)
                lease = self._leasing.lease(reference, plan, runtime.load_control)
                networks[reference] = leases.enter_context(lease)

            def put(encoded: Any, conditioning: Conditioning | None) -> Any:
                if encoded is None or conditioning is None or not conditioning.controls:
                    return encoded
                loaded = []
                for control in conditioning.controls:
                    if id(control) not in hints:
                        hints[id(control)] = _hint(control, job, place.device)
                    hint = hints[id(control)]
                    loaded.append(_loaded(control, networks, hint, table))
                return replace(encoded, controls=tuple(loaded))

            return put, leases.pop_all().close


def _loaded(
    control: Control, networks: Mapping[ComponentRef, Any], hint: Tensor, table: SigmaTable
) -> LoadedControl:
    upper, lower = table.sigma_at(control.start_percent), table.sigma_at(control.end_percent)
    return LoadedControl(networks[control.model], hint, control.strength, upper, lower)


def _hint(control: Control, job: SampleJob, device: str) -> Tensor:
    """The picture a ControlNet looks at, in the size of the picture that is made."""
    import torch
    from torch.nn import functional

    pixels = torch.from_numpy(control.image.pixels[:, :, :3].copy())  # (height, width, 3)
    hint = pixels.to(torch.float32).permute(2, 0, 1)[None] / 255.0  # (1, 3, height, width)
    size = (job.latent.height, job.latent.width)
    if tuple(hint.shape[-2:]) != size:
        hint = functional.interpolate(hint, size=size, mode="bilinear", antialias=True)
    return hint[0].to(device)
