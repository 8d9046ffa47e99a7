"""What the settings say about how loaded modules are run and previewed.  Never imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from inline_core.families.registry import model_roots
from inline_core.settings import Settings


@dataclass(frozen=True, slots=True)
class ModuleOptions:
    """Choices that hold for every model of a server.

    `tiny_folders` are where tiny autoencoders for previews lie, `attention` is the name of an
    attention backend, `compiled` says that repeated blocks are compiled.
    """

    tiny_folders: tuple[Path, ...] = ()
    attention: str = "native"
    compiled: bool = False

    @classmethod
    def of(cls, settings: Settings) -> ModuleOptions:
        """The options of a server's settings."""
        return cls(
            tiny_folders=tuple(root.path / "vae_approx" for root in model_roots(settings)),
            attention=settings.attention,
            compiled=settings.compile,
        )
