"""What the models folder must know about a family to pick and match its pieces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from inline_core.loading.component import Role

CATEGORIES: Final = (
    "diffusion_models",
    "checkpoints",
    "vae",
    "text_encoders",
    "loras",
    "clip_vision",
    "controlnet",
    "upscale_models",
    "latent_upscale_models",
    "model_patches",
    "embeddings",
    "annotators",
    "characters",
)
CATEGORY_ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {"unet": "diffusion_models", "clip": "text_encoders"}
)
CATEGORIES_OF_ROLE: Final[Mapping[Role, tuple[str, ...]]] = MappingProxyType(
    {
        Role.DIFFUSION_MODEL: ("diffusion_models", "checkpoints"),
        Role.VAE: ("vae",),
        Role.AUDIO_VAE: ("vae",),
        Role.VOCODER: ("vae",),
        Role.VIDEO_DECODER: ("vae",),
        Role.TEXT_ENCODER: ("text_encoders",),
        Role.LORA: ("loras",),
        Role.CONTROLNET: ("controlnet", "model_patches"),
        Role.MODEL_PATCH: ("model_patches", "controlnet"),
        Role.CHECKPOINT: ("checkpoints",),
        Role.CLIP_VISION: ("clip_vision",),
        Role.UPSCALER: ("upscale_models",),
        Role.LATENT_UPSCALER: ("latent_upscale_models",),
    }
)
ROLE_IN_WORDS: Final[Mapping[Role, str]] = MappingProxyType(
    {
        Role.DIFFUSION_MODEL: "a diffusion model",
        Role.VAE: "a VAE",
        Role.AUDIO_VAE: "an audio VAE",
        Role.VOCODER: "a vocoder",
        Role.VIDEO_DECODER: "a video decoder",
        Role.TEXT_ENCODER: "a text encoder",
        Role.LORA: "a LoRA",
        Role.CONTROLNET: "a ControlNet",
        Role.MODEL_PATCH: "a model patch",
        Role.CHECKPOINT: "a checkpoint",
        Role.CLIP_VISION: "a CLIP vision model",
        Role.UPSCALER: "an upscaler",
        Role.LATENT_UPSCALER: "a latent upscaler",
        Role.UNKNOWN: "a model",
    }
)


# They lie beside what a picker offers, but no picker asks for them.
_PARTS_OF_MODELS: Final = frozenset({Role.AUDIO_VAE, Role.VOCODER, Role.VIDEO_DECODER})


def roles_of(category: str) -> frozenset[Role] | None:
    """The roles that may be offered in a category; None for categories that nobody identifies."""
    roles = frozenset(
        role
        for role, categories in CATEGORIES_OF_ROLE.items()
        if category in categories and role not in _PARTS_OF_MODELS
    )
    known = roles & {Role.DIFFUSION_MODEL, Role.VAE, Role.TEXT_ENCODER, Role.LORA}
    return roles if known else None


@dataclass(frozen=True, slots=True)
class EncoderNeed:
    """One text encoder that a family reads its prompts with.

    `family` is its architecture; `variant` the one of several that is meant, where shapes tell
    (`l` and `g` of CLIP).  `size_of` names the size of the diffusion model that its hidden size
    must equal ("": none).  An `optional` one may be absent.
    """

    family: str
    variant: str = ""
    size_of: str = "cap_feat_dim"
    optional: bool = False


@dataclass(frozen=True, slots=True)
class RequiredFile:
    """One public file of a model hub and the name it gets, relative to its category's folder."""

    repo: str
    file: str
    name: str
    revision: str = "main"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One thing a family needs in the models folder, and where it is published.

    `role` is what the file is for; None means the tokenizer of the text encoder.  `encoder` says
    which of several text encoders is meant (None: there is one), `variant` that it is the diffusion
    model of that variant ("": any will do).  The first of `files` names it:
    more of them must share its folder.  `size_bytes` is about what all files
    weigh together; the exact number is known only when they are fetched.
    """

    id: str
    label: str
    category: str
    role: Role | None
    files: tuple[RequiredFile, ...]
    size_bytes: int
    optional: bool = False
    encoder: EncoderNeed | None = None
    variant: str = ""

    @property
    def local_path(self) -> str:
        """`<category>/<file>`, or `<category>/<folder>` where it is more than one file."""
        name = self.files[0].name
        return f"{self.category}/{name if len(self.files) == 1 else name.rpartition('/')[0]}"


Sizes = Mapping[str, int]


def _always_fit(_: Sizes, __: Sequence[Sizes]) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class FamilyRules:
    """How the pieces of one family are recognised, matched and overridden.

    `vae_family` and `latent_channels` say which VAEs fit, `vae_words` by which words in their names
    one of several is preferred (see `vae_choice`); `model_channels` names the size of the
    diffusion model that the channels of its VAE must equal ("": none).  `text_encoders` are what
    prompts are read with, in the order the family wants them (`encoders_of_variant`: those of
    variants that read them with others instead); `encoders_fit` says from the sizes of
    the diffusion model and of all of them whether they belong together.  `parts` names the
    architectures of further components, by role.  `defaults` gives the params of each variant;
    `settings_fields` the setting that names a file, by role; `requirements` says what its generate
    nodes need and where that can be downloaded.
    """

    name: str
    label: str
    vae_family: str
    latent_channels: int
    text_encoders: tuple[EncoderNeed, ...]
    model_channels: str = "in_channels"
    vae_words: tuple[str, ...] = ()
    encoders_of_variant: Mapping[str, tuple[EncoderNeed, ...]] = field(default_factory=dict)
    encoders_fit: Callable[[Sizes, Sequence[Sizes]], bool] = _always_fit
    parts: Mapping[Role, str] = field(default_factory=dict)
    defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    settings_fields: Mapping[Role, str] = field(default_factory=dict)
    requirements: tuple[Requirement, ...] = ()

    def encoders_for(self, variant: str) -> tuple[EncoderNeed, ...]:
        """What the prompts of a variant are read with, in order."""
        return self.encoders_of_variant.get(variant, self.text_encoders)

    @property
    def all_encoders(self) -> tuple[EncoderNeed, ...]:
        """What any variant reads its prompts with."""
        others = (need for needs in self.encoders_of_variant.values() for need in needs)
        return tuple(dict.fromkeys((*self.text_encoders, *others)))

    @property
    def sound_parts(self) -> tuple[Role, ...]:
        """The roles of the parts that make the sound of videos, in the order they are used."""
        return tuple(role for role in (Role.AUDIO_VAE, Role.VOCODER) if role in self.parts)

    @property
    def vae_parts(self) -> tuple[Role, ...]:
        """The roles of all parts that go with a VAE: for sound, and to decode instead of it."""
        return tuple(role for role in (*self.sound_parts, Role.VIDEO_DECODER) if role in self.parts)
