"""Which files belong together: text encoders and VAEs with the diffusion model they are for."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Protocol

from inline_core.errors import ModelFileInvalid, ModelFileMissing
from inline_core.loading.component import ComponentRef, Role
from inline_core.loading.identify import FileIdentity
from inline_core.loading.rules import EncoderNeed, FamilyRules, Sizes

MOST_CANDIDATES: Final = 8
# Several text encoders are named in one go; more than these combinations are not tried.
_MOST_COMBINATIONS: Final = 4096

Identify = Callable[[ComponentRef], FileIdentity]


def fits_family(identity: FileIdentity, rules: FamilyRules) -> bool:
    """Say whether a file can be a part of a family's graph."""
    if identity.role is Role.VAE:
        channels = identity.geometry.get("latent_channels")
        return identity.family == rules.vae_family and channels == rules.latent_channels
    if identity.role is Role.TEXT_ENCODER:
        return any(matches(identity, need) for need in rules.all_encoders)
    if identity.role in rules.parts:
        return identity.family == rules.parts[identity.role]
    return identity.family == rules.name


def matches(identity: FileIdentity, need: EncoderNeed) -> bool:
    """Say whether a text encoder is of the kind that is needed; sizes are another question."""
    other_one = need.variant and identity.variant and need.variant != identity.variant
    return identity.family == need.family and not other_one


def fits_size(identity: FileIdentity, need: EncoderNeed, model: Sizes) -> bool:
    """Say whether the features of a text encoder are as wide as the diffusion model takes them."""
    wanted = model.get(need.size_of) if need.size_of else None
    has = identity.geometry.get("hidden_size")
    return wanted is None or has is None or wanted == has


def compare(
    piece: str, measure: str, sizes: tuple[int | None, int | None], model: ComponentRef
) -> None:
    """Raise ModelFileInvalid if what a piece has is not what the model needs."""
    has, needs = sizes
    if has is not None and needs is not None and has != needs:
        message = f"The {piece} does not fit {model.name}: {measure} {has}, the model needs {needs}"
        raise ModelFileInvalid(message)


def combine(
    rules: FamilyRules,
    needs: Sequence[EncoderNeed],
    model: Sizes,
    candidates: Sequence[Sequence[ComponentRef]],
    given: Sequence[ComponentRef],
    identify: Identify,
) -> tuple[ComponentRef, ...] | None:
    """The first choice of one candidate for each need that goes together; None without any.

    `given` are those that must be in it, as somebody named them; an optional need may stay empty.
    """
    slots = [
        [*found[:MOST_CANDIDATES], *([None] if need.optional else [])]
        for need, found in zip(needs, candidates, strict=True)
    ]
    for choice in itertools.islice(itertools.product(*slots), _MOST_COMBINATIONS):
        chosen = [reference for reference in choice if reference is not None]
        places = {(reference.path, reference.part) for reference in chosen}
        if len(places) < len(chosen) or not all(
            (reference.path, reference.part) in places for reference in given
        ):
            continue
        if rules.encoders_fit(model, [identify(reference).geometry for reference in chosen]):
            return tuple(chosen)
    return None


class Shelf(Protocol):
    """What the models folder must tell to pair text encoders; `Catalog` implements it."""

    def identity(self, reference: ComponentRef) -> FileIdentity:
        """What a file was identified as."""

    def encoders_beside(
        self, need: EncoderNeed, model: ComponentRef, sizes: Sizes
    ) -> list[ComponentRef]:
        """Text encoders that fill a need, best first."""

    def candidates(self, role: Role, family: str | None) -> str:
        """What there is to choose from, as the end of a sentence."""

    def nothing_found(self, role: Role, family: str | None, fit: str = "") -> ModelFileMissing:
        """The error that there is no such file."""


def paired_encoders(
    model: ComponentRef, rules: FamilyRules, given: Sequence[ComponentRef], shelf: Shelf
) -> ComponentRef:
    """The text encoders of a diffusion model, in the order its family wants them.

    Those `given` are among them.  Raises: ModelFileMissing, ModelFileInvalid.
    """
    sizes, needs = shelf.identity(model).geometry, rules.encoders_for(model.variant)
    for reference in given:
        _check_encoder(reference, model, rules, shelf)
    candidates: list[list[ComponentRef]] = []
    for need in needs:
        mine = [item for item in given if matches(shelf.identity(item), need)]
        fitting = [item for item in mine if fits_size(shelf.identity(item), need, sizes)]
        same_kind = sum(other.family == need.family for other in needs)
        # What is named stands for its need, unless several needs are of its kind.
        alone = len(mine) == 1 and same_kind == 1
        found = fitting if alone else [*fitting, *shelf.encoders_beside(need, model, sizes)]
        if not found and not need.optional:
            fit = f" that fits {model.name} ({_in_words(need, sizes)})"
            raise shelf.nothing_found(Role.TEXT_ENCODER, model.family, fit)
        candidates.append(found)
    chosen = combine(rules, needs, sizes, candidates, given, shelf.identity)
    if not chosen:
        names = ", ".join(item.name for item in given) or "those in models/text_encoders"
        wanted = " and ".join(_in_words(need, sizes) for need in needs)
        message = (
            f"The text encoders of {model.name} ({rules.label}) do not go together: {names}. "
            f"It needs {wanted}"
        )
        raise ModelFileInvalid(message)
    return replace(chosen[0], others=chosen[1:])


def _check_encoder(
    reference: ComponentRef, model: ComponentRef, rules: FamilyRules, shelf: Shelf
) -> None:
    """Raise ModelFileInvalid if a text encoder is of no kind or size that the model takes."""
    has, sizes = shelf.identity(reference), shelf.identity(model).geometry
    wanted = rules.encoders_for(model.variant)
    needs = [need for need in wanted if matches(has, need)]
    if not needs:
        words = " and ".join(_in_words(need, sizes) for need in wanted)
        message = (
            f"{reference.name} is {has.in_words()}; {model.name} ({rules.label}) needs "
            f"another text encoder ({words}){shelf.candidates(Role.TEXT_ENCODER, model.family)}"
        )
        raise ModelFileInvalid(message)
    if not any(fits_size(has, need, sizes) for need in needs):
        pair = (has.geometry.get("hidden_size"), sizes.get(needs[0].size_of))
        compare(f"text encoder {reference.name}", "hidden size", pair, model)


def _in_words(need: EncoderNeed, sizes: Sizes) -> str:
    name = f"{need.family} {need.variant}".strip()
    width = sizes.get(need.size_of) if need.size_of else None
    return f"{name}, hidden_size {width}" if width is not None else name
