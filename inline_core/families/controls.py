"""ControlNets beside a diffusion model: checked, leased, and put into the prompts they belong to.

A family that takes them has `load_control(plan)` in its runtime; its denoiser finds those of each
row as `controls` of the encoded prompt, and hands them modules of its own where they share some.
What they look at is a picture, or its latents (`ModelFamily.control_latents`).  Lives on the device
thread; never imports torch itself.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from inline_core.devices.placement import Placement
from inline_core.errors import InvalidParam
from inline_core.families.autoencoding import Autoencoders
from inline_core.families.leasing import Check, Leasing
from inline_core.loading.catalog import Catalog
from inline_core.loading.component import ComponentRef, Role
from inline_core.sampling.family import ModelFamily
from inline_core.sampling.job import SampleJob
from inline_core.sampling.sigmas.tables import SigmaTable
from inline_core.sampling.values import Conditioning, Control

if TYPE_CHECKING:
    from torch import Tensor

Put = Callable[[Any, Conditioning | None], Any]
# Sizes that a ControlNet must share with the model it is for, where both tell them.
_SIZES: Final = ("cross_attention_dim", "dim", "joint_attention_dim")
# Constructor arguments of those that are shown a mask.
_MASK_CHANNELS: Final = ("extra_condition_channels",)
_HALF: Final = 127.5  # of a mask


@dataclass(frozen=True, slots=True, eq=False)
class LoadedControl:
    """A leased ControlNet and what it looks at, on the device of the model.

    `hint` is a picture (3, height, width) in 0..1, or its normalised latents (channels, ...).  It
    counts from sigma `upper` (included) down to `lower` (not included).
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

    def __init__(self, leasing: Leasing, autoencoders: Autoencoders, catalog: Catalog) -> None:
        self._leasing = leasing
        self._autoencoders = autoencoders
        self._catalog = catalog

    def check(self, job: SampleJob, family: ModelFamily) -> None:
        """Raise InvalidParam for ControlNets that the model of a job cannot use."""
        for reference in job.controls:
            if not family.controlled:
                message = (
                    f"{family.rules.label} takes no ControlNet in this release: leave "
                    f"{reference.name} out"
                )
                raise InvalidParam(message, port="positive")
            needs = self._leasing.opened.open(job.model).identity.geometry
            found = self._leasing.opened.open(reference).identity
            sizes = [(needs.get(size), found.geometry.get(size)) for size in _SIZES]
            other = any(wanted and has and wanted != has for wanted, has in sizes)
            if reference.family != family.name or other:
                message = (
                    f"{reference.name} is {found.in_words()}; {job.model.name} "
                    f"({family.rules.label}) needs a ControlNet that was made for it"
                )
                raise InvalidParam(message, port="positive")
        for control in _controls_of(job):
            _check_mask(control, self._leasing.opened.open(control.model).identity.config)

    def start(
        self,
        job: SampleJob,
        family: ModelFamily,
        placement: Placement,
        table: SigmaTable,
        check: Check,
    ) -> tuple[Put, Callable[[], None]]:
        """What puts the ControlNets of a conditioning into its encoded prompt; and how to end.

        Raises: InvalidParam, ModelFileInvalid, ModelFileMissing, OutOfMemory, RunCancelled.
        """
        runtime = importlib.import_module(family.runtime)
        networks: dict[ComponentRef, Any] = {}
        # First, so that a VAE that is needed for them may leave again.
        hints = {
            id(control): self._hint(control, job, family, check).to(placement.device)
            for control in _controls_of(job)
        }
        with contextlib.ExitStack() as leases:
            for reference in job.controls:
                place = self._place(reference, placement)
                plan = self._leasing.plan(reference, place, check)
                lease = self._leasing.lease(reference, plan, runtime.load_control)
                networks[reference] = leases.enter_context(lease)

            def put(encoded: Any, conditioning: Conditioning | None) -> Any:
                if encoded is None or conditioning is None or not conditioning.controls:
                    return encoded
                loaded = [
                    _loaded(control, networks, hints[id(control)], table)
                    for control in conditioning.controls
                ]
                return replace(encoded, controls=tuple(loaded))

            return put, leases.pop_all().close

    def _place(self, reference: ComponentRef, placement: Placement) -> Placement:
        """Where the model goes, as the plan counts both as one."""
        packed = self._leasing.opened.open(reference).weights.packed_bytes
        if placement.quantization == "packed" and not packed:
            placement = replace(placement, quantization="none")
        return replace(placement, attention="native", parallel="", reason="")

    def _hint(self, control: Control, job: SampleJob, family: ModelFamily, check: Check) -> Tensor:
        """The picture a ControlNet looks at in the size of the one that is made, or its latents.

        Raises: InvalidParam for a VAE of another family.
        """
        pixels = _pixels(control, job)  # (3, height, width)
        if not family.control_latents:
            return pixels
        vae = control.vae or self._catalog.companion(Role.VAE, job.model)
        picture = pixels.permute(1, 2, 0).contiguous().numpy()  # (height, width, 3)
        encoded = self._autoencoders.encode(vae, picture, check, tiled=False)
        space = family.space
        wanted = space.name if encoded.normalised else family.rules.vae_family
        samples = encoded.samples[0]  # (channels, ...)
        if encoded.space not in {None, wanted} or samples.shape[0] != space.channels:
            message = (
                f"the VAE {vae.name} does not encode to the latents of {family.rules.label} "
                f"({space.name}), which {control.model.name} looks at: wire the VAE of the model"
            )
            raise InvalidParam(message, port="positive")
        hint = samples if encoded.normalised else space.normalised(samples)
        return hint if control.mask is None else _with_kept(hint, control)


def _controls_of(job: SampleJob) -> Iterator[Control]:
    """The ControlNets of all prompts of a job, each once."""
    yield from {id(control): control for item in job.prompts for control in item.controls}.values()


def _loaded(
    control: Control, networks: Mapping[ComponentRef, Any], hint: Tensor, table: SigmaTable
) -> LoadedControl:
    upper, lower = table.sigma_at(control.start_percent), table.sigma_at(control.end_percent)
    return LoadedControl(networks[control.model], hint, control.strength, upper, lower)


def _check_mask(control: Control, config: Mapping[str, Any]) -> None:
    """Raise InvalidParam where a ControlNet for inpainting has no mask, or another has one."""
    wanted = any(config.get(name) for name in _MASK_CHANNELS)
    if wanted and control.mask is None:
        message = (
            f"{control.model.name} is a ControlNet for inpainting: wire a mask beside its image"
        )
        raise InvalidParam(message, port="positive")
    if not wanted and control.mask is not None:
        message = (
            f"{control.model.name} takes no mask: leave it out, or take a ControlNet for inpainting"
        )
        raise InvalidParam(message, port="positive")


def _with_kept(hint: Tensor, control: Control) -> Tensor:
    """Latents (channels, ..., h, w) and, behind them, 1 where the picture stays and 0 elsewhere."""
    import torch
    from torch.nn import functional

    anew = torch.from_numpy(control.mask.copy())[None, None].to(torch.float32) / 255.0
    anew = functional.interpolate(anew, size=hint.shape[-2:])  # (1, 1, h, w)
    kept = (1.0 - anew).to(hint).view(1, *(1 for _ in hint.shape[1:-2]), *hint.shape[-2:])
    return torch.cat([hint, kept])  # (channels + 1, ..., h, w)


def _pixels(control: Control, job: SampleJob) -> Tensor:
    """The picture (3, height, width) in 0..1 in the size of the one that is made.

    It is black where a ControlNet for inpainting makes it anew.
    """
    import torch
    from torch.nn import functional

    pixels = torch.from_numpy(control.image.pixels[:, :, :3].copy())  # (height, width, 3)
    hint = pixels.to(torch.float32).permute(2, 0, 1)[None] / 255.0  # (1, 3, height, width)
    size = (job.latent.height, job.latent.width)
    if tuple(hint.shape[-2:]) != size:
        hint = functional.interpolate(hint, size=size, mode="bilinear", antialias=True)
    if control.mask is not None:
        anew = torch.from_numpy(control.mask.copy())[None, None].to(torch.float32)
        anew = functional.interpolate(anew, size=size, mode="bilinear", antialias=True)
        hint = hint * (anew <= _HALF)  # (1, 3, height, width)
    return hint[0]
