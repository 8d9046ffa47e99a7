"""Scenes of one coloured shape on a coloured background, and the captions that describe them."""

from __future__ import annotations

import hashlib
import itertools
import random
from dataclasses import dataclass
from typing import Final

SHAPES: Final = ("circle", "square", "triangle", "star")
SIZES: Final = ("small", "medium", "large")
PLACES: Final = ("center", "left", "right", "top", "bottom")
PALETTE: Final[dict[str, tuple[int, int, int]]] = {
    "red": (220, 38, 38),
    "green": (34, 160, 70),
    "blue": (40, 80, 220),
    "yellow": (248, 215, 40),
    "purple": (140, 50, 190),
    "cyan": (60, 205, 230),
    "white": (245, 245, 245),
    "black": (22, 22, 22),
}
HELD_OUT_PERCENT: Final = 12


@dataclass(frozen=True)
class Scene:
    """One picture's content; every field is a word of the captions."""

    shape: str
    size: str
    place: str
    colour: str
    background: str

    def key(self) -> str:
        """Return the scene as one stable string, used for the split and for seeds."""
        return f"{self.size}-{self.colour}-{self.shape}-{self.background}-{self.place}"

    def held_out(self) -> bool:
        """Tell whether this combination is kept out of training (a hash decides, not a seed)."""
        digest = hashlib.sha256(self.key().encode()).digest()
        return int.from_bytes(digest[:4], "big") % 100 < HELD_OUT_PERCENT


def all_scenes(*, held_out: bool) -> list[Scene]:
    """Return every scene of one side of the split, in a fixed order."""
    scenes = (
        Scene(shape, size, place, colour, background)
        for shape, size, place, colour, background in itertools.product(
            SHAPES, SIZES, PLACES, PALETTE, PALETTE
        )
        if colour != background
    )
    return [scene for scene in scenes if scene.held_out() == held_out]


def plain_caption(scene: Scene) -> str:
    """Return the caption that names everything in the commonest phrasing."""
    subject = f"a {scene.size} {scene.colour} {scene.shape}"
    return f"{subject} on a {scene.background} background, {scene.place}"


def write_caption(scene: Scene, rng: random.Random) -> str:
    """Return one of many phrasings of a scene.

    "medium" and "center" are the defaults, so they are often left unsaid.
    """
    size = "" if scene.size == "medium" and rng.random() < 0.6 else f"{scene.size} "
    subject = f"{size}{scene.colour} {scene.shape}"
    article = "a " if rng.random() < 0.85 else ""
    unsaid = scene.place == "center" and rng.random() < 0.6
    text = _phrase(scene, subject, article, unsaid, rng)
    if rng.random() < 0.12:
        text = text[0].upper() + text[1:]
    if rng.random() < 0.12:
        text += "."
    return text


def _phrase(scene: Scene, subject: str, article: str, unsaid: bool, rng: random.Random) -> str:
    """Return the caption before its capital and its full stop."""
    ground = f"{article}{scene.background} background"
    if unsaid:
        joiner = " on " if rng.random() < 0.85 else ", "
        return f"{article}{subject}{joiner}{ground}"
    word = "in" if scene.place == "center" else rng.choice(("at", "on") if article else ("at",))
    where = f"{word} the {scene.place}"
    form = rng.random()
    if form < 0.45:
        return f"{article}{subject} on {ground}, {scene.place}"
    if form < 0.60:
        return f"{article}{subject} on {ground}, {where}"
    if form < 0.80:
        return f"{article}{subject} {where} of {ground}"
    if form < 0.92:
        return f"{article}{subject} {where} on {ground}"
    return f"{ground}, {article}{subject}, {scene.place}"
