"""What a generate node needs in the models folder, what of it is there, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from inline_core.errors import ModelFileInvalid, ModelFileMissing, NotFound
from inline_core.families.registry import FAMILIES
from inline_core.graph.spec import NodeSpec
from inline_core.loading.catalog import Catalog
from inline_core.loading.component import ComponentRef, Role
from inline_core.loading.pairing import matches
from inline_core.loading.rules import CATEGORIES_OF_ROLE, EncoderNeed, Requirement


@dataclass(frozen=True, slots=True)
class Presence:
    """Whether a requirement is met, under whatever name.

    `fits` is True with `present`, False if a file of that kind is there but does not go with the
    diffusion model, None if there is none.  `found` is the name of the file or folder; `demo` says
    that it belongs to the bundled demo model only.
    """

    present: bool
    fits: bool | None = None
    found: str | None = None
    demo: bool = False


_ABSENT = Presence(present=False)


def requirements_of(spec: NodeSpec) -> tuple[Requirement, ...]:
    """The table of a node type; empty for one that needs no model of its own."""
    family = FAMILIES.get(spec.family or "")
    return family.rules.requirements if family else ()


def find_requirement(
    specs: Mapping[str, NodeSpec], node_type: str, requirement_id: str
) -> Requirement:
    """One requirement of a node type.  Raises: NotFound naming what there is."""
    spec = specs.get(node_type)
    if spec is None:
        message = f"Unknown node type {node_type!r}."
        raise NotFound(message)
    table = {requirement.id: requirement for requirement in requirements_of(spec)}
    if requirement_id not in table:
        known = ", ".join(table) or "none"
        message = f"{node_type} has no requirement {requirement_id!r}; it has: {known}."
        raise NotFound(message)
    return table[requirement_id]


def presence(requirement: Requirement, family: str, catalog: Catalog) -> Presence:
    """What the models folders have for a requirement of this family.  Raises nothing."""
    if requirement.role is None:
        return _tokenizer(requirement.encoder, family, catalog)
    chosen = _chosen(requirement.role, requirement.encoder, family, catalog, requirement.variant)
    wanted = requirement.variant
    if chosen is not None and wanted and chosen.variant != wanted:
        return _ABSENT  # a model of another variant does not stand in for it
    if chosen is not None:
        return _there(chosen, chosen.name, catalog)
    if requirement.encoder is not None:
        return _ABSENT  # the others of this role are for another need
    others = _of_role(requirement.role, family, catalog)
    return Presence(present=False, fits=False, found=others[0]) if others else _ABSENT


def _chosen(
    role: Role, need: EncoderNeed | None, family: str, catalog: Catalog, variant: str = ""
) -> ComponentRef | None:
    """The file that a run with default params would take."""
    if need is not None:
        return _encoder(need, family, catalog)
    try:
        return catalog.find(role, "", family=family, variant=variant)
    except (ModelFileMissing, ModelFileInvalid):
        return None


def _encoder(need: EncoderNeed, family: str, catalog: Catalog) -> ComponentRef | None:
    """The first text encoder of a kind, where a family reads its prompts with several."""
    for name in _of_role(Role.TEXT_ENCODER, family, catalog):
        try:
            found = catalog.find(Role.TEXT_ENCODER, name, family=family)
        except (ModelFileMissing, ModelFileInvalid):
            continue
        if matches(catalog.identity(found), need):
            return found
    return None


def _tokenizer(need: EncoderNeed | None, family: str, catalog: Catalog) -> Presence:
    encoder = _chosen(Role.TEXT_ENCODER, need, family, catalog)
    if encoder is None:
        return _ABSENT
    try:
        folder = catalog.tokenizer_for(encoder)
    except (ModelFileMissing, ModelFileInvalid):
        return _ABSENT
    return _there(encoder, folder.name, catalog)


def _there(reference: ComponentRef, name: str, catalog: Catalog) -> Presence:
    demo = any(
        file.path == reference.path and file.source == "demo" for file in catalog.all_files()
    )
    return Presence(present=True, fits=True, found=name, demo=demo)


def _of_role(role: Role, family: str, catalog: Catalog) -> list[str]:
    """Ready files of the family's kind, whether they go with the model or not."""
    return [
        file.name
        for category in CATEGORIES_OF_ROLE[role]
        for file in catalog.files(category)
        if file.status == "ready"
        and file.identity is not None
        and file.identity.role is role
        and file.name in catalog.options(category, family)
    ]
