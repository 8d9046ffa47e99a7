"""The models folders as nodes and clients see them: what is offered, and which file is meant."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from inline_core.errors import ModelFileInvalid, ModelFileMissing
from inline_core.loading.component import ComponentRef, LoraRef, Role
from inline_core.loading.files import open_weights
from inline_core.loading.identify import FileIdentity, identify
from inline_core.loading.listing import FileListing
from inline_core.loading.pairing import compare, fits_family, fits_size, matches, paired_encoders
from inline_core.loading.pieces import Piece, closest, identity_in, piece_for, pieces_of
from inline_core.loading.refusals import check_kind, check_name, in_words, not_there, nothing_found
from inline_core.loading.rules import (
    ROLE_IN_WORDS,
    EncoderNeed,
    FamilyRules,
    Sizes,
    roles_of,
)
from inline_core.loading.scan import SETTLED_S, ModelFile, ModelRoot
from inline_core.loading.tokenizers import tokenizer_of
from inline_core.loading.vae_choice import by_name, doubt

# Where all-in-one checkpoints lie, whose parts are offered beside files of their own.
_MODELS: Final = (Role.DIFFUSION_MODEL, Role.CHECKPOINT)


class Catalog(FileListing):
    """Finds, identifies and pairs model files.  Safe to use from any thread.

    `overrides` gives a file for (family, role) from a setting: (variable name, path or name).
    `pause` waits some seconds for a file that changed a moment ago (tests pass their own).
    Use `inline_core.families.registry.open_catalog(settings)` to get one with all families.
    """

    def __init__(
        self,
        roots: Sequence[ModelRoot],
        families: Mapping[str, FamilyRules],
        overrides: Mapping[tuple[str, Role], tuple[str, str]] | None = None,
        *,
        clock: Callable[[], float] = time.time,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(roots, clock)
        self._families = dict(families)
        self._overrides = dict(overrides or {})
        self._pause = pause

    # ---- what is there -------------------------------------------------------------------------

    def options(self, category: str, family: str | None = None) -> tuple[str, ...]:
        """Names a client may pick: ready files of the right role (and family), demo files last."""
        allowed = roles_of(category)
        rules = self._families.get(family) if family else None

        def fits(file: ModelFile) -> bool:
            if file.identity is None:
                return allowed is None
            return any(
                (allowed is None or piece.identity.role in allowed)
                and (rules is None or fits_family(piece.identity, rules))
                for piece in pieces_of(file)
            )

        files = self._sorted(self.pickable(category))
        names = [file.name for file in files if file.status == "ready" and fits(file)]
        return tuple(dict.fromkeys(names))

    # ---- which file is meant -------------------------------------------------------------------

    def find(
        self, role: Role, name: str, *, family: str | None = None, variant: str = ""
    ) -> ComponentRef:
        """The component `name`, or with an empty name the best one for `family`, checked.

        Of several that would do, one of `variant` is preferred.
        Raises: ModelFileMissing if there is none, ModelFileInvalid if it is broken, of another
        role or family, or not supported.
        """
        if name:
            return self._reference(self._named(role, name), role, family)
        if family is None and role not in {Role.UPSCALER, Role.LATENT_UPSCALER}:
            family = self._likely_family(role)
        override = self._override(role, family)
        if override:
            return override
        if role not in _MODELS and family:
            model = self._best(Role.DIFFUSION_MODEL, family)
            model_override = self._override(Role.DIFFUSION_MODEL, family)
            if model or model_override:
                reference = model_override or self._checked(model, Role.DIFFUSION_MODEL, family)
                return self._companion(role, reference)
        best = self._best(role, family, variant)
        if best is None:
            raise self.nothing_found(role, family)
        return self._checked(best, role, family)

    def _likely_family(self, role: Role) -> str | None:
        """The family meant when neither a file nor a family was named.

        The first that has such a file and a diffusion model, else the first that has such a file.
        """
        have = [family for family in self._families if self._has(role, family)]
        whole = (family for family in have if self._has(Role.DIFFUSION_MODEL, family))
        return next(whole, next(iter(have or self._families), None))

    def _has(self, role: Role, family: str) -> bool:
        return (family, role) in self._overrides or self._best(role, family) is not None

    def find_lora(self, name: str, strength: float) -> LoraRef:
        """The adapter file `name`.  Raises: ModelFileMissing, ModelFileInvalid."""
        if not name:
            raise self.nothing_found(Role.LORA, None)
        file = self._named(Role.LORA, name)
        reference = self._reference(file, Role.LORA, None)
        return LoraRef(reference.path, reference.name, reference.stamp, strength)

    def companions(self, model: ComponentRef) -> tuple[ComponentRef, ComponentRef]:
        """The VAE and the text encoder that belong to a diffusion model.

        Settings win; then parts of the same folder, then the first files that fit, demo files with
        demo models.  Raises: ModelFileMissing if nothing fits.
        """
        return self._companion(Role.VAE, model), self._companion(Role.TEXT_ENCODER, model)

    def companion(self, role: Role, model: ComponentRef) -> ComponentRef:
        """The component of another role that belongs to a diffusion model, as `companions`.

        Raises: ModelFileMissing if nothing fits.
        """
        return self._companion(role, model)

    def doubt(self, model: ComponentRef, vae: ComponentRef) -> str:
        """Why a VAE that was found may be one of another family, or ""."""
        rules = self._families.get(model.family)
        beside = {vae.path, vae.path.parent} & {model.path, model.path.parent}
        if rules is None or beside or self._override(Role.VAE, model.family):
            return ""
        names = [piece.file.name for piece in self._vaes(model) if not piece.is_demo]
        return doubt(vae, rules, self._families.values(), names)

    def check_fit(
        self,
        model: ComponentRef,
        vae: ComponentRef | None = None,
        text_encoder: ComponentRef | None = None,
    ) -> None:
        """Raise ModelFileInvalid if the pieces do not belong together; it names both sizes."""
        if text_encoder is not None:
            self.encoders_for(model, text_encoder)
        rules = self._families.get(model.family)
        if vae is not None and (rules is None or rules.model_channels):
            needs = self.identity(model).geometry
            has = self.identity(vae)
            key = rules.model_channels if rules else "in_channels"
            sizes = (has.geometry.get("latent_channels"), needs.get(key))
            compare(f"VAE {vae.name}", "latent channels", sizes, model)

    def encoders_for(self, model: ComponentRef, given: ComponentRef | None = None) -> ComponentRef:
        """The text encoders that read the prompts of a diffusion model, in the order it wants them.

        Those `given` are among them, the others are what fits best.
        Raises: ModelFileMissing if one is absent, ModelFileInvalid if one given does not fit.
        """
        rules = self._families.get(model.family)
        if rules is None or not rules.text_encoders:
            if given is None:
                raise self.nothing_found(Role.TEXT_ENCODER, model.family)
            return given
        return paired_encoders(model, rules, given.all if given is not None else (), self)

    # ---- for `pairing` -------------------------------------------------------------------------

    def encoders_beside(
        self, need: EncoderNeed, model: ComponentRef, sizes: Sizes
    ) -> list[ComponentRef]:
        """Text encoders in the models folders that fill a need, best first."""
        role = Role.TEXT_ENCODER
        fitting = [
            piece
            for piece in self._ready(role, model.family)
            if matches(piece.identity, need) and fits_size(piece.identity, need, sizes)
        ]
        return [self._checked(piece, role, model.family) for piece in closest(fitting, model)]

    def identity(self, reference: ComponentRef) -> FileIdentity:
        """What the file behind a reference was identified as.  Raises: ModelFileMissing/Invalid."""
        found = identity_in(self._current(), reference)
        if found is not None:
            return found
        return identify(open_weights(reference.path, reference.name, reference.part).headers)

    def tokenizer_for(self, reference: ComponentRef) -> Path:
        """The local folder with the tokenizer of a text encoder.

        Raises: ModelFileMissing naming the files to put where.
        """
        vocabulary = self.identity(reference).geometry.get("vocab_size", 0)
        return tokenizer_of(reference, vocabulary, [root.path for root in self._roots])

    def variant_defaults(self, family: str, name: str = "") -> Mapping[str, Any]:
        """Defaults of the params (width, height, steps, guidance, ...) for the chosen model.

        With an empty name those of the model that would be picked; without any, of the family.
        """
        try:
            model = self.find(Role.DIFFUSION_MODEL, name, family=family)
        except (ModelFileMissing, ModelFileInvalid):
            return dict(next(iter(self._families[family].defaults.values()), {}))
        return self.defaults_of(model)

    def defaults_of(self, model: ComponentRef) -> Mapping[str, Any]:
        """Defaults of the params for an identified diffusion model; empty for unknown families."""
        rules = self._families.get(model.family)
        if rules is None:
            return {}
        first = next(iter(rules.defaults.values()), {})
        values = dict(rules.defaults.get(model.variant, first))
        native = self.identity(model).native_size
        if native:
            values["width"], values["height"] = native
        return values

    # ---- inside --------------------------------------------------------------------------------

    def _ready(self, role: Role, family: str | None) -> list[Piece]:
        rules = self._families.get(family) if family else None
        files = self._of_role(role)
        if role not in _MODELS:
            files += self._of_role(Role.DIFFUSION_MODEL)
        return [
            piece
            for file in files
            if file.status == "ready"
            for piece in pieces_of(file)
            if piece.identity.role is _kind(role)
            and (rules is None or fits_family(piece.identity, rules))
        ]

    def _best(self, role: Role, family: str | None, variant: str = "") -> Piece | None:
        ready = self._ready(role, family)
        wanted = (variant, "") if variant else ()
        same = (piece for one in wanted for piece in ready if piece.identity.variant == one)
        return next(same, next(iter(ready), None))

    def _override(self, role: Role, family: str | None) -> ComponentRef | None:
        found = self._overrides.get((family or "", role))
        if found is None:
            return None
        variable, value = found
        try:
            if Path(value).is_absolute():
                return self._outside(role, Path(value), family)
            return self._reference(self._named(role, value), role, family)
        except (ModelFileInvalid, ModelFileMissing) as error:
            error.message = f"{variable}={value}: {error.message}"
            error.args = (error.message,)
            raise

    def _outside(self, role: Role, path: Path, family: str | None) -> ComponentRef:
        """A component by absolute path, as only a setting may name it."""
        if not path.exists():
            message = "there is no such file or folder"
            raise ModelFileMissing(message)
        path = path / "transformer" if (path / "model_index.json").is_file() else path
        weights = open_weights(path, path.name)
        identity = identify(weights.headers)
        size, root = weights.size_bytes, path.parent
        file = ModelFile(
            "", path.name, path, root, "extra", size, weights.stamp, "ready", identity=identity
        )
        return self._reference(file, role, family)

    def _named(self, role: Role, name: str) -> ModelFile:
        check_name(name)
        file = self._lookup(role, name)
        if file is None or file.status == "copying":
            self.refresh()
            file = self._lookup(role, name)
        if file is not None and file.status == "copying":
            self._pause(SETTLED_S * 1.1)
            self.refresh()
            file = self._lookup(role, name)
        if file is None:
            there = self._of_role(role)
            raise not_there(role, name, self._current(), there, self.candidates(role, None))
        return file

    def _reference(self, file: ModelFile, role: Role, family: str | None) -> ComponentRef:
        role = _kind(role)
        piece = piece_for(file, role)
        if piece is not None:
            self._check(piece, role, family)
        if file.status != "ready" or piece is None:
            raise ModelFileInvalid(f"{_capital(ROLE_IN_WORDS[role])}: {file.reason}")
        return self._with_parts(piece, role)

    def _checked(self, piece: Piece | None, role: Role, family: str | None) -> ComponentRef:
        assert piece is not None
        role = _kind(role)
        self._check(piece, role, family)
        return self._with_parts(piece, role)

    def _with_parts(self, piece: Piece, role: Role) -> ComponentRef:
        """A component; a VAE has the parts that its families let go along with it."""
        reference = piece.reference(role)
        if role is not Role.VAE:
            return reference
        families = [one for one in self._families.values() if one.vae_parts]
        # Of kin with the same VAE each may bring further parts.
        rules_of = {
            part: rules
            for rules in families
            if rules.vae_family == piece.identity.family
            for part in rules.vae_parts
        }
        others = []
        for part, rules in rules_of.items():
            found = closest(self._ready(part, rules.name), reference)
            others += [piece.reference(part) for piece in found[:1]]
        return replace(reference, others=tuple(others))

    def _check(self, piece: Piece, role: Role, family: str | None) -> None:
        named = self._families.get(family) if family else None
        allowed = [named] if named else list(self._families.values())
        candidates = self.candidates(role, family)
        check_kind(piece.file.name, piece.identity, role, allowed, candidates)

    def _companion(self, role: Role, model: ComponentRef) -> ComponentRef:
        override = self._override(role, model.family)
        if role is Role.TEXT_ENCODER:
            return self.encoders_for(model, override)
        if override:
            return override
        fitting = self._vaes(model) if role is Role.VAE else self._ready(role, model.family)
        ordered = closest(fitting, model)
        if not ordered:
            channels = self._channels(model)
            fit = f" (latent_channels {channels})" if role is Role.VAE and channels else ""
            raise self.nothing_found(role, model.family, f" that fits {model.name}{fit}")
        return self._checked(ordered[0], role, model.family)

    def _vaes(self, model: ComponentRef) -> list[Piece]:
        """VAEs whose shapes fit a diffusion model, those named for its family first."""
        channels = self._channels(model)
        fitting = [
            piece
            for piece in self._ready(Role.VAE, model.family)
            if channels is None or piece.identity.geometry.get("latent_channels") == channels
        ]
        rules = self._families.get(model.family)
        return by_name(fitting, rules, self._families.values()) if rules else fitting

    def _channels(self, model: ComponentRef) -> int | None:
        """The channels that the latents of a diffusion model have; None if it does not tell."""
        rules = self._families.get(model.family)
        key = rules.model_channels if rules else "in_channels"
        return self.identity(model).geometry.get(key, 0) if key else None

    def candidates(self, role: Role, family: str | None) -> str:
        """What there is to choose from, as the end of a sentence."""
        return in_words(piece.file.name for piece in self._ready(role, family))

    def nothing_found(self, role: Role, family: str | None, fit: str = "") -> ModelFileMissing:
        """The error that a family has no file for a role, with what is there instead."""
        rules = self._families.get(family) if family else None
        return nothing_found(role, rules, fit, self._of_role(role))


def _kind(role: Role) -> Role:
    """A checkpoint stands for its diffusion model; the others are found beside that."""
    return Role.DIFFUSION_MODEL if role is Role.CHECKPOINT else role


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
