"""All model families, and the models folder that knows them.  Never imports torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Final

from inline_core.errors import ModelFileInvalid
from inline_core.families.flux2.family import FLUX_2
from inline_core.families.z_image.family import Z_IMAGE
from inline_core.loading.catalog import Catalog
from inline_core.loading.component import ComponentRef, Role
from inline_core.loading.scan import ModelRoot
from inline_core.sampling.family import ModelFamily
from inline_core.sampling.job import SampleJob
from inline_core.sampling.patches import FluxShift, Shift
from inline_core.sampling.sigmas.schedules import steps_laid_out
from inline_core.sampling.sigmas.tables import FlowTable, SigmaTable, flux_mu, flux_table
from inline_core.settings import Settings

FAMILIES: Final[Mapping[str, ModelFamily]] = MappingProxyType(
    {family.name: family for family in (Z_IMAGE, FLUX_2)}
)
# Component architectures that several families share, and the modules that load them.
TEXT_ENCODERS: Final[Mapping[str, str]] = MappingProxyType(
    {"qwen3": "inline_core.families.text_encoders.qwen3"}
)
AUTOENCODERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "autoencoder-kl": "inline_core.families.autoencoders.kl",
        "autoencoder-kl-flux-2": "inline_core.families.autoencoders.kl_flux2",
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
    family = family or family_of(job.model)
    width, height = job.latent.width, job.latent.height
    steps = steps_laid_out(job.steps, job.denoise)
    return table_for(job.model, family, (width, height), steps)


def table_for(
    model: ComponentRef, family: ModelFamily, size: tuple[int, int], steps: int
) -> SigmaTable:
    """The sigmas of a model for a picture of a size; a shift counts for flow models only.

    `steps` are those of the whole schedule, from pure noise (see `steps_laid_out`).
    """
    width, height = size
    table = family.table(width, height, steps)
    shifts = [patch for patch in model.patches if isinstance(patch, Shift | FluxShift)]
    if not shifts or not table.flow:
        return table
    wanted = shifts[-1]
    if isinstance(wanted, Shift):
        return FlowTable(wanted.shift)
    return flux_table(flux_mu(width, height, wanted.base_shift, wanted.max_shift))


def family_reading(encoder: ComponentRef) -> ModelFamily | None:
    """The family that reads prompts of this text encoder, or None."""
    matches = (f for f in FAMILIES.values() if f.rules.text_encoder_family == encoder.family)
    return next(matches, None)


def family_decoding(vae: ComponentRef, space: str | None = None) -> ModelFamily:
    """A family that uses this VAE (and latents of `space`).  Raises: ModelFileInvalid."""
    for family in FAMILIES.values():
        if family.rules.vae_family == vae.family and space in {None, family.space.name}:
            return family
    message = f"the VAE {vae.name} ({vae.family}) does not read latents of space {space}"
    raise ModelFileInvalid(message)


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
