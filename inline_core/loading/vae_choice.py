"""Which of several autoencoders with equal shapes belongs to a model, by the words in their names.

The VAEs of FLUX.1 and Stable Diffusion 3 have the same tensors, and so have those of SD1.5 and
SDXL: a wrong one gives a wrong picture without an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from inline_core.loading.component import ComponentRef
from inline_core.loading.pieces import Piece
from inline_core.loading.rules import FamilyRules

Words = tuple[str, ...]

_SHORTEST_WITHIN: Final = 4  # shorter words are found only where they stand alone


def said(text: str, kinds: Iterable[Words]) -> Words:
    """The words of that kind whose longest word is in a text; () if none is."""
    text = text.casefold()
    alone = re.split(r"[^a-z0-9]+", text)

    def longest(words: Words) -> int:
        found = (w for w in words if w in (text if len(w) >= _SHORTEST_WITHIN else alone))
        return max(map(len, found), default=0)

    best = max(kinds, key=longest, default=())
    return best if longest(best) else ()


def rank(words: Words, wanted: Words) -> int:
    """How far a file that says `words` is from what is wanted: it says so, nothing, or another."""
    return 0 if words == wanted else 2 if words else 1


def by_name(
    pieces: Iterable[Piece], rules: FamilyRules, families: Iterable[FamilyRules]
) -> list[Piece]:
    """VAEs named for a family first, those named for another one last."""
    kinds = [other.vae_words for other in _alike(rules, families)]
    return sorted(pieces, key=lambda piece: rank(said(piece.file.name, kinds), rules.vae_words))


def doubt(
    vae: ComponentRef, rules: FamilyRules, families: Iterable[FamilyRules], names: Sequence[str]
) -> str:
    """Why a VAE may be the wrong one for a family, as a sentence; "" if nothing speaks for it.

    `names` are the VAEs that would do as well by their shapes.
    """
    alike = _alike(rules, families)
    words = said(vae.name, [other.vae_words for other in alike])
    if all(other.vae_words == rules.vae_words for other in alike) or words == rules.vae_words:
        return ""
    for other in alike:
        if words == other.vae_words:
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


def _alike(rules: FamilyRules, families: Iterable[FamilyRules]) -> list[FamilyRules]:
    """The families whose VAEs have the same shapes and a name to tell them by."""
    shape = (rules.vae_family, rules.latent_channels)
    same = [other for other in families if (other.vae_family, other.latent_channels) == shape]
    return [other for other in same if other.vae_words]
