"""Where the files of families are published; for their requirements.  Without torch.

Tokenizers are on their own: who has the weights under another name needs only those.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

from inline_core.loading.component import Role
from inline_core.loading.rules import (
    CATEGORIES_OF_ROLE,
    EncoderNeed,
    RequiredFile,
    Requirement,
)

_CLIP_TOKENIZER: Final = "openai/clip-vit-large-patch14"
_FLUX_ENCODERS: Final = "comfyanonymous/flux_text_encoders"
_ID_AND_LABEL: Final = MappingProxyType(
    {
        Role.DIFFUSION_MODEL: ("diffusion", "Diffusion model"),
        Role.VAE: ("vae", "VAE"),
        Role.TEXT_ENCODER: ("text_encoder", "Text encoder"),
        Role.CLIP_VISION: ("clip_vision", "Vision encoder"),
        Role.AUDIO_VAE: ("audio_vae", "Audio VAE"),
        Role.VOCODER: ("vocoder", "Vocoder"),
        Role.VIDEO_DECODER: ("video_decoder", "Video decoder"),
    }
)
_COMPONENT: Final = ("config.json", "diffusion_pytorch_model.safetensors")


def weights(
    role: Role,
    files: Sequence[RequiredFile],
    size_bytes: int,
    *,
    of: str = "",
    number: int = 1,
    encoder: EncoderNeed | None = None,
    category: str = "",
) -> Requirement:
    """The weights of a component; `of` says which ones they are, in words.

    `number` is that of a text encoder among those of its family, `encoder` what it is needed for.
    They go to the first category of their role unless one is given.
    """
    key, label = _ID_AND_LABEL[role]
    return Requirement(
        id=key if number == 1 else f"{key}_{number}",
        label=f"{label} ({of})" if of else label,
        category=category or CATEGORIES_OF_ROLE[role][0],
        role=role,
        files=tuple(files),
        size_bytes=size_bytes,
        optional=encoder is not None and encoder.optional,
        encoder=encoder,
    )


def one_file(repo: str, path: str) -> tuple[RequiredFile]:
    """A file that keeps its name, wherever it lies in its repository."""
    return (RequiredFile(repo, path, path.rpartition("/")[2]),)


def split_file(role: Role, repo: str, name: str) -> tuple[RequiredFile]:
    """A file of a repository in ComfyUI's layout."""
    return one_file(repo, f"split_files/{CATEGORIES_OF_ROLE[role][0]}/{name}")


def folder(
    repo: str, part: str, into: str, names: Sequence[str] = _COMPONENT
) -> tuple[RequiredFile, ...]:
    """A component of a repository in diffusers' layout, as the folder `into`."""
    return tuple(
        RequiredFile(repo, f"{part}/{name}" if part else name, f"{into}/{name}") for name in names
    )


def tokenizer(
    repo: str,
    stem: str,
    size_bytes: int,
    *,
    of: str = "",
    number: int = 1,
    encoder: EncoderNeed | None = None,
    part: str = "",
) -> Requirement:
    """The tokenizer of the text encoder `stem`, beside it; `part` is its folder in the repository.

    It goes to `<stem>.tokenizer` for a file and for a folder alike.
    """
    label = "Tokenizer of the text encoder"
    return Requirement(
        id="tokenizer" if number == 1 else f"tokenizer_{number}",
        label=f"{label} ({of})" if of else label,
        category=CATEGORIES_OF_ROLE[Role.TEXT_ENCODER][0],
        role=None,
        files=folder(repo, part, f"{stem}.tokenizer", ("tokenizer.json", "tokenizer_config.json")),
        size_bytes=size_bytes,
        optional=encoder is not None and encoder.optional,
        encoder=encoder,
    )


# ---- pieces that several families share --------------------------------------------------------


def flux_vae() -> Requirement:
    """The VAE of FLUX.1, which others have too."""
    file = split_file(Role.VAE, "Comfy-Org/z_image_turbo", "ae.safetensors")
    return weights(Role.VAE, file, 335_000_000)


def qwen_image_vae(repo: str) -> Requirement:
    """The VAE of Qwen-Image, as `repo` has it."""
    return weights(Role.VAE, split_file(Role.VAE, repo, "qwen_image_vae.safetensors"), 254_000_000)


def clip_l(need: EncoderNeed) -> tuple[Requirement, Requirement]:
    """CLIP-L and the tokenizer of all CLIPs."""
    file = one_file(_FLUX_ENCODERS, "clip_l.safetensors")
    return (
        weights(Role.TEXT_ENCODER, file, 246_000_000, of="CLIP-L", encoder=need),
        clip_tokenizer(need),
    )


def clip_tokenizer(need: EncoderNeed | None = None) -> Requirement:
    """The tokenizer of all CLIPs, which is in no checkpoint."""
    return tokenizer(_CLIP_TOKENIZER, "clip_l", 2_300_000, of="CLIP", encoder=need)


def clip_g(need: EncoderNeed) -> tuple[Requirement, ...]:
    """CLIP-G, which reads the same tokens as CLIP-L."""
    file = one_file("Comfy-Org/stable-diffusion-3.5-fp8", "text_encoders/clip_g.safetensors")
    return (weights(Role.TEXT_ENCODER, file, 1_390_000_000, of="CLIP-G", number=2, encoder=need),)


def t5_xxl(need: EncoderNeed, number: int) -> tuple[Requirement, Requirement]:
    """T5 1.1 XXL and its tokenizer; `number` of the text encoder among those of its family.

    The vocabulary of T5 1.1 is that of T5.
    """
    name, role = "t5xxl_fp16", Role.TEXT_ENCODER
    file = one_file(_FLUX_ENCODERS, f"{name}.safetensors")
    return (
        weights(role, file, 9_790_000_000, of="T5-XXL", number=number, encoder=need),
        tokenizer("google-t5/t5-base", name, 1_400_000, of="T5", number=number, encoder=need),
    )


def qwen3_4b(repo: str) -> tuple[Requirement, Requirement]:
    """The weights of Qwen3 4B, repacked in `repo`, and their tokenizer."""
    name = "qwen_3_4b"
    file = split_file(Role.TEXT_ENCODER, repo, f"{name}.safetensors")
    return (
        weights(Role.TEXT_ENCODER, file, 8_040_000_000),
        tokenizer("Qwen/Qwen3-4B", name, 11_430_000),
    )
