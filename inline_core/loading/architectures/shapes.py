"""The names and shapes of one model, as the descriptions of the architectures read them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from inline_core.loading.header import TensorInfo


class MissingTensorError(Exception):
    """A tensor that every whole model of its kind has is not in the file; `name` is its name."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Shapes:
    """Looks up names and shapes below a prefix; never the data.

    Most methods take several names, one per layout: the first one that is there is meant.
    """

    def __init__(self, tensors: Mapping[str, TensorInfo], prefix: str = "") -> None:
        self.tensors = tensors
        self.prefix = prefix

    def below(self, prefix: str) -> Shapes:
        """The part whose names have this prefix, without it."""
        if not prefix:
            return self
        start = len(prefix)
        names = self.groups.get(prefix.partition(".")[0], ())
        part = {name[start:]: self.tensors[name] for name in names if name.startswith(prefix)}
        return Shapes(part, self.prefix + prefix)

    def first_prefix(self, prefixes: Iterable[str]) -> str:
        """The first of the prefixes that any name has, or ""."""
        for prefix in prefixes:
            names = self.groups.get(prefix.partition(".")[0], ())
            if any(name.startswith(prefix) for name in names):
                return prefix
        return ""

    def __contains__(self, name: object) -> bool:
        return name in self.tensors

    @cached_property
    def groups(self) -> Mapping[str, Sequence[str]]:
        """All names by what stands before their first dot.

        Every search for a prefix looks into one group only: a file has thousands of names.
        """
        groups: defaultdict[str, list[str]] = defaultdict(list)
        for name in self.tensors:
            groups[name.partition(".")[0]].append(name)
        return dict(groups)

    def has_all(self, keys: Iterable[str]) -> bool:
        """Say whether all keys are there; `group.*` stands for any name that starts so."""
        return all(
            key[:-2] in self.groups if key.endswith(".*") else key in self.tensors for key in keys
        )

    def has(self, *names: str) -> bool:
        """Say whether one of the names is there."""
        return any(name in self.tensors for name in names)

    def shape(self, *names: str) -> tuple[int, ...]:
        """The shape of the first of the names that is there.  Raises: MissingTensorError."""
        for name in names:
            info = self.tensors.get(name)
            if info is not None:
                return info.shape
        raise MissingTensorError(names[0])

    def rows(self, *names: str) -> int:
        """The first size of a tensor (output features).  Raises: MissingTensorError."""
        return self.size(0, *names)

    def columns(self, *names: str) -> int:
        """The second size of a tensor (input features).  Raises: MissingTensorError."""
        return self.size(1, *names)

    def size(self, axis: int, *names: str) -> int:
        """One size of a tensor; a tensor with too few axes counts as absent."""
        shape = self.shape(*names)
        if not -len(shape) <= axis < len(shape):
            raise MissingTensorError(names[0])
        return shape[axis]

    def count(self, *starts: str) -> int:
        """Number of numbered blocks below the first start that has any (`layers.` -> 30)."""
        for start in starts:
            number = count_blocks(self.groups.get(start.partition(".")[0], ()), start)
            if number:
                return number
        return 0


def count_blocks(names: Iterable[str], start: str) -> int:
    """Number of numbered blocks below `start` (`layers.` -> 30)."""
    length = len(start)
    numbers = {name[length:].partition(".")[0] for name in names if name.startswith(start)}
    return sum(number.isdigit() for number in numbers)
