"""Adapters at work: what each adds to the output of a linear, switched on and off in place.

Nothing is ever merged: the weights of the model stay as they are (mapped, int8, packed or
streamed), so switching costs no reload and the base is bit-equal afterwards.  Formulas: LoRA (Hu et
al. 2021, arXiv:2106.09685), LoHa (Hyeon-Woo et al. 2021, arXiv:2108.06098), LoKr (Yeh et al. 2023,
arXiv:2309.14859), scaled by ``strength * alpha / rank``.  Used on the device thread only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from inline_core.errors import ModelFileInvalid
from inline_core.loading.adapters import AdapterModule, AdapterTarget, MatchedAdapter
from inline_core.loading.reader import TensorReader
from inline_core.loading.stages import AbsentBlock


class Delta(Protocol):
    """What a module of an adapter adds at strength 1."""

    def __call__(self, inputs: Tensor) -> Tensor:
        """(..., in) -> (..., out), in the dtype of the inputs."""

    def convolved(self, inputs: Tensor, like: nn.Conv2d) -> Tensor:
        """The same for a convolution: (n, in, h, w) -> (n, out, ...), in steps as `like` goes."""


@dataclass(frozen=True, slots=True, eq=False)
class LoraDelta:
    """``scale * up @ down``; `down` (rank, in), `up` (out, rank)."""

    down: Tensor
    up: Tensor
    scale: float

    def __call__(self, inputs: Tensor) -> Tensor:
        """See `Delta`."""
        inner = functional.linear(inputs, self.down.to(inputs.dtype))  # (..., rank)
        return functional.linear(inner, self.up.to(inputs.dtype)) * self.scale  # (..., out)

    def convolved(self, inputs: Tensor, like: nn.Conv2d) -> Tensor:
        """See `Delta`; `down` has the window, `up` only mixes channels."""
        inner = _convolved(inputs, self.down, like)  # (n, rank, h, w)
        up = self.up.to(inputs.dtype)[:, :, None, None]  # (out, rank, 1, 1)
        return functional.conv2d(inner, up) * self.scale


@dataclass(frozen=True, slots=True, eq=False)
class LohaDelta:
    """``scale * (a1 @ b1) * (a2 @ b2)``; `a` (out, rank), `b` (rank, in).

    The product is made anew in each pass: keeping it would take as much as the model itself.
    """

    a1: Tensor
    b1: Tensor
    a2: Tensor
    b2: Tensor
    scale: float

    def __call__(self, inputs: Tensor) -> Tensor:
        """See `Delta`."""
        return functional.linear(inputs, self._weight().to(inputs.dtype))  # (..., out)

    def convolved(self, inputs: Tensor, like: nn.Conv2d) -> Tensor:
        """See `Delta`."""
        return _convolved(inputs, self._weight(), like)

    def _weight(self) -> Tensor:
        return (self.a1 @ self.b1) * (self.a2 @ self.b2) * self.scale  # (out, in)


@dataclass(frozen=True, slots=True, eq=False)
class LokrDelta:
    """``scale * kron(first, second)`` without writing the product; rows `start` to `stop` of it.

    `first` (a, b), `second` (c, d): the weight is (a * c, b * d).
    """

    first: Tensor
    second: Tensor
    scale: float
    start: int
    stop: int

    def __call__(self, inputs: Tensor) -> Tensor:
        """See `Delta`."""
        first, second = self.first.to(inputs.dtype), self.second.to(inputs.dtype)
        grid = inputs.reshape(*inputs.shape[:-1], first.shape[1], second.shape[1])  # (..., b, d)
        mixed = functional.linear(grid, second)  # (..., b, c)
        made = torch.einsum("ab,...bc->...ac", first, mixed).flatten(-2)  # (..., a * c)
        return made[..., self.start : self.stop] * self.scale  # (..., out)

    def convolved(self, inputs: Tensor, like: nn.Conv2d) -> Tensor:
        """See `Delta`; here the product is written, as windows do not come apart."""
        whole = torch.kron(self.first, self.second)[self.start : self.stop]  # (out, in * window)
        return _convolved(inputs, whole * self.scale, like)


def _convolved(inputs: Tensor, flat: Tensor, like: nn.Conv2d) -> Tensor:
    """A convolution with a flat weight (out, in * height * width) that goes as another one does."""
    weight = flat.to(inputs.dtype).view(-1, *like.weight.shape[1:])  # (out, in, height, width)
    return functional.conv2d(
        inputs, weight, None, like.stride, like.padding, like.dilation, like.groups
    )


@dataclass(frozen=True, slots=True, eq=False)
class LoadedAdapter:
    """The deltas of one file by the name of the linear they belong to."""

    name: str
    deltas: Mapping[str, tuple[Delta, ...]]


def load_adapter(matched: MatchedAdapter, device: str, check: Callable[[], None]) -> LoadedAdapter:
    """Read the tensors of a matched file in float32.  Raises: ModelFileInvalid, RunCancelled."""
    deltas: defaultdict[str, list[Delta]] = defaultdict(list)
    with TensorReader(matched.files, matched.adapter.name) as reader:
        for module in matched.modules:
            check()
            tensors = {
                part: reader.buffered(name).to(device, torch.float32, copy=True)
                for part, name in module.parts.items()
            }
            _check_finite(matched.adapter.name, module, tensors)
            for target in module.targets:
                deltas[target.module].append(_delta(module, tensors, target))
    return LoadedAdapter(
        matched.adapter.name, {name: tuple(found) for name, found in deltas.items()}
    )


def _check_finite(name: str, module: AdapterModule, tensors: Mapping[str, Tensor]) -> None:
    for part, tensor in tensors.items():
        if not bool(torch.isfinite(tensor).all()):
            message = f"LoRA {name} has NaN or infinity in {module.parts[part]}: it is damaged"
            raise ModelFileInvalid(message)


def _delta(module: AdapterModule, tensors: Mapping[str, Tensor], target: AdapterTarget) -> Delta:
    """The change of one weight; without an alpha in the file alpha is the rank."""
    alpha = float(tensors["alpha"]) if "alpha" in tensors else None
    if module.kind == "lora":
        down, up = tensors["down"].flatten(1), tensors["up"].flatten(1)  # (rank, in), (out, rank)
        scale = 1.0 if alpha is None else alpha / down.shape[0]
        return LoraDelta(down, _block(up, target), scale)
    if module.kind == "loha":
        a1, b1, a2, b2 = (tensors[f"hada_w{number}_{side}"] for number in "12" for side in "ab")
        scale = 1.0 if alpha is None else alpha / b1.shape[0]
        return LohaDelta(_block(a1, target), b1, _block(a2, target), b2, scale)
    return _lokr(tensors, alpha, target)


def _lokr(tensors: Mapping[str, Tensor], alpha: float | None, target: AdapterTarget) -> LokrDelta:
    """Each side is a matrix or a product of two; alpha counts only with a product, as trained."""
    sides, rank = [], None
    for number in "12":
        whole = tensors.get(f"lokr_w{number}")
        if whole is None:
            a, b = tensors[f"lokr_w{number}_a"], tensors[f"lokr_w{number}_b"].flatten(1)
            whole, rank = a @ b, b.shape[0]  # (rows, columns)
        sides.append(whole.flatten(1))
    scale = 1.0 if alpha is None or rank is None else alpha / rank
    rows = sides[0].shape[0] * sides[1].shape[0] // target.parts
    end = (target.part + target.span) * rows
    return LokrDelta(sides[0], sides[1], scale, target.part * rows, end)


def _block(tensor: Tensor, target: AdapterTarget) -> Tensor:
    rows = tensor.shape[0] // target.parts
    return tensor.narrow(0, target.part * rows, target.span * rows)


class AdapterSwitch:
    """Puts adapters on one loaded model and takes them off; between passes, never within one."""

    def __init__(self, module: nn.Module) -> None:
        # As they are called now: a pipeline renumbers the blocks that it keeps.
        self._layers = dict(module.named_modules())
        self._on: tuple[tuple[LoadedAdapter, float], ...] = ()
        self._handles: list[Any] = []

    def use(self, adapters: Sequence[tuple[LoadedAdapter, float]]) -> None:
        """Make exactly these (adapter, strength) pairs work; cheap if they do already."""
        wanted = tuple((adapter, strength) for adapter, strength in adapters if strength)
        same = len(wanted) == len(self._on) and all(
            new[0] is old[0] and new[1] == old[1] for new, old in zip(wanted, self._on, strict=True)
        )
        if same:
            return
        for handle in self._handles:
            handle.remove()
        self._handles, self._on = [], ()
        by_linear: defaultdict[str, list[tuple[Delta, float]]] = defaultdict(list)
        for adapter, strength in wanted:
            for name, deltas in adapter.deltas.items():
                by_linear[name].extend((delta, strength) for delta in deltas)
        for name, changes in by_linear.items():
            if self._is_elsewhere(name):
                continue
            linear = self._layers[name]
            self._handles.append(linear.register_forward_hook(_adding(changes)))
        self._on = wanted

    def _is_elsewhere(self, name: str) -> bool:
        """Whether the layer is part of a block that another process holds."""
        parts = name.split(".")
        above = (".".join(parts[:count]) for count in range(1, len(parts)))
        return any(isinstance(self._layers.get(owner), AbsentBlock) for owner in above)


def _adding(changes: Sequence[tuple[Delta, float]]) -> Callable[[nn.Module, Any, Tensor], Tensor]:
    def hook(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        for delta, strength in changes:
            if isinstance(layer, nn.Conv2d):
                made = delta.convolved(inputs[0], layer)
            else:
                made = delta(inputs[0])
            output = output + made.to(output.dtype) * strength  # (..., out)
        return output

    return hook
