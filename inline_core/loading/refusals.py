"""Why a model file is not what was asked for, and what there is instead, in words."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath, PureWindowsPath
from typing import Final

from inline_core.errors import ModelFileInvalid, ModelFileMissing
from inline_core.loading.component import Role
from inline_core.loading.identify import FileIdentity
from inline_core.loading.pairing import MOST_CANDIDATES, fits_family
from inline_core.loading.rules import CATEGORIES_OF_ROLE, ROLE_IN_WORDS, FamilyRules, roles_of
from inline_core.loading.scan import ModelFile, same_name

_SHARED: Final = (Role.VAE, Role.TEXT_ENCODER)
_OF_NO_FAMILY: Final = (Role.LORA, Role.UPSCALER, Role.LATENT_UPSCALER)


def check_name(name: str) -> None:
    """Raise ModelFileInvalid for a name that leads out of the models folder."""
    windows, posix = PureWindowsPath(name), PurePosixPath(name)
    parts = (*windows.parts, *posix.parts)
    if ".." in parts or posix.is_absolute() or bool(windows.drive or windows.root) or "\0" in name:
        message = f"{name!r} is not a name within the models folder"
        raise ModelFileInvalid(message)


def check_kind(
    name: str,
    identity: FileIdentity,
    role: Role,
    allowed: Sequence[FamilyRules],
    candidates: str,
) -> None:
    """Raise ModelFileInvalid unless a file has a role and is of one of the allowed families.

    `candidates` end the sentence (see `in_words`).
    """
    if identity.role is Role.LORA and role is not Role.LORA:
        message = f"{name} looks like {identity.in_words()}: move it to models/loras{candidates}"
        raise ModelFileInvalid(message)
    # An upscaler of an architecture that only spandrel knows looks like nothing known here.
    unknown_upscaler = role is Role.UPSCALER and identity.role is Role.UNKNOWN
    if identity.role is not role and not unknown_upscaler:
        wanted = ROLE_IN_WORDS[role]
        message = f"{name} is {identity.in_words()}; {wanted} is needed here{candidates}"
        raise ModelFileInvalid(message, details={"found": str(identity.role)})
    if role not in _OF_NO_FAMILY and not any(fits_family(identity, item) for item in allowed):
        labels = ", ".join(item.label for item in allowed)
        wanted = f"{ROLE_IN_WORDS[role]} for {labels}" if role in _SHARED else labels
        needed = f"{wanted} is needed here"
        if len(allowed) > 1:
            needed = f"{ROLE_IN_WORDS[role]} for one of these is needed here: {labels}"
        message = f"{name} is {identity.in_words()}; {needed}{candidates}"
        raise ModelFileInvalid(message, details={"found": identity.family})
    if identity.problems:
        raise ModelFileInvalid(f"{name}: {identity.problems[0]}")


def in_words(names: Iterable[str]) -> str:
    """What there is to choose from, as the end of a sentence."""
    names = list(dict.fromkeys(names))
    if not names:
        return ""
    more = f" and {len(names) - MOST_CANDIDATES} more" if len(names) > MOST_CANDIDATES else ""
    return f"; candidates: {', '.join(names[:MOST_CANDIDATES])}{more}"


def nothing_found(
    role: Role, rules: FamilyRules | None, fit: str, there: Sequence[ModelFile]
) -> ModelFileMissing:
    """The error that a family has no file for a role, with what is `there` instead."""
    category = CATEGORIES_OF_ROLE[role][0]
    label = f" for {rules.label}" if rules else ""
    others = [
        f"{file.name}: {file.reason}"
        if file.reason
        else f"{file.name} is {file.identity.in_words()}"
        if file.identity
        else file.name
        for file in there[:3]
    ]
    found = f" (there: {'; '.join(others)})" if others else ""
    # Parts that no picker offers are called by their name.
    pickable = roles_of(category)
    alone = pickable is not None and role not in pickable
    what = ROLE_IN_WORDS[role].partition(" ")[2] if alone else "model file"
    message = (
        f"No {what} found in models/{category}/{label}{fit}. "
        f"Add one there{'' if alone else ' or pick it on the node'}.{found}"
    )
    return ModelFileMissing(message, details={"category": category, "role": str(role)})


def not_there(
    role: Role,
    name: str,
    files: Iterable[ModelFile],
    there: Sequence[ModelFile],
    candidates: str,
) -> ModelFileMissing:
    """The error that no file has a name; `files` are all, `there` those of the role's folders."""
    category = CATEGORIES_OF_ROLE[role][0]
    for file in files:
        if same_name(file.name, name):
            what = file.identity.in_words() if file.identity else "another kind of file"
            message = f"{name} is in models/{file.category} and is {what}; "
            message += f"{ROLE_IN_WORDS[role]} is needed here"
            return ModelFileMissing(message + candidates)
    names = [file.name for file in there]
    close = difflib.get_close_matches(name, names, n=3)
    hint = f"; did you mean {' or '.join(close)}?" if close else candidates
    message = f"{name} is not in models/{category}{hint}"
    return ModelFileMissing(message, details={"candidates": names[:MOST_CANDIDATES]})
