"""LoRA files: whatever trainer wrote them, their deltas end in the weights they were made for.

A delta is ``strength * alpha / rank * B @ A`` (Hu et al. 2021, arXiv:2106.09685); without an alpha
in the file alpha is the rank.  Deltas are merged into a copy of the weights while a model loads, in
float32; a model with other adapters is another component, so nothing is ever unmerged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from inline_core.errors import ModelFileInvalid
from inline_core.loading.component import LoraRef
from inline_core.loading.files import open_weights

if TYPE_CHECKING:
    from torch import Tensor, nn

_PREFIXES: Final = (
    "base_model.model.",
    "model.diffusion_model.",
    "diffusion_model.",
    "transformer.",
    "unet.",
)
_KOHYA: Final = "lora_unet_"
_DOWN: Final = re.compile(
    r"\.(lora_A|lora_down|lora\.down|lora_linear_layer\.down)(\.default)?\.weight$"
)
_UP: Final = re.compile(r"\.(lora_B|lora_up|lora\.up|lora_linear_layer\.up)(\.default)?\.weight$")
_REFUSED: Final = (
    ("lokr_", "LoKr"),
    ("hada_", "LoHa"),
    ("dora_scale", "DoRA"),
    ("oft_", "OFT"),
)
_MOST_NAMES: Final = 5


@dataclass(frozen=True, slots=True)
class AdapterTarget:
    """A weight that an adapter module stands for: all of it, or one of equal row blocks of B."""

    parameter: str
    part: int = 0
    parts: int = 1


@dataclass(frozen=True, slots=True)
class AdapterPair:
    """Names of one A, its B and its alpha in the file, and what they change."""

    down: str
    up: str
    alpha: str | None
    targets: tuple[AdapterTarget, ...]


@dataclass(frozen=True, slots=True)
class MatchedAdapter:
    """An adapter file with every pair that found its weights."""

    adapter: LoraRef
    pairs: tuple[AdapterPair, ...]
    unmatched: tuple[str, ...]

    @property
    def warning(self) -> str | None:
        """What of the file has no place in this model, in words; None if all has."""
        if not self.unmatched:
            return None
        total = len(self.pairs) + len(self.unmatched)
        shown = ", ".join(self.unmatched[:_MOST_NAMES])
        return (
            f"LoRA {self.adapter.name}: only {len(self.pairs)} of {total} modules fit this model "
            f"(not: {shown})"
        )


def match_adapter(
    adapter: LoraRef, targets: Mapping[str, Sequence[AdapterTarget]], model: str
) -> MatchedAdapter:
    """Find the weights for every module of an adapter file; reads its header only.

    `targets` knows the dotted names of the model's modules, in every layout.
    Raises: ModelFileInvalid for other adapter kinds, or if nothing fits.
    """
    names = set(open_weights(adapter.path, adapter.name).tensors)
    for mark, kind in _REFUSED:
        if any(mark in name for name in names):
            message = f"LoRA {adapter.name} is a {kind} adapter, which is not supported"
            raise ModelFileInvalid(message)
    underscored = {name.replace(".", "_"): name for name in targets}
    pairs: list[AdapterPair] = []
    unmatched: list[str] = []
    for down in sorted(name for name in names if _DOWN.search(name)):
        stem = _DOWN.sub("", down)
        up = next((name for name in names if _UP.search(name) and _UP.sub("", name) == stem), None)
        found = targets.get(_module_name(stem, underscored), ())
        if up is None or not found:
            unmatched.append(stem)
            continue
        alpha = f"{stem}.alpha" if f"{stem}.alpha" in names else None
        pairs.append(AdapterPair(down, up, alpha, tuple(found)))
    if not pairs:
        example = unmatched[0] if unmatched else next(iter(sorted(names)), "nothing")
        message = (
            f"LoRA {adapter.name} fits nothing in {model}: it was made for another model "
            f"(its first module is {example})"
        )
        raise ModelFileInvalid(message)
    return MatchedAdapter(adapter, tuple(pairs), tuple(unmatched))


def _module_name(stem: str, underscored: Mapping[str, str]) -> str:
    """The dotted module name behind any trainer's spelling."""
    if stem.startswith(_KOHYA):
        return underscored.get(stem[len(_KOHYA) :], "")
    for prefix in _PREFIXES:
        stem = stem.removeprefix(prefix)
    return stem


def merge_adapters(
    module: nn.Module, adapters: Iterable[MatchedAdapter], check: Callable[[], None]
) -> None:
    """Add the deltas to the weights of a freshly loaded module; device thread.

    Weights are replaced, never changed in place, since they may be a mapped file.
    Raises: ModelFileInvalid if a shape does not fit, RunCancelled.
    """
    import torch
    from safetensors import safe_open

    for matched in adapters:
        if matched.adapter.strength == 0:
            continue
        with safe_open(str(matched.adapter.path), framework="pt") as file:
            for pair in matched.pairs:
                check()
                down = file.get_tensor(pair.down).float().flatten(1)  # (rank, in)
                up = file.get_tensor(pair.up).float().flatten(1)  # (out, rank)
                rank = down.shape[0]
                alpha = float(file.get_tensor(pair.alpha)) if pair.alpha else float(rank)
                scale = matched.adapter.strength * alpha / rank
                for target in pair.targets:
                    rows = up.shape[0] // target.parts
                    part = up.narrow(0, target.part * rows, rows)  # (out / parts, rank)
                    _add(module, target.parameter, scale * (part @ down), matched.adapter, torch)


def _add(module: nn.Module, name: str, delta: Tensor, adapter: LoraRef, torch: Any) -> None:
    owner, _, leaf = name.rpartition(".")
    parent = module.get_submodule(owner)
    weight: Tensor = getattr(parent, leaf)
    if delta.shape != weight.shape:
        message = (
            f"LoRA {adapter.name} was made for another model: for {name} it has shape "
            f"{tuple(delta.shape)}, the model has {tuple(weight.shape)}"
        )
        raise ModelFileInvalid(message)
    merged = (weight.float() + delta.to(weight.device)).to(weight.dtype)
    setattr(parent, leaf, torch.nn.Parameter(merged, requires_grad=False))
