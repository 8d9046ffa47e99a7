"""What the files of the models folders have to offer: whole files, and parts of checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from inline_core.loading.component import ComponentRef, Role
from inline_core.loading.identify import FileIdentity
from inline_core.loading.scan import ModelFile


@dataclass(frozen=True, slots=True)
class Piece:
    """One component on offer: a file, or with `part` what an all-in-one file has below it."""

    file: ModelFile
    identity: FileIdentity
    part: str = ""

    def reference(self, role: Role) -> ComponentRef:
        """How it is named for everybody else."""
        file, identity = self.file, self.identity
        return ComponentRef(
            role,
            identity.family,
            identity.variant,
            file.name,
            file.path,
            file.stamp,
            part=self.part,
        )

    @property
    def is_demo(self) -> bool:
        """True for what belongs to the bundled demo, wherever it lies."""
        return self.file.source == "demo" or self.identity.title.startswith("Inline demo")


def pieces_of(file: ModelFile) -> Iterator[Piece]:
    """The components of a file; of an all-in-one checkpoint its parts."""
    if file.identity is None:
        return
    if not file.identity.parts:
        yield Piece(file, file.identity)
        return
    for part, identity in file.identity.parts.items():
        yield Piece(file, identity, part)


def piece_for(file: ModelFile, role: Role) -> Piece | None:
    """The component of a file that has a role; of other files the whole, to be refused by name."""
    found = list(pieces_of(file))
    same = (piece for piece in found if piece.identity.role is role)
    return next(same, next(iter(found), None))


def closest(pieces: Iterable[Piece], model: ComponentRef) -> list[Piece]:
    """The best company of a diffusion model first.

    Parts of its own file, then of its folder; parts of other checkpoints only after files of their
    own.  A demo's files are for demo models, and for no others: its latents and features fit
    nothing else, whatever the shapes.
    """
    demo = model.variant == "demo"
    pieces = list(pieces)
    fitting = [piece for piece in pieces if piece.is_demo == demo] or (pieces if demo else [])

    def distance(piece: Piece) -> tuple[bool, bool, bool]:
        path = piece.file.path
        return (path != model.path, bool(piece.part), path.parent != model.path.parent)

    return sorted(fitting, key=distance)


def identity_in(files: Sequence[ModelFile], reference: ComponentRef) -> FileIdentity | None:
    """What a component was identified as, if its file is among these."""
    for file in files:
        if file.path == reference.path:
            for piece in pieces_of(file):
                if piece.part == reference.part:
                    return piece.identity
    return None
