"""The models folders as nodes and clients see them: what is offered, and which file is meant."""

from __future__ import annotations

import difflib
import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Final

from inline_core.errors import ModelFileInvalid, ModelFileMissing
from inline_core.loading.component import ComponentRef, LoraRef, Role
from inline_core.loading.files import (
    WeightFiles,
    find_tokenizer,
    open_weights,
    vocabulary_size,
)
from inline_core.loading.identify import FileIdentity, identify
from inline_core.loading.rules import (
    CATEGORIES_OF_ROLE,
    ROLE_IN_WORDS,
    FamilyRules,
    roles_of,
)
from inline_core.loading.scan import SETTLED_S, ModelFile, ModelRoot, Scanner, same_name

FRESH_S: Final = 1.0
_SHARED: Final = (Role.VAE, Role.TEXT_ENCODER)
_MOST_CANDIDATES: Final = 8


class Catalog:
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
        self._roots = tuple(roots)
        self._families = dict(families)
        self._overrides = dict(overrides or {})
        self._pause = pause
        self._scanner = Scanner(clock)
        self._lock = threading.RLock()
        self._files: tuple[ModelFile, ...] = ()
        self._version = ""
        self._scanned_at: float | None = None

    # ---- what is there -------------------------------------------------------------------------

    def refresh(self) -> None:
        """Look at the folders again; only new or changed files are read."""
        with self._lock:
            self._files = self._scanner.scan(self._roots)
            self._version = _version(self._files)
            self._scanned_at = time.monotonic()

    def files(self, category: str) -> tuple[ModelFile, ...]:
        """Every entry of a category, also the ones that are not ready, with their reasons."""
        return tuple(file for file in self._current() if file.category == category)

    def all_files(self) -> tuple[ModelFile, ...]:
        """Every entry of every category."""
        return self._current()

    def version(self) -> str:
        """A short text that changes whenever the files on offer change."""
        self._current()
        return self._version

    def warnings(self) -> tuple[str, ...]:
        """One sentence for each models folder that cannot be read."""
        self._current()
        return self._scanner.warnings

    def options(self, category: str, family: str | None = None) -> tuple[str, ...]:
        """Names a client may pick: ready files of the right role (and family), demo files last."""
        allowed = roles_of(category)
        rules = self._families.get(family) if family else None
        names = [
            file.name
            for file in self._sorted(self.files(category))
            if file.status == "ready"
            and (allowed is None or (file.identity is not None and file.identity.role in allowed))
            and (rules is None or file.identity is None or _fits_family(file.identity, rules))
        ]
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
        if family is None:
            family = self._likely_family(role)
        override = self._override(role, family)
        if override:
            return override
        if role is not Role.DIFFUSION_MODEL and family:
            model = self._best(Role.DIFFUSION_MODEL, family)
            model_override = self._override(Role.DIFFUSION_MODEL, family)
            if model or model_override:
                reference = model_override or self._reference(model, Role.DIFFUSION_MODEL, family)
                return self._companion(role, reference)
        best = self._best(role, family, variant)
        if best is None:
            raise self._nothing_found(role, family)
        return self._reference(best, role, family)

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
            raise self._nothing_found(Role.LORA, None)
        file = self._named(Role.LORA, name)
        reference = self._reference(file, Role.LORA, None)
        return LoraRef(reference.path, reference.name, reference.stamp, strength)

    def companions(self, model: ComponentRef) -> tuple[ComponentRef, ComponentRef]:
        """The VAE and the text encoder that belong to a diffusion model.

        Settings win; then parts of the same folder, then the first files that fit, demo files with
        demo models.  Raises: ModelFileMissing if nothing fits.
        """
        return self._companion(Role.VAE, model), self._companion(Role.TEXT_ENCODER, model)

    def check_fit(
        self,
        model: ComponentRef,
        vae: ComponentRef | None = None,
        text_encoder: ComponentRef | None = None,
    ) -> None:
        """Raise ModelFileInvalid if the pieces do not belong together; it names both sizes."""
        needs = self.identity(model).geometry
        rules = self._families.get(model.family)
        if text_encoder is not None:
            has = self.identity(text_encoder)
            if rules and has.family != rules.text_encoder_family:
                message = (
                    f"{text_encoder.name} is {has.in_words()}; {model.name} ({rules.label}) needs "
                    f"another text encoder{self._candidates(Role.TEXT_ENCODER, model.family)}"
                )
                raise ModelFileInvalid(message)
            sizes = (has.geometry.get("hidden_size"), needs.get("cap_feat_dim"))
            _compare(f"text encoder {text_encoder.name}", "hidden size", sizes, model)
        if vae is not None:
            has = self.identity(vae)
            sizes = (has.geometry.get("latent_channels"), needs.get("in_channels"))
            _compare(f"VAE {vae.name}", "latent channels", sizes, model)

    def identity(self, reference: ComponentRef) -> FileIdentity:
        """What the file behind a reference was identified as.  Raises: ModelFileMissing/Invalid."""
        for file in self._current():
            if file.path == reference.path and file.identity is not None:
                return file.identity
        return identify(open_weights(reference.path, reference.name).headers)

    def stamp(self, category: str, name: str) -> str:
        """A text that changes when the content of a file may have changed.

        With an empty name (the server picks) it changes with any file on offer.
        """
        if not name:
            return self.version()
        return next(
            (file.stamp for file in self.files(category) if same_name(file.name, name)), "missing"
        )

    def tokenizer_for(self, reference: ComponentRef) -> Path:
        """The local folder with the tokenizer of a text encoder.

        Raises: ModelFileMissing naming the files to put where.
        """
        vocabulary = self.identity(reference).geometry.get("vocab_size", 0)
        # Other folders are only looked into when needed: a tokenizer is megabytes of JSON.
        found = find_tokenizer(reference.path) or next(self._other_tokenizers(vocabulary), None)
        if found:
            return found
        stem = reference.path.stem
        message = (
            f"No tokenizer found for the text encoder {reference.name}. Put tokenizer.json and "
            f"tokenizer_config.json of its model into a folder named {stem}.tokenizer beside it"
        )
        raise ModelFileMissing(message)

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

    def _current(self) -> tuple[ModelFile, ...]:
        with self._lock:
            stale = self._scanned_at is None or time.monotonic() - self._scanned_at > FRESH_S
            if stale:
                self.refresh()
            return self._files

    def _sorted(self, files: Iterable[ModelFile]) -> list[ModelFile]:
        order = {root.path: index for index, root in enumerate(self._roots)}
        return sorted(files, key=lambda file: (file.source == "demo", order.get(file.root, 99)))

    def _of_role(self, role: Role) -> list[ModelFile]:
        categories = CATEGORIES_OF_ROLE.get(role, ())
        files = [file for file in self._current() if file.category in categories]
        return self._sorted(files)

    def _ready(self, role: Role, family: str | None) -> list[ModelFile]:
        rules = self._families.get(family) if family else None
        return [
            file
            for file in self._of_role(role)
            if file.status == "ready"
            and file.identity is not None
            and file.identity.role is role
            and (rules is None or _fits_family(file.identity, rules))
        ]

    def _best(self, role: Role, family: str | None, variant: str = "") -> ModelFile | None:
        ready = self._ready(role, family)
        same = (file for file in ready if file.identity and file.identity.variant == variant)
        first = next(iter(ready), None)
        return next(same, first) if variant else first

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
        self._check(path.name, identity, role, family)
        return _reference_to(role, identity, path.name, weights)

    def _named(self, role: Role, name: str) -> ModelFile:
        if _is_unsafe(name):
            message = f"{name!r} is not a name within the models folder"
            raise ModelFileInvalid(message)
        file = self._lookup(role, name)
        if file is None or file.status == "copying":
            self.refresh()
            file = self._lookup(role, name)
        if file is not None and file.status == "copying":
            self._pause(SETTLED_S * 1.1)
            self.refresh()
            file = self._lookup(role, name)
        if file is None:
            raise self._not_there(role, name)
        return file

    def _lookup(self, role: Role, name: str) -> ModelFile | None:
        files = self._of_role(role)
        exact = [file for file in files if file.name == name]
        exact = exact or [file for file in files if same_name(file.name, name)]
        if exact:
            return exact[0]
        loose = {file.name: file for file in files if file.name.casefold() == name.casefold()}
        if len(loose) > 1:
            message = f"{name} could be any of {', '.join(sorted(loose))}: write it exactly"
            raise ModelFileInvalid(message, details={"candidates": sorted(loose)})
        return next(iter(loose.values()), None)

    def _reference(self, file: ModelFile | None, role: Role, family: str | None) -> ComponentRef:
        assert file is not None
        if file.identity is not None:
            self._check(file.name, file.identity, role, family)
        if file.status != "ready" or file.identity is None:
            raise ModelFileInvalid(f"{_capital(ROLE_IN_WORDS[role])}: {file.reason}")
        return ComponentRef(
            role, file.identity.family, file.identity.variant, file.name, file.path, file.stamp
        )

    def _check(self, name: str, identity: FileIdentity, role: Role, family: str | None) -> None:
        candidates = self._candidates(role, family)
        if identity.role is Role.LORA and role is not Role.LORA:
            message = (
                f"{name} looks like {identity.in_words()}: move it to models/loras{candidates}"
            )
            raise ModelFileInvalid(message)
        if identity.role is not role:
            wanted = ROLE_IN_WORDS[role]
            message = f"{name} is {identity.in_words()}; {wanted} is needed here{candidates}"
            raise ModelFileInvalid(message, details={"found": str(identity.role)})
        named = self._families.get(family) if family else None
        allowed = [named] if named else list(self._families.values())
        if role is not Role.LORA and not any(_fits_family(identity, item) for item in allowed):
            labels = " or ".join(item.label for item in allowed)
            wanted = f"{ROLE_IN_WORDS[role]} for {labels}" if role in _SHARED else labels
            message = f"{name} is {identity.in_words()}; {wanted} is needed here{candidates}"
            raise ModelFileInvalid(message, details={"found": identity.family})
        if identity.problems:
            raise ModelFileInvalid(f"{name}: {identity.problems[0]}")

    def _companion(self, role: Role, model: ComponentRef) -> ComponentRef:
        override = self._override(role, model.family)
        if override:
            return override
        needs = self.identity(model).geometry
        own, wanted = (
            ("latent_channels", "in_channels")
            if role is Role.VAE
            else ("hidden_size", "cap_feat_dim")
        )
        fitting = [
            file
            for file in self._ready(role, model.family)
            if file.identity is not None
            and file.identity.geometry.get(own) == needs.get(wanted, -1)
        ]
        # A demo's latents and features are its own: they fit nothing else, whatever the shapes.
        demo = model.variant == "demo"
        own_kind = [file for file in fitting if _is_demo(file) == demo]
        fitting = own_kind or (fitting if demo else [])
        if not fitting:
            size = needs.get(wanted, 0)
            raise self._nothing_found(role, model.family, f" that fits {model.name} ({own} {size})")
        beside = [file for file in fitting if file.path.parent == model.path.parent]
        return self._reference((beside or fitting)[0], role, model.family)

    def _other_tokenizers(self, vocabulary: int) -> Iterator[Path]:
        for root in self._roots:
            for category in ("text_encoders", "clip"):
                folder = root.path / category
                places = sorted(folder.iterdir()) if folder.is_dir() else []
                for place in places:
                    for inner in (place, place / "tokenizer"):
                        size = vocabulary_size(inner) if inner.is_dir() else 0
                        # The embedding is padded above the vocabulary, never below it.
                        if size and vocabulary * 0.95 <= size <= vocabulary:
                            yield inner

    def _candidates(self, role: Role, family: str | None) -> str:
        names = list(dict.fromkeys(file.name for file in self._ready(role, family)))
        if not names:
            return ""
        more = f" and {len(names) - _MOST_CANDIDATES} more" if len(names) > _MOST_CANDIDATES else ""
        return f"; candidates: {', '.join(names[:_MOST_CANDIDATES])}{more}"

    def _nothing_found(self, role: Role, family: str | None, fit: str = "") -> ModelFileMissing:
        category = CATEGORIES_OF_ROLE[role][0]
        rules = self._families.get(family) if family else None
        label = f" for {rules.label}" if rules else ""
        others = [
            f"{file.name}: {file.reason}"
            if file.reason
            else f"{file.name} is {file.identity.in_words()}"
            if file.identity
            else file.name
            for file in self._of_role(role)[:3]
        ]
        found = f" (there: {'; '.join(others)})" if others else ""
        message = (
            f"No model file found in models/{category}/{label}{fit}. "
            f"Add one there or pick it on the node.{found}"
        )
        return ModelFileMissing(message, details={"category": category, "role": str(role)})

    def _not_there(self, role: Role, name: str) -> ModelFileMissing:
        category = CATEGORIES_OF_ROLE[role][0]
        for file in self._current():
            if same_name(file.name, name):
                what = file.identity.in_words() if file.identity else "another kind of file"
                message = f"{name} is in models/{file.category} and is {what}; "
                message += f"{ROLE_IN_WORDS[role]} is needed here"
                return ModelFileMissing(message + self._candidates(role, None))
        names = [file.name for file in self._of_role(role)]
        close = difflib.get_close_matches(name, names, n=3)
        hint = f"; did you mean {' or '.join(close)}?" if close else self._candidates(role, None)
        message = f"{name} is not in models/{category}{hint}"
        return ModelFileMissing(message, details={"candidates": names[:_MOST_CANDIDATES]})


def _version(files: Iterable[ModelFile]) -> str:
    offered = sorted(
        f"{file.category}/{file.name}:{file.stamp}" for file in files if file.status == "ready"
    )
    return hashlib.sha256("\n".join(offered).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _fits_family(identity: FileIdentity, rules: FamilyRules) -> bool:
    if identity.role is Role.VAE:
        channels = identity.geometry.get("latent_channels")
        return identity.family == rules.vae_family and channels == rules.latent_channels
    if identity.role is Role.TEXT_ENCODER:
        return identity.family == rules.text_encoder_family
    return identity.family == rules.name


def _is_demo(file: ModelFile) -> bool:
    title = file.identity.title if file.identity else ""
    return file.source == "demo" or title.startswith("Inline demo")


def _is_unsafe(name: str) -> bool:
    windows, posix = PureWindowsPath(name), PurePosixPath(name)
    parts = (*windows.parts, *posix.parts)
    return (
        ".." in parts or posix.is_absolute() or bool(windows.drive or windows.root) or "\0" in name
    )


def _compare(
    piece: str, measure: str, sizes: tuple[int | None, int | None], model: ComponentRef
) -> None:
    has, needs = sizes
    if has is not None and needs is not None and has != needs:
        message = f"The {piece} does not fit {model.name}: {measure} {has}, the model needs {needs}"
        raise ModelFileInvalid(message)


def _reference_to(
    role: Role, identity: FileIdentity, name: str, weights: WeightFiles
) -> ComponentRef:
    return ComponentRef(role, identity.family, identity.variant, name, weights.path, weights.stamp)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
