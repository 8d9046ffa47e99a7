"""From references to what the device policy needs to know about them; never imports torch."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from inline_core.devices.budget import Demand, Weights
from inline_core.devices.ladder import Plan
from inline_core.devices.policy import DevicePolicy
from inline_core.devices.split import ModelFacts
from inline_core.errors import DoesNotFit, ModelFileInvalid
from inline_core.families.references import reference_pixels
from inline_core.loading.blocks import weights_of
from inline_core.loading.component import ComponentRef
from inline_core.loading.files import WeightFiles, open_weights
from inline_core.loading.header import size_in_words
from inline_core.loading.identify import FileIdentity, identify
from inline_core.loading.packing import logical_tensors
from inline_core.sampling.family import ModelFamily, PassSize
from inline_core.sampling.guidance import most_rows
from inline_core.sampling.job import SampleJob


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """The headers of a component, what it is, and its size."""

    files: WeightFiles
    identity: FileIdentity
    weights: Weights


class OpenedFiles:
    """Headers that were read, as long as their files stay the same.  Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[Path, str], Opened] = {}

    def open(self, reference: ComponentRef) -> Opened:
        """The headers behind a reference.

        Raises: ModelFileMissing, ModelFileInvalid, also when the file was replaced since.
        """
        place = (reference.path, reference.part)
        with self._lock:
            known = self._known.get(place)
        if known is None or known.files.stamp != reference.stamp or not _is_same(known.files):
            files = open_weights(reference.path, reference.name, reference.part)
            if files.stamp != reference.stamp:
                message = f"{reference.name} was replaced since the run was planned: run again"
                raise ModelFileInvalid(message)
            known = describe(files)
            with self._lock:
                self._known[place] = known
        return known

    def parts_of(self, job: SampleJob) -> dict[str, Opened]:
        """`model` and `text_encoder` of a job: experts and ControlNets as one, the largest encoder.

        Encoders are loaded one after the other, so that the largest one decides where they go.
        Raises: ModelFileMissing, ModelFileInvalid.
        """
        model = self.open(job.model)
        for other in job.model.others:
            model = replace(model, weights=model.weights.plus(self.open(other).weights))
        for control in job.controls:
            model = replace(model, weights=model.weights.plus(self.open(control).weights))
        encoders = [self.open(reference) for reference in job.positive.encoder.all]
        largest = max(encoders, key=lambda opened: opened.weights.values)
        return {"model": model, "text_encoder": largest}


def describe(files: WeightFiles) -> Opened:
    """Identify and measure the files of one component."""
    identity = identify(files.headers)
    logical = logical_tensors(files.headers)
    weights = weights_of(
        logical.tensors, identity.dtype, packed=bool(logical.packings), prefix=identity.prefix
    )
    return Opened(files, identity, weights)


def model_facts(reference: ComponentRef, identity: FileIdentity, family: ModelFamily) -> ModelFacts:
    """What of a diffusion model decides how its passes can be split; sizes from its header.

    Its variant is that of the reference, which may have been told by the user.
    """
    config = identity.config

    def first_of(*names: str) -> int:
        return next((int(config[name]) for name in names if config.get(name)), 0)

    return ModelFacts(
        label=reference.name,
        family=family.rules.label,
        variant=reference.variant,
        heads=first_of("num_attention_heads", "n_heads"),
        layers=first_of("num_layers", "n_layers") + first_of("num_single_layers"),
    )


def demand_of(
    family: ModelFamily,
    parts: Mapping[str, Opened],
    width: int,
    height: int,
    members: int,
    references: int = 0,
    frames: int = 1,
    controls: int = 0,
) -> Demand:
    """What one forward pass takes; `parts` has `model` and maybe `text_encoder` and `vae`.

    `references` are the pixels of all pictures that are looked at, `controls` counts ControlNets.
    """
    model = parts["model"]
    encoder, vae = parts.get("text_encoder"), parts.get("vae")
    channels = decoder_channels(vae) if vae else 256
    geometry = model.identity.geometry
    size = PassSize(geometry, width, height, members, channels, references, frames, controls)
    return Demand(
        model=model.weights,
        text_encoder=encoder.weights if encoder else None,
        vae=vae.weights if vae else None,
        work=family.workload(size),
    )


def plan_of_job(
    policy: DevicePolicy, family: ModelFamily, parts: Mapping[str, Opened], job: SampleJob
) -> Plan:
    """Where everything for a job goes, maybe nowhere.

    What does not fit with guidance in one pass is tried with its estimates one after the other.
    """
    plan = policy.plan(demand_of_job(family, parts, job))
    if plan.fits or most_rows(job) == 1:
        return plan
    apart = policy.plan(demand_of_job(family, parts, job, rows=1))
    if not apart.fits:
        return plan
    reason = "the estimates of guidance one after the other, as they do not fit together"
    return replace(apart, rows_apart=True, max_pictures=1, reasons=(*apart.reasons, reason))


def demand_of_job(
    family: ModelFamily, parts: Mapping[str, Opened], job: SampleJob, rows: int | None = None
) -> Demand:
    """What one forward pass of a job takes."""
    latent = job.latent
    pixels = reference_pixels(job)
    rows = rows or most_rows(job)
    size = (latent.width, latent.height)
    return demand_of(family, parts, *size, rows, pixels, latent.frames, len(job.controls))


def decoder_channels(vae: Opened) -> int:
    """Channels of a VAE's decoder at full resolution, which set the peak of a decode.

    Its last stage is entered with the width of the stage before (256 of 128, 256, 512, 512).
    """
    config = vae.identity.config
    if config.get("decoder_channels"):
        return int(config["decoder_channels"])  # of a decoder of sounds
    if config.get("decoder_stage_channels"):
        # Of a decoder with attention: its last stage works on patches, on twice as much at a time.
        stages = config["decoder_stage_channels"]
        return max(2 * int(stages[-1]) // int(config.get("patch_size") or 1) ** 2, 1)
    base = config.get("decoder_base_dim") or config.get("base_dim")
    if base:
        # The VAEs of Wan end with their narrowest stage, maybe at a fraction of the size.
        return max(2 * int(base) // int(config.get("patch_size") or 1) ** 2, 1)
    stages = config.get("block_out_channels") or (128, 256)
    return int(stages[min(1, len(stages) - 1)])


def does_not_fit(model: ComponentRef, size: tuple[int, int], plan: Plan) -> DoesNotFit:
    """The error of a plan without a rung: the numbers and what to do."""
    needs, has = plan.required_bytes, plan.capacity_bytes
    if plan.host_bytes > plan.host_capacity_bytes:
        needs, has = plan.host_bytes, plan.host_capacity_bytes
    message = (
        f"{model.name} at {size[0]}x{size[1]} needs {size_in_words(needs)}, "
        f"{size_in_words(has)} available, also as int8: make the picture smaller, use a smaller "
        "or pre-quantized model, or raise INLINE_VRAM_BUDGET if it is set"
    )
    return DoesNotFit(
        message,
        details={"neededBytes": needs, "availableBytes": has, "reasons": list(plan.reasons)},
    )


def _is_same(files: WeightFiles) -> bool:
    for header in files.headers:
        try:
            status = header.path.stat()
        except OSError:
            return False
        if (status.st_size, status.st_mtime_ns) != (header.size_bytes, header.mtime_ns):
            return False
    return True
