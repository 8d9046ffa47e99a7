"""What FLUX.1 is, without torch: its latent space, its schedule, its variants' defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from inline_core.devices.budget import Workload
from inline_core.devices.split import SplitTraits
from inline_core.errors import InvalidParam
from inline_core.families.autoencoders.kl_spaces import FLUX
from inline_core.families.flux1.references import as_control, as_reference
from inline_core.families.published import clip_l, flux_vae, one_file, t5_xxl, weights
from inline_core.loading.component import Role
from inline_core.loading.rules import EncoderNeed, FamilyRules
from inline_core.sampling.family import ModelFamily, PassSize, ScheduleFor
from inline_core.sampling.footprint import picture_workload
from inline_core.sampling.job import SampleJob
from inline_core.sampling.offer import Offer, Told
from inline_core.sampling.sigmas.tables import FlowTable, flux_mu, flux_table, size_for

DEV: Final = "dev"
SCHNELL: Final = "schnell"
FILL: Final = "fill"
CONTROL: Final = "control"
# Shapes do not tell these from dev: who runs them says so.
KONTEXT: Final = "kontext"
KREA: Final = "krea"


def _defaults(steps: int, guidance: float | None) -> dict[str, Any]:
    """Params of a variant; guidance None is for models that do not take it as an input."""
    usual = {"width": 1024, "height": 1024, "steps": steps, "cfg": 1.0}
    return usual if guidance is None else {**usual, "guidance": guidance}


_CLIP: Final = EncoderNeed("clip", "l", size_of="pooled_projection_dim")
_T5: Final = EncoderNeed("t5", size_of="joint_attention_dim")
RULES: Final = FamilyRules(
    name="flux-1",
    label="FLUX.1",
    vae_family="autoencoder-kl",
    latent_channels=FLUX.channels,
    vae_words=FLUX.words,
    text_encoders=(_CLIP, _T5),
    model_channels="",
    # Of the pipelines and of the cards of the models.
    defaults=MappingProxyType(
        {
            DEV: _defaults(28, 3.5),
            SCHNELL: _defaults(4, None),
            KREA: _defaults(28, 4.5),
            KONTEXT: _defaults(28, 2.5),
            FILL: _defaults(50, 30.0),
            CONTROL: _defaults(30, 10.0),
        }
    ),
    requirements=(
        weights(
            Role.DIFFUSION_MODEL,
            one_file("Comfy-Org/flux1-schnell", "flux1-schnell.safetensors"),
            23_780_000_000,
            of="schnell",
        ),
        flux_vae(),
        *clip_l(_CLIP),
        *t5_xxl(_T5, 2),
    ),
)

PATCH_PIXELS: Final = 16  # latent factor 8, patches of 2
TEXT_TOKENS: Final = 512
T5_LAYERS: Final = 24
_CONTROL_BLOCKS: Final = 15  # the most of published ones


def table(wanted: ScheduleFor) -> FlowTable:
    """FLUX.1's sigmas: mu grows with the picture; schnell's are not shifted."""
    size = size_for(wanted.steps)
    if wanted.variant == SCHNELL:
        return FlowTable(1.0, size=size)
    return flux_table(flux_mu(wanted.width, wanted.height), size)


def workload(size: PassSize) -> Workload:
    """Picture and text tokens go through the same blocks; the text always has its full length."""
    geometry = size.geometry
    tokens = (size.width // PATCH_PIXELS) * (size.height // PATCH_PIXELS) + TEXT_TOKENS
    if geometry["in_channels"] == geometry["out_channels"]:  # else references are channels
        tokens += size.reference_pixels // PATCH_PIXELS**2
    width = geometry["num_attention_heads"] * geometry["attention_head_dim"]
    work = picture_workload(
        tokens=tokens * size.members,
        width=width,
        ffn_width=4 * width,
        text=(TEXT_TOKENS, geometry["joint_attention_dim"], T5_LAYERS),
        size=(size.width, size.height),
        channels=size.decoder_channels,
    )
    if not size.controls:
        return work
    # What ControlNets add, a part for each of their blocks, held as it is made and as a sum.
    added = (size.controls + 1) * tokens * size.members * width * _CONTROL_BLOCKS
    return replace(work, denoise_values=work.denoise_values + added)


def check(job: SampleJob, _: Mapping[str, int]) -> None:
    """Raise InvalidParam if the pictures beside the prompt are none that the variant takes."""
    variant, references = job.model.variant, job.positive.references
    masked = [latent for latent in references if latent.mask is not None]
    if variant == FILL and (len(references), len(masked)) != (1, 1):
        message = (
            f"{job.model.name} is FLUX.1 Fill, which fills the masked part of one picture: give it "
            "both with Fill Conditioning"
        )
        raise InvalidParam(message, port="positive")
    if variant == CONTROL and (len(references), len(masked)) != (1, 0):
        message = (
            f"{job.model.name} is FLUX.1 Depth or Canny, which follows one picture of depth or of "
            "edges: give it that one as a reference image"
        )
        raise InvalidParam(message, port="positive")
    if variant not in {FILL, CONTROL} and masked:
        message = (
            f"{job.model.name} is FLUX.1 {variant}, which does not fill pictures: use FLUX.1 Fill, "
            "or a noise mask on the latent"
        )
        raise InvalidParam(message, port="positive")
    if len(references) > 1:
        message = (
            f"{len(references)} reference images are given; FLUX.1 Kontext looks at one: put them "
            "side by side into one picture"
        )
        raise InvalidParam(message, port="positive")
    sizes = {(latent.width, latent.height) for latent in references}
    if variant in {FILL, CONTROL} and sizes != {(job.latent.width, job.latent.height)}:
        width, height = next(iter(sizes))
        message = (
            f"the picture beside the prompt is {width}x{height} and the latent "
            f"{job.latent.width}x{job.latent.height}: FLUX.1 {variant} needs them in one size"
        )
        raise InvalidParam(message, port="latent")


FLUX_1: Final = ModelFamily(
    rules=RULES,
    space=FLUX,
    table=table,
    size_multiple=PATCH_PIXELS,
    runtime="inline_core.families.flux1.components",
    workload=workload,
    guidance_input="guidance_embeds",
    looks_at_references=True,
    check=check,
    prompts_by_variant=True,
    controlled=True,
    control_latents=True,
    splits=SplitTraits(
        xdit=frozenset({"ulysses", "ring", "pipefusion"}),
        diffusers=frozenset({"ulysses", "ring"}),
        few_steps=frozenset({SCHNELL}),
    ),
    offers=(
        Offer(
            "black-forest-labs/flux-1",
            "FLUX.1",
            takes=("image", "mask"),
            variants=(DEV, SCHNELL),
            told=(Told(KREA, "Krea", DEV),),
            guidance="input",
        ),
        Offer(
            "black-forest-labs/flux-1-kontext",
            "FLUX.1 Kontext",
            takes=("references",),
            variants=(DEV,),
            assumed=KONTEXT,
            guidance="input",
            references=1,
            reference=as_reference,
        ),
        Offer(
            "black-forest-labs/flux-1-fill",
            "FLUX.1 Fill",
            takes=("inpaint",),
            variants=(FILL,),
            guidance="input",
        ),
        Offer(
            "black-forest-labs/flux-1-control",
            "FLUX.1 Depth / Canny",
            takes=("references",),
            variants=(CONTROL,),
            guidance="input",
            references=1,
            reference=as_control,
        ),
    ),
)
FAMILIES: Final = (FLUX_1,)
