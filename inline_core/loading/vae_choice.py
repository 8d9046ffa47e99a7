"""Which of several VAEs with equal shapes belongs to a model.

The VAEs of FLUX.1 and Stable Diffusion 3 have the same tensors, and so have those of SD1.5 and
SDXL: only names tell them apart, and a wrong one gives a wrong picture without an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from inline_core.loading.component import ComponentRef
from inline_core.loading.pieces import Piece
from inline_core.loading.rules import FamilyRules

_SHORTEST_WITHIN: Final = 4  # shorter words are found only where they stand alone


def says(name: str, words: Iterable[str]) -> bool:
    """True if a file's name has one of the words."""
    name = name.casefold()
    alone = re.split(r"[^a-z0-9]+", name)
    return any(word in (name if len(word) >= _SHORTEST_WITHIN else alone) for word in words)


def alike(rules: FamilyRules, families: Iterable[FamilyRules]) -> list[FamilyRules]:
    """The families with other VAEs of the same shapes."""
    shape = (rules.vae_family, rules.latent_channels)
    return [
        other
        for other in families
        if (other.vae_family, other.latent_channels) == shape
        and other.vae_names
        and other.vae_names != rules.vae_names
    ]


def by_name(
    pieces: Iterable[Piece], rules: FamilyRules, families: Iterable[FamilyRules]
) -> list[Piece]:
    """VAEs named for a family first, those named for another one last."""
    others = alike(rules, families)

    def rank(piece: Piece) -> int:
        if says(piece.file.name, rules.vae_names):
            return 0
        return 2 if any(says(piece.file.name, other.vae_names) for other in others) else 1

    return sorted(pieces, key=rank)


def doubt(
    vae: ComponentRef, rules: FamilyRules, families: Iterable[FamilyRules], names: Sequence[str]
) -> str:
    """Why a VAE may be the wrong one for a family, as a sentence; "" if nothing speaks for it.

    `names` are the VAEs that would do as well by their shapes.
    """
    others = alike(rules, families)
    if not others or says(vae.name, rules.vae_names):
        return ""
    for other in others:
        if says(vae.name, other.vae_names):
            return (
                f"The VAE {vae.name} fits, but its name says {other.label}: if the picture is flat "
                f"or garish, add the VAE of {rules.label} or pick it on the node."
            )
    more = [name for name in names if name != vae.name]
    if not more:
        return ""
    return (
        f"Of VAEs with equal shapes {vae.name} was taken for {rules.label} "
        f"(there too: {', '.join(more[:3])}): if the picture is flat or garish, pick another one."
    )
