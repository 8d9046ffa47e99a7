"""Where Qwen3 text encoders are published; for the requirements of families.  Without torch."""

from __future__ import annotations

from typing import Final

from inline_core.loading.component import Role
from inline_core.loading.rules import RequiredFile, Requirement

_NAME: Final = "qwen_3_4b"
_TOKENIZER_REPO: Final = "Qwen/Qwen3-4B"


def qwen3_4b(repo: str) -> tuple[Requirement, Requirement]:
    """The weights of Qwen3 4B, repacked in `repo`, and their tokenizer.

    On its own: who has the weights under another name needs only its few megabytes.
    """
    weights = Requirement(
        id="text_encoder",
        label="Text encoder",
        category="text_encoders",
        role=Role.TEXT_ENCODER,
        files=(
            RequiredFile(
                repo,
                f"split_files/text_encoders/{_NAME}.safetensors",
                f"{_NAME}.safetensors",
            ),
        ),
        size_bytes=8_040_000_000,
    )
    tokenizer = Requirement(
        id="tokenizer",
        label="Tokenizer of the text encoder",
        category="text_encoders",
        role=None,
        files=tuple(
            RequiredFile(_TOKENIZER_REPO, name, f"{_NAME}.tokenizer/{name}")
            for name in ("tokenizer.json", "tokenizer_config.json")
        ),
        size_bytes=11_430_000,
    )
    return weights, tokenizer
