"""Adapter files (LoRA, LoHa, LoKr): which of their modules belong where, in any trainer's spelling.

Only headers are read here, so a wrong file is refused before anything is loaded.  Every key of a
file is counted: used, or named as unmatched.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from inline_core.errors import ModelFileInvalid
from inline_core.loading.component import LoraRef
from inline_core.loading.files import WeightFiles, open_weights
from inline_core.loading.header import TensorInfo
from inline_core.loading.identify import identify

AdapterKind = Literal["lora", "loha", "lokr"]

_PREFIXES: Final = (
    "base_model.model.",
    "model.diffusion_model.",
    "diffusion_model.",
    "transformer.",
    "unet.",
)
_FLAT_PREFIXES: Final = ("lora_unet_", "lora_transformer_", "lycoris_")
# The end of a key -> which part of an adapter module it is.
_PART: Final = re.compile(
    r"\.(?:"
    r"(?P<down>lora_A|lora_down|lora\.down|lora_linear_layer\.down)(?:\.default)?\.weight|"
    r"(?P<up>lora_B|lora_up|lora\.up|lora_linear_layer\.up)(?:\.default)?\.weight|"
    r"(?P<other>alpha|hada_w[12]_[ab]|lokr_w[12](?:_[ab])?)"
    r")$"
)
_REFUSED: Final = (
    (re.compile(r"\.(dora_scale|lora_magnitude_vector)(\.|$)"), "a DoRA"),
    (re.compile(r"\.oft_"), "an OFT"),
    (re.compile(r"\.(hada_t[12]|lokr_t2|lora_mid)(\.|$)"), "a Tucker-decomposed"),
    (re.compile(r"\.(a1|b1)\.weight$"), "a GLoRA"),
)
_MOST_NAMES: Final = 5


@dataclass(frozen=True, slots=True)
class AdapterTarget:
    """A weight that an adapter module stands for: all of it, or `span` equal blocks of its rows."""

    parameter: str
    part: int = 0
    parts: int = 1
    span: int = 1

    @property
    def module(self) -> str:
        """The linear that owns the weight."""
        return self.parameter.removesuffix(".weight")


@dataclass(frozen=True, slots=True)
class AdapterModule:
    """One module of an adapter file: its kind, the tensors of its parts, and what it changes.

    `parts` is the part's name (`down`, `up`, `alpha`, `hada_w1_a`, `lokr_w2_b`, ...) -> its key.
    """

    kind: AdapterKind
    parts: Mapping[str, str]
    targets: tuple[AdapterTarget, ...]


@dataclass(frozen=True, slots=True, eq=False)
class MatchedAdapter:
    """An adapter file with every module that found its weights."""

    adapter: LoraRef
    files: WeightFiles
    modules: tuple[AdapterModule, ...]
    unmatched: tuple[str, ...]

    @property
    def warning(self) -> str | None:
        """What of the file has no place in this model, in words; None if all has."""
        if not self.unmatched:
            return None
        return f"LoRA {self.adapter.name}: {self.counts}"

    @property
    def counts(self) -> str:
        """`only 2 of 3 modules fit this model (not: x)`."""
        total = len(self.modules) + len(self.unmatched)
        shown = ", ".join(self.unmatched[:_MOST_NAMES])
        more = ", ..." if len(self.unmatched) > _MOST_NAMES else ""
        return f"only {len(self.modules)} of {total} modules fit this model (not: {shown}{more})"


@dataclass(frozen=True, slots=True)
class AdaptedModel:
    """The model an adapter is put on: its name and family for people, its modules and shapes.

    `targets` knows the dotted names of the model's linears in every layout; `shapes` is weight
    name -> (out, in), of a convolution (out, in * height * width).  Only modules with one of
    `prefixes` are meant for it (none: all), those with one of `elsewhere` are for other components
    of a pipeline.
    """

    name: str
    label: str
    targets: Mapping[str, Sequence[AdapterTarget]]
    shapes: Mapping[str, tuple[int, ...]]
    prefixes: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()

    def has(self, name: str) -> bool:
        """Say whether a module or key of an adapter file is meant for this component."""
        if self.prefixes:
            return name.startswith(self.prefixes)
        return not name.startswith(self.elsewhere)


@dataclass(slots=True)
class _Sorted:
    """The keys of a file by module."""

    stems: defaultdict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    foreign: list[str] = field(default_factory=list)


def match_adapter(adapter: LoraRef, model: AdaptedModel) -> MatchedAdapter:
    """Find the weights for every module of an adapter file; reads its header only.

    Raises: ModelFileInvalid for other adapter kinds, for shapes that do not fit, if nothing fits,
    if less than half of it fits, or if anything is left over and the adapter asked for all.
    """
    files = open_weights(adapter.path, adapter.name)
    tensors = files.tensors
    _refuse_others(adapter, tensors)
    found = _sort(tensors)
    underscored = {name.replace(".", "_"): name for name in model.targets}
    modules: list[AdapterModule] = []
    unmatched = [name for name in found.foreign if model.has(name)]
    for stem, parts in sorted(found.stems.items()):
        if not model.has(stem):
            continue
        kind = _kind(parts)
        targets = tuple(model.targets.get(_module_name(stem, underscored, model.prefixes), ()))
        if kind is None or not targets:
            unmatched.append(stem)
            continue
        module = AdapterModule(kind, parts, targets)
        _check_shapes(adapter, module, tensors, model)
        modules.append(module)
    matched = MatchedAdapter(adapter, files, tuple(modules), tuple(sorted(unmatched)))
    # What has nothing for this component is meant for another one, if there are several.
    several = bool(model.prefixes or model.elsewhere)
    if modules or unmatched or not several:
        _check_counts(matched, model)
    return matched


def _refuse_others(adapter: LoraRef, tensors: Mapping[str, TensorInfo]) -> None:
    for pattern, kind in _REFUSED:
        if any(pattern.search(name) for name in tensors):
            message = (
                f"LoRA {adapter.name} is {kind} adapter, which is not supported: use a LoRA, LoHa "
                "or LoKr of it"
            )
            raise ModelFileInvalid(message)


def _sort(tensors: Mapping[str, TensorInfo]) -> _Sorted:
    found = _Sorted()
    for name in tensors:
        match = _PART.search(name)
        if match is None:
            found.foreign.append(name)
            continue
        part = "down" if match["down"] else "up" if match["up"] else match["other"]
        found.stems[name[: match.start()]][part] = name
    return found


def _kind(parts: Mapping[str, str]) -> AdapterKind | None:
    """What the parts make; None if some are missing."""
    has = parts.keys()
    if {"down", "up"} <= has:
        return "lora"
    if {"hada_w1_a", "hada_w1_b", "hada_w2_a", "hada_w2_b"} <= has:
        return "loha"
    first = "lokr_w1" in has or {"lokr_w1_a", "lokr_w1_b"} <= has
    second = "lokr_w2" in has or {"lokr_w2_a", "lokr_w2_b"} <= has
    return "lokr" if first and second else None


def _module_name(stem: str, underscored: Mapping[str, str], prefixes: Sequence[str] = ()) -> str:
    """The dotted module name behind any trainer's spelling; `prefixes` are those of a component."""
    for prefix in prefixes:
        if stem.startswith(prefix):
            rest = stem[len(prefix) :]
            return underscored.get(rest, "") if prefix.endswith("_") else rest
    for prefix in _FLAT_PREFIXES:
        if stem.startswith(prefix):
            return underscored.get(stem[len(prefix) :], "")
    for prefix in _PREFIXES:
        stem = stem.removeprefix(prefix)
    return stem


def _check_shapes(
    adapter: LoraRef,
    module: AdapterModule,
    tensors: Mapping[str, TensorInfo],
    model: AdaptedModel,
) -> None:
    made = _delta_shape(module, tensors)
    for target in module.targets:
        needs = model.shapes[target.parameter]
        has = (made[0] // target.parts * target.span, made[1])
        if has != needs:
            message = (
                f"LoRA {adapter.name} was made for another model: for {target.parameter} it has "
                f"shape {has}, {model.name} ({model.label}) has {needs}"
            )
            raise ModelFileInvalid(message)


def _delta_shape(module: AdapterModule, tensors: Mapping[str, TensorInfo]) -> tuple[int, int]:
    """(out, in) of the change of a module."""

    def shape(part: str) -> tuple[int, ...]:
        sizes = tensors[module.parts[part]].shape
        flat = 1
        for size in sizes[1:]:
            flat *= size
        return (sizes[0] if sizes else 1, flat)

    if module.kind == "lora":
        return shape("up")[0], shape("down")[1]
    if module.kind == "loha":
        return shape("hada_w1_a")[0], shape("hada_w1_b")[1]
    sides = [
        shape(f"lokr_w{side}")
        if f"lokr_w{side}" in module.parts
        else (shape(f"lokr_w{side}_a")[0], shape(f"lokr_w{side}_b")[1])
        for side in (1, 2)
    ]
    return sides[0][0] * sides[1][0], sides[0][1] * sides[1][1]


def _check_counts(matched: MatchedAdapter, model: AdaptedModel) -> None:
    adapter = matched.adapter
    if not matched.modules:
        made_for = identify(matched.files.headers).in_words()
        example = matched.unmatched[0] if matched.unmatched else "nothing"
        message = (
            f"LoRA {adapter.name} fits nothing in {model.name}: it is {made_for}, the model is "
            f"{model.label} (its first module is {example})"
        )
        raise ModelFileInvalid(message, details={"unmatched": list(matched.unmatched)})
    partly = len(matched.unmatched) > len(matched.modules)
    if matched.unmatched and (adapter.strict or partly):
        message = f"LoRA {adapter.name}: {matched.counts}"
        if not adapter.strict:
            message += ": it was made for another model"
        raise ModelFileInvalid(message, details={"unmatched": list(matched.unmatched)})
