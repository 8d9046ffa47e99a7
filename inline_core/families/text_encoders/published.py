"""Where CLIP and T5 text encoders are published; for the requirements of families.  Without torch.

The tokenizers are on their own: who has the weights under another name needs only those.
"""

from __future__ import annotations

from typing import Final

from inline_core.loading.component import Role
from inline_core.loading.rules import EncoderNeed, RequiredFile, Requirement

_FLUX: Final = "comfyanonymous/flux_text_encoders"
_SD3: Final = "Comfy-Org/stable-diffusion-3.5-fp8"
_CLIP_TOKENIZER: Final = "openai/clip-vit-large-patch14"
# The vocabulary of T5 1.1 is that of T5.
_T5_TOKENIZER: Final = "google-t5/t5-base"


def clip_l(need: EncoderNeed) -> tuple[Requirement, Requirement]:
    """CLIP-L and the tokenizer of all CLIPs."""
    return (
        _weights("text_encoder", "CLIP-L", _FLUX, "clip_l", need, 246_000_000),
        _tokenizer("tokenizer", "CLIP", _CLIP_TOKENIZER, "clip_l", need, 2_300_000),
    )


def clip_g(need: EncoderNeed) -> tuple[Requirement, ...]:
    """CLIP-G, which reads the same tokens as CLIP-L."""
    repo_file = "text_encoders/clip_g"
    return (_weights("text_encoder_2", "CLIP-G", _SD3, repo_file, need, 1_390_000_000),)


def t5_xxl(need: EncoderNeed, number: int) -> tuple[Requirement, Requirement]:
    """T5 1.1 XXL and its tokenizer; `number` of the text encoder among those of its family."""
    suffix = f"_{number}" if number > 1 else ""
    name = "t5xxl_fp16"
    return (
        _weights(f"text_encoder{suffix}", "T5-XXL", _FLUX, name, need, 9_790_000_000),
        _tokenizer(f"tokenizer{suffix}", "T5", _T5_TOKENIZER, name, need, 1_400_000),
    )


def flux_vae() -> Requirement:
    """The VAE of FLUX.1, which Chroma has too."""
    return Requirement(
        id="vae",
        label="VAE",
        category="vae",
        role=Role.VAE,
        files=(
            RequiredFile(
                "Comfy-Org/z_image_turbo", "split_files/vae/ae.safetensors", "ae.safetensors"
            ),
        ),
        size_bytes=335_000_000,
    )


def _weights(
    key: str, label: str, repo: str, file: str, need: EncoderNeed, size_bytes: int
) -> Requirement:
    name = f"{file.rpartition('/')[2]}.safetensors"
    return Requirement(
        id=key,
        label=f"Text encoder ({label})",
        category="text_encoders",
        role=Role.TEXT_ENCODER,
        files=(RequiredFile(repo, f"{file}.safetensors", name),),
        size_bytes=size_bytes,
        optional=need.optional,
        encoder=need,
    )


def _tokenizer(
    key: str, label: str, repo: str, stem: str, need: EncoderNeed, size_bytes: int
) -> Requirement:
    return Requirement(
        id=key,
        label=f"Tokenizer of the text encoder ({label})",
        category="text_encoders",
        role=None,
        files=tuple(
            RequiredFile(repo, name, f"{stem}.tokenizer/{name}")
            for name in ("tokenizer.json", "tokenizer_config.json")
        ),
        size_bytes=size_bytes,
        optional=need.optional,
        encoder=need,
    )
