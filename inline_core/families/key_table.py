"""Names of a transformer's weights in original files, and diffusers' names for them, as one table.

The table is read in both directions: to load either layout, and to find the linears that the
modules of an adapter mean, whatever spelling its trainer used.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from inline_core.loading.adapters import AdapterTarget
from inline_core.loading.stream import TensorSource

# Original module -> diffusers modules.  Several of them are consecutive row blocks of a fused one:
# equal ones, or where widths differ (name, how many of the smallest common block it has).
Pieces = tuple[str | tuple[str, int], ...]
Modules = Mapping[str, Pieces]

# Norms are called `scale` in original files of Black Forest Labs.
_LEAVES: Final = MappingProxyType({"scale": "weight"})


@dataclass(frozen=True, slots=True)
class KeyTable:
    """How two layouts call the same modules.

    `outer` has the modules outside of repeated blocks; `groups` are (original group, diffusers
    group, modules in each block of it).  `leaves` renames parameters of original modules.
    `swapped` are original modules whose halves of rows lie the other way round (shift and scale);
    `ignorable` are names without prefix that a file may have and nobody needs; `folded` are
    parameters (under their new name) that original files keep as one long vector.  A module named
    "" is the block itself.
    """

    outer: Modules
    groups: tuple[tuple[str, str, Modules], ...] = ()
    swapped: frozenset[str] = frozenset()
    leaves: Mapping[str, str] = field(default_factory=lambda: _LEAVES)
    ignorable: tuple[str, ...] = ()
    folded: frozenset[str] = frozenset()

    def sources(self, names: Iterable[str], prefix: str) -> dict[str, TensorSource]:
        """Module name -> place in the file, for the original and the diffusers layout alike."""
        sources: dict[str, TensorSource] = {}
        for name in names:
            if not name.startswith(prefix):
                continue
            bare = name[len(prefix) :]
            if bare in self.ignorable:
                continue
            module, _, leaf = bare.rpartition(".")
            pieces = self._in_diffusers(module)
            renamed = self.leaves.get(leaf, leaf)
            parts = sum(span for _, span in pieces)
            part = 0
            for target, span in pieces:
                target_name = f"{target}.{renamed}" if target else renamed
                sources[target_name] = TensorSource(
                    name,
                    part,
                    parts,
                    swapped=module in self.swapped,
                    span=span,
                    folded=renamed in self.folded,
                )
                part += span
        return sources

    def ignored(self, prefix: str) -> list[str]:
        """Names in a file with this prefix that may be left over."""
        return [prefix + name for name in self.ignorable]

    def adapter_targets(self, parameters: Iterable[str]) -> dict[str, list[AdapterTarget]]:
        """Every spelling of a linear, diffusers' and the original's, to the weights it means."""
        targets: dict[str, list[AdapterTarget]] = {}
        for parameter in parameters:
            module = parameter.removesuffix(".weight")
            if module == parameter:
                continue
            targets.setdefault(module, []).append(AdapterTarget(parameter))
            original, part, parts, span = self._in_original(module)
            # The rows of a change for a swapped one would lie in another order.
            if original != module and original not in self.swapped:
                target = AdapterTarget(parameter, part, parts, span)
                targets.setdefault(original, []).append(target)
        return targets

    def _in_diffusers(self, module: str) -> list[tuple[str, int]]:
        """The modules that an original one became; a name of diffusers stays as it is."""
        for original, diffusers, inner in self.groups:
            match = re.fullmatch(rf"{re.escape(original)}\.(\d+)\.(.+)", module)
            if match and match.group(2) in inner:
                start = f"{diffusers}.{match.group(1)}."
                spans = _spans(inner[match.group(2)])
                return [((start + name).rstrip("."), span) for name, span in spans]
        return _spans(self.outer.get(module, (module,)))

    def _in_original(self, module: str) -> tuple[str, int, int, int]:
        """The original module that one of diffusers is a part of: which part, of how many, span."""
        for original, diffusers, inner in self.groups:
            match = re.fullmatch(rf"{re.escape(diffusers)}\.(\d+)\.(.+)", module)
            if match:
                owner, *place = _owner(match.group(2), inner)
                return (f"{original}.{match.group(1)}.{owner}", place[0], place[1], place[2])
        return _owner(module, self.outer)


def _spans(pieces: Pieces) -> list[tuple[str, int]]:
    return [(piece, 1) if isinstance(piece, str) else piece for piece in pieces]


def _owner(module: str, table: Modules) -> tuple[str, int, int, int]:
    for original, pieces in table.items():
        part = 0
        spans = _spans(pieces)
        for name, span in spans:
            if name == module:
                return original, part, sum(size for _, size in spans), span
            part += span
    return module, 0, 1, 1
