"""How one forward pass is divided over the ranks of a group: plain data, no hardware asked.

A rank is one process, on a GPU of its own.  What may be split, and how a split is chosen, is
decided in `split_choice`; what the user asked for is read in `split_setting`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, Literal, get_args

from inline_core.devices.budget import Demand, Weights

BackendName = Literal["xdit", "diffusers"]
Mode = Literal["ulysses", "ring", "pipefusion", "cfg"]

BACKENDS: Final[tuple[BackendName, ...]] = get_args(BackendName)
MODES: Final[tuple[Mode, ...]] = get_args(Mode)
MODE_WORDS: Final[Mapping[Mode, str]] = MappingProxyType(
    {"ulysses": "Ulysses", "ring": "ring", "pipefusion": "PipeFusion", "cfg": "CFG"}
)
# A forward pass is counted as at least so many values a token and unit of width (see
# `sampling.footprint`: 12 for attention, 16 to 24 with usual feed-forward parts); a kept key and
# value are two.
_WIDTHS_OF_PASS: Final = 16
_KEY_AND_VALUE: Final = 2


@dataclass(frozen=True, slots=True)
class Split:
    """How one forward pass is divided over the ranks of a group.

    `ulysses` and `ring` divide the tokens of the picture, `pipefusion` the layers of the model,
    `cfg` (1 or 2) the estimates with and without the prompt; all are counts, at least 1.  `warmup`
    are the steps that PipeFusion computes whole before it uses values of the step before, `patches`
    the pieces it cuts the picture into (0: as many as it has stages).
    """

    backend: BackendName
    ulysses: int = 1
    ring: int = 1
    pipefusion: int = 1
    cfg: int = 1
    warmup: int = 1
    patches: int = 0

    @property
    def world(self) -> int:
        """How many ranks it takes."""
        return math.prod(self.degree(mode) for mode in MODES)

    @property
    def sequence(self) -> int:
        """Into how many parts the tokens of the picture are divided."""
        return self.ulysses * self.ring

    @property
    def exact(self) -> bool:
        """Whether the picture is the one that a single device makes, but for rounding."""
        return self.pipefusion == 1

    @property
    def pieces(self) -> int:
        """How many pieces of the picture follow each other through the stages of PipeFusion."""
        return self.patches or self.pipefusion

    def degree(self, mode: Mode) -> int:
        """The degree of one mode."""
        return int(getattr(self, mode))

    @property
    def key(self) -> str:
        """`xdit:ulysses=2,ring=2`: what `of_key` reads, and what tells groups apart."""
        named: dict[str, int] = {}
        named |= {mode: self.degree(mode) for mode in MODES if self.degree(mode) > 1}
        if self.pipefusion > 1:
            named |= {"warmup": self.warmup, "patches": self.patches}
        return f"{self.backend}:{','.join(f'{name}={value}' for name, value in named.items())}"

    @classmethod
    def of_key(cls, text: str) -> Split:
        """The split of a `key`.  Raises: ValueError for text that is none."""
        name, colon, rest = text.partition(":")
        backend = next((one for one in BACKENDS if one == name), None)
        pairs = [part.partition("=") for part in rest.split(",") if part]
        known = {*MODES, "warmup", "patches"}
        if not colon or backend is None or any(key not in known for key, _, _ in pairs):
            message = f"not the key of a split: {text!r}"
            raise ValueError(message)
        degrees: dict[str, Any] = {key: int(value) for key, _, value in pairs}
        return cls(backend, **degrees)

    @property
    def in_words(self) -> str:
        """`xdit, Ulysses 2 x ring 2 on 4 ranks`."""
        degrees = (
            f"{MODE_WORDS[mode]} {self.degree(mode)}" for mode in MODES if self.degree(mode) > 1
        )
        words = ", ".join(part for part in (self.backend, " x ".join(degrees)) if part)
        return f"{words} on {self.world} {'rank' if self.world == 1 else 'ranks'}"


@dataclass(frozen=True, slots=True)
class SplitTraits:
    """What of a family's model can be split; families declare it, by default nothing.

    `xdit` and `diffusers` are the modes that each backend has for the model, `prefers` the backend
    that is taken where both could do it.  `pads_heads` says that xDiT adds heads of zeros where
    their number cannot be divided.  `few_steps` are variants with so few steps that PipeFusion is
    no use, `without_cfg` variants that take no classifier-free guidance.
    """

    xdit: frozenset[Mode] = frozenset()
    diffusers: frozenset[Mode] = frozenset()
    prefers: BackendName = "xdit"
    pads_heads: bool = False
    few_steps: frozenset[str] = frozenset()
    without_cfg: frozenset[str] = frozenset()

    def modes(self, backend: BackendName) -> frozenset[Mode]:
        """What a backend can do with the model."""
        return self.xdit if backend == "xdit" else self.diffusers

    @property
    def backends(self) -> tuple[BackendName, ...]:
        """The backends that can do anything with the model, the preferred one first."""
        ordered = sorted(BACKENDS, key=lambda backend: backend != self.prefers)
        return tuple(backend for backend in ordered if self.modes(backend))


UNSPLIT: Final = SplitTraits()


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What of a model decides how it can be split.

    `label` is the name of its file, `family` the label of its family (`FLUX.1`); `heads` are those
    of an attention, `layers` the blocks that a pass goes through; 0 where that is not known.
    """

    label: str
    family: str
    variant: str
    heads: int
    layers: int


@dataclass(frozen=True, slots=True)
class SplitDecision:
    """The split of a model's passes, or None, with `reasons` in words for either.

    `problems` are those of a split that was asked for and cannot be had (`split` is then None).
    `gpus` are the indexes that torch has for the GPUs of the ranks, in order of the ranks; empty
    on a processor and where nothing is split.
    """

    split: Split | None
    reasons: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    gpus: tuple[int, ...] = ()


def split_weights(weights: Weights, split: Split, layers: int = 0) -> Weights:
    """What the largest rank holds of a model's weights.

    Every rank has the whole model, but for PipeFusion, where a stage has its share of the blocks
    and all that is outside of them.  Stages are even in `layers`, not in bytes, so that with their
    number (0: not known) a stage counts as that many of the largest blocks, if that is more.
    """
    stages = split.pipefusion
    if stages == 1 or not weights.values:
        return weights
    in_blocks = max(weights.values - weights.outside, 0)
    share = max(_part(in_blocks, stages), _part(layers, stages) * weights.largest_block)
    share = min(share, in_blocks)
    held = weights.values - in_blocks + share

    def of_blocks(amount: int) -> int:
        return _part(amount * share, max(in_blocks, 1))

    def of_all(amount: int) -> int:
        return _part(amount * held, weights.values)

    return replace(
        weights,
        values=held,
        linear_values=of_blocks(weights.linear_values),
        linear_rows=of_blocks(weights.linear_rows),
        file_bytes=of_all(weights.file_bytes),
        packed_bytes=of_all(weights.packed_bytes),
    )


def split_demand(demand: Demand, split: Split, layers: int = 0) -> Demand:
    """What the largest rank needs of memory; encoding and decoding are not divided.

    By the table in the README of xDiT, with A for the activations of a pass: splitting the tokens
    over N ranks leaves 2A/N (the parts, and what is exchanged), PipeFusion with M pieces 2A/M and
    the keys and values of the stage's `layers` for the whole picture (0: taken for 2A, as of 32
    layers in two stages).  CFG counts as nothing saved, since a pass may have one estimate only.
    """
    work = demand.work
    values = work.denoise_values
    parts = split.sequence
    share = values if parts == 1 else min(values, _part(2 * values, parts))
    if split.pipefusion > 1:
        kept = _part(_KEY_AND_VALUE * layers * values, _WIDTHS_OF_PASS * split.pipefusion)
        share = min(share, _part(2 * share, split.pieces))
        share += _part(kept if layers else 2 * values, parts)
    model = split_weights(demand.model, split, layers)
    return replace(demand, model=model, work=replace(work, denoise_values=share))


def _part(amount: int, parts: int) -> int:
    """One of `parts`, rounded up."""
    return -(-amount // parts)
