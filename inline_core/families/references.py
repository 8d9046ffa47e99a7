"""Pictures that a model looks at beside the prompt: checked, counted, and put into its inputs.

Never imports torch itself.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any

from inline_core.errors import InvalidParam
from inline_core.sampling.family import LatentSpace, ModelFamily, SoundtrackSpace
from inline_core.sampling.job import SampleJob
from inline_core.sampling.values import Latent


def check_references(job: SampleJob, family: ModelFamily) -> None:
    """Raise InvalidParam if the family cannot look at what the job refers to."""
    references = job.positive.references
    if references and not family.looks_at_references:
        message = f"{family.rules.label} does not look at reference images: leave them out"
        raise InvalidParam(message, port="positive")
    for latent in references:
        if latent.strength != 1.0 and not family.holds_loosely:
            message = f"{family.rules.label} holds given frames fully: leave their strength at 1"
            raise InvalidParam(message, port="positive")
        wanted = family.space.name if latent.normalised else family.rules.vae_family
        if latent.space not in {None, wanted, *family.space.alike}:
            message = (
                f"a reference image is in latent space {latent.space}; {family.rules.label} needs "
                f"{family.space.name}: encode it with the VAE of the model"
            )
            raise InvalidParam(message, port="positive")


def reference_pixels(job: SampleJob) -> int:
    """Pixels of all references of a job."""
    return sum(latent.width * latent.height for latent in job.positive.references)


def speed_suffix(job: SampleJob) -> str:
    """What references and ControlNets add to the kind of a forward pass."""
    pixels = reference_pixels(job)
    suffix = f" references{pixels}" if pixels else ""
    return f"{suffix} controls{len(job.controls)}" if job.controls else suffix


def with_references(family: ModelFamily, job: SampleJob, device: str, encoded: Any) -> Any:
    """An encoded prompt with the references of its job; without any it stays as it is.

    Where a latent is one row of values, the prompt also tells what sizes these stand for.
    """
    if encoded is None:
        return None
    references = job.positive.references
    runtime = importlib.import_module(family.runtime)
    if isinstance(family.space, SoundtrackSpace):
        encoded = runtime.laid_out(encoded, job.latent)
    if references:
        placed = [_for_model(latent, family.space, device) for latent in references]
        encoded = runtime.with_references(encoded, placed)
    return encoded


def _for_model(latent: Latent, space: LatentSpace, device: str) -> Latent:
    """The first picture of a latent, normalised, on the device of the model."""
    samples = latent.samples[:1].to(device)  # (1, c, ...)
    if not latent.normalised:
        samples = space.normalised(samples)
    return replace(latent, samples=samples, batch=1, space=space.name, normalised=True)
