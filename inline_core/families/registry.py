"""All model families, and the models folder that knows them.  Never imports torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Final

from inline_core.discovery import submodules
from inline_core.errors import ModelFileInvalid
from inline_core.loading.catalog import Catalog
from inline_core.loading.component import ComponentRef, Role
from inline_core.loading.scan import ModelRoot
from inline_core.sampling.family import ModelFamily, ScheduleFor
from inline_core.sampling.job import SampleJob
from inline_core.sampling.patches import FluxShift, Shift
from inline_core.sampling.sigmas.schedules import steps_laid_out
from inline_core.sampling.sigmas.tables import FlowTable, SigmaTable, flux_mu, flux_table
from inline_core.settings import Settings


def _found() -> dict[str, ModelFamily]:
    """The families of all folders beside this file, by rank and then by name."""
    modules = submodules("inline_core.families", "family")
    found = [family for module in modules for family in module.FAMILIES]
    found.sort(key=lambda family: (family.rank, family.name))
    return {family.name: family for family in found}


FAMILIES: Final[Mapping[str, ModelFamily]] = MappingProxyType(_found())


def _own_modules(role: Role) -> dict[str, str]:
    """The modules that load what only one family has, by architecture."""
    return {
        architecture: module
        for family in FAMILIES.values()
        for (of, architecture), module in family.modules.items()
        if of is role
    }


# Component architectures that several families share, and the modules that load them.
TEXT_ENCODERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "qwen3": "inline_core.families.text_encoders.qwen3",
        "qwen2.5-vl": "inline_core.families.text_encoders.qwen2_5_vl",
        "qwen3-vl": "inline_core.families.text_encoders.qwen3_vl",
        "clip": "inline_core.families.text_encoders.clip",
        "t5": "inline_core.families.text_encoders.t5",
        "umt5": "inline_core.families.text_encoders.t5",
        "byt5": "inline_core.families.text_encoders.byt5",
        "gemma2": "inline_core.families.text_encoders.gemma2",
        "mistral3": "inline_core.families.text_encoders.mistral",
        "gemma3": "inline_core.families.text_encoders.gemma3",
        "gemma4": "inline_core.families.text_encoders.gemma4",
        **_own_modules(Role.TEXT_ENCODER),
    }
)
VISION_ENCODERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "clip-vision": "inline_core.families.vision_encoders.clip",
        "siglip-vision": "inline_core.families.vision_encoders.siglip",
    }
)
AUTOENCODERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "autoencoder-kl": "inline_core.families.autoencoders.kl",
        "autoencoder-kl-wan": "inline_core.families.autoencoders.wan",
        "autoencoder-kl-hunyuan-video-1.5": "inline_core.families.autoencoders.hunyuan15",
        "autoencoder-kl-flux-2": "inline_core.families.autoencoders.kl_flux2",
        "autoencoder-oobleck": "inline_core.families.autoencoders.oobleck",
        **_own_modules(Role.VAE),
        **_own_modules(Role.VIDEO_DECODER),
    }
)


# What makes the sound of videos, by architecture and role.
SOUND_PARTS: Final[Mapping[tuple[str, Role], str]] = MappingProxyType(
    {
        (architecture, role): module
        for family in FAMILIES.values()
        for (role, architecture), module in family.modules.items()
        if role in {Role.AUDIO_VAE, Role.VOCODER}
    }
)


def family_of(reference: ComponentRef) -> ModelFamily:
    """The family that runs a diffusion model.  Raises: ModelFileInvalid if there is none."""
    family = FAMILIES.get(reference.family)
    if family is None:
        known = ", ".join(item.rules.label for item in FAMILIES.values())
        message = f"{reference.name} is {reference.family}, which cannot be run here (only {known})"
        raise ModelFileInvalid(message)
    return family


def table_of(job: SampleJob, family: ModelFamily | None = None) -> SigmaTable:
    """The sigmas of a job's model, with its patches; for the job's picture and steps.

    Raises: ModelFileInvalid if no family runs the model.
    """
    latent = job.latent
    wanted = ScheduleFor(
        variant=job.model.variant,
        width=latent.width,
        height=latent.height,
        steps=steps_laid_out(job.steps, job.denoise),
        frames=latent.frames,
        keyframes=_keyframes(job),
    )
    return table_for(job.model, family or family_of(job.model), wanted)


def _keyframes(job: SampleJob) -> int:
    """How many pictures a video is held to beside its first frame: their masks keep another one."""
    masks = [latent.mask for latent in job.positive.references if latent.mask is not None]
    return sum(bool(mask[0].any()) for mask in masks)


def table_for(model: ComponentRef, family: ModelFamily, wanted: ScheduleFor) -> SigmaTable:
    """The sigmas of a model with its patches; a shift counts for flow models only."""
    table = family.table(wanted)
    shifts = [patch for patch in model.patches if isinstance(patch, Shift | FluxShift)]
    if not shifts or not table.flow:
        return table
    shift = shifts[-1]
    if isinstance(shift, Shift):
        return FlowTable(shift.shift)
    return flux_table(flux_mu(wanted.width, wanted.height, shift.base_shift, shift.max_shift))


def family_reading(encoder: ComponentRef) -> ModelFamily | None:
    """A family that reads prompts of this text encoder, or None."""
    for family in FAMILIES.values():
        if any(need.family == encoder.family for need in family.rules.all_encoders):
            return family
    return None


def family_decoding(
    vae: ComponentRef, space: str | None = None, channels: int | None = None
) -> ModelFamily:
    """A family that uses this VAE (and latents of `space`, or with so many `channels`).

    A video decoder that stands in for the decoder of a VAE is meant, too.  Latents that are not
    normalised have the architecture of their VAE as space.
    Raises: ModelFileInvalid.
    """
    for family in FAMILIES.values():
        known = space in {None, family.space.name, vae.family}
        fits = channels in {None, family.rules.latent_channels}
        decoder = family.rules.parts.get(Role.VIDEO_DECODER, "")
        if vae.family in {family.rules.vae_family, decoder} and known and fits:
            return family
    message = f"the VAE {vae.name} ({vae.family}) does not read latents of space {space}"
    raise ModelFileInvalid(message)


def space_with(
    vae: ComponentRef, scale: tuple[float, float], channels: int | None = None
) -> str | None:
    """The latent space that a VAE with its own (scaling, shift) encodes to; None: no known one."""
    for family in FAMILIES.values():
        space = family.space
        fits = channels in {None, family.rules.latent_channels}
        same = (space.scaling, space.shift) == scale
        if family.rules.vae_family == vae.family and fits and same:
            return space.name
    return None


def model_roots(settings: Settings) -> tuple[ModelRoot, ...]:
    """The models folders of the settings in order; the bundled demo comes last."""
    roots = [ModelRoot(settings.models_dir.absolute(), "models")]
    roots += [ModelRoot(path.absolute(), "extra") for path in settings.extra_models_dirs]
    demo = Path(str(files("inline_core"))) / "demo"
    if settings.demo_model and demo.is_dir():
        roots.append(ModelRoot(demo, "demo"))
    return tuple(roots)


def open_catalog(settings: Settings, roots: Sequence[Path] | None = None) -> Catalog:
    """The models folder as nodes see it, with the rules and overrides of every family.

    `roots` stands in for the folders of the settings.
    """
    overrides: dict[tuple[str, Role], tuple[str, str]] = {}
    for family in FAMILIES.values():
        for role, field in family.rules.settings_fields.items():
            value = getattr(settings, field)
            if value:
                overrides[family.name, role] = (f"INLINE_{field.upper()}", str(value))
    rules = {name: family.rules for name, family in FAMILIES.items()}
    folders = (
        model_roots(settings)
        if roots is None
        else tuple(ModelRoot(path.absolute(), "models") for path in roots)
    )
    return Catalog(folders, rules, overrides)
