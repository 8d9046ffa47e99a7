"""Fill a module that was built on the meta device, tensor by tensor, from weight files.

On the processor a tensor of the right precision is used where it lies in the mapped file, so
loading copies nothing; everything else passes through one reusable buffer to its final place and
precision, so that the model never exists twice.  Used on the device thread only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from inline_core.errors import ModelFileInvalid
from inline_core.loading.blocks import is_block_linear
from inline_core.loading.files import WeightFiles
from inline_core.loading.packing import LogicalTensors, Packing, logical_tensors
from inline_core.loading.reader import TensorReader

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from inline_core.devices.placement import Placement
    from inline_core.loading.identify import FileIdentity

_MOST_NAMES: Final = 5


@dataclass(frozen=True, slots=True)
class TensorSource:
    """Where the weight of a module comes from: a tensor of the file, or rows of it.

    `part` of `parts` picks one of equal row blocks (q, k, v of a fused projection), or `span` of
    them where the projections have different widths; `flatten` drops trailing dimensions of size 1
    (1x1 convolutions that became linear); `swapped` exchanges the two halves of the rows (scale and
    shift, which layouts order differently); `folded` lays a long vector out as rows; `transposed`
    exchanges rows and columns of the whole.
    """

    name: str
    part: int = 0
    parts: int = 1
    flatten: bool = False
    swapped: bool = False
    span: int = 1
    folded: bool = False
    transposed: bool = False


def prefixed_sources(names: Iterable[str], prefix: str) -> dict[str, TensorSource]:
    """Module name -> place in the file; what lies outside of the prefix is left out."""
    return {name[len(prefix) :]: TensorSource(name) for name in names if name.startswith(prefix)}


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """All that a loader needs: checked files, what they are, where to put them, how to call them.

    `logical` has the tensors under their plain names and how packed ones lie in the file.
    `check` is called between tensors and raises to stop the load.  `stage` is (which, of how many)
    where a process of a pipeline loads its part of the blocks only.
    """

    files: WeightFiles
    identity: FileIdentity
    placement: Placement
    label: str
    check: Callable[[], None]
    stage: tuple[int, int] = (0, 1)
    logical: LogicalTensors = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "logical", logical_tensors(self.files.headers))


def fill(
    module: nn.Module,
    sources: Mapping[str, TensorSource],
    plan: LoadPlan,
    *,
    ignorable: Collection[str] = (),
    precise: Collection[str] = (),
) -> None:
    """Give every parameter of `module` its weight, at the place and precision of the plan.

    Strict: every parameter must have a source and every tensor of the file must be used, except
    those in `ignorable`.  Parameters with one of `precise` in their dotted name stay in float32,
    whatever the placement computes in.  Linears of repeated blocks become int8 or stay packed if
    the placement says so.
    Raises: ModelFileInvalid with counts and the first five names, RunCancelled.
    """
    if plan.logical.problems:
        message = f"{plan.label}: {plan.logical.problems[0]}"
        raise ModelFileInvalid(message)
    wanted = dict(module.named_parameters())
    names = plan.logical.tensors.keys()
    missing = sorted(wanted.keys() - sources.keys())
    used = {source.name for name, source in sources.items() if name in wanted}
    unexpected = sorted(set(names) - used - set(ignorable))
    if missing or unexpected:
        raise ModelFileInvalid(_mismatch(plan.label, missing, unexpected))
    pinned = plan.placement.storage.startswith("cuda")
    with TensorReader(plan.files, plan.label, pinned=pinned) as reader:
        _Filler(module, sources, plan, reader, frozenset(precise)).run(wanted)
        reader.check_unchanged()
    left = [name for name, buffer in module.named_buffers() if buffer.is_meta]
    if left:
        message = f"{plan.label}: buffers without a value: {', '.join(left[:_MOST_NAMES])}"
        raise ModelFileInvalid(message)


class _Filler:
    """One load: walks the parameters as their tensors lie on the disk."""

    def __init__(
        self,
        module: nn.Module,
        sources: Mapping[str, TensorSource],
        plan: LoadPlan,
        reader: TensorReader,
        precise: frozenset[str],
    ) -> None:
        import torch

        self._module = module
        self._sources = sources
        self._plan = plan
        self._reader = reader
        self._precise = precise
        self._packings = plan.logical.packings
        self._dtype: torch.dtype = getattr(torch, plan.placement.dtype)
        self._storage = torch.device(plan.placement.storage)

    def run(self, wanted: Mapping[str, nn.Parameter]) -> None:
        """Set all parameters; the big matrices last, so that their biases are there."""
        import torch

        matrices = [name for name in wanted if self._is_held_small(name, wanted[name])]
        rest = [name for name in wanted if name not in set(matrices)]
        for name in sorted(rest, key=self._position):
            self._plan.check()
            tensor = _as_wanted(self._plain(name, self._dtype_of(name)), wanted[name].shape)
            if self._sources[name].folded and tensor.numel() == wanted[name].numel():
                tensor = tensor.reshape(wanted[name].shape)
            self._check_shape(name, tensor.shape, wanted[name].shape)
            owner, _, leaf = name.rpartition(".")
            parameter = torch.nn.Parameter(tensor, requires_grad=False)
            self._module.get_submodule(owner).register_parameter(leaf, parameter)
        for name in sorted(matrices, key=self._position):
            self._plan.check()
            self._pack(name, wanted[name].shape)

    def _position(self, name: str) -> tuple[int, int]:
        return self._reader.position(self._part_names(name)[0])

    def _part_names(self, name: str) -> list[str]:
        source = self._sources[name].name
        packing = self._packings.get(source)
        return list(packing.parts.values()) if packing else [source]

    def _is_held_small(self, name: str, parameter: nn.Parameter) -> bool:
        """Say whether this weight becomes a packed or an int8 linear."""
        import torch

        if self._sources[name].swapped or self._sources[name].transposed:
            return False
        owner, _, leaf = name.rpartition(".")
        linear = leaf == "weight" and type(self._module.get_submodule(owner)) is torch.nn.Linear
        packed = self._sources[name].name in self._packings
        if self._plan.placement.quantization == "packed":
            return linear and packed
        if self._plan.placement.quantization == "int8":
            return linear and not packed and is_block_linear(name, tuple(parameter.shape))
        return False

    def _dtype_of(self, name: str) -> torch.dtype:
        import torch

        return self._dtype if self._precise.isdisjoint(name.split(".")) else torch.float32

    def _plain(self, name: str, dtype: torch.dtype) -> Tensor:
        """The weight in a precision at its place: mapped, or with its own memory."""
        import torch

        source = self._sources[name]
        packing = self._packings.get(source.name)
        if packing is not None:
            whole = self._dequantized(packing)
            # A clone, since a view would keep the rows of the others alive.
            tensor = whole if source.parts == 1 else _rows(whole, source).clone()
        else:
            tensor = self._stored(source, dtype)
        if source.flatten:
            tensor = tensor.flatten(1)
        if source.swapped:
            tensor = torch.cat([*reversed(tensor.chunk(2))])
        if source.transposed:
            tensor = tensor.t().contiguous()
        return tensor.to(device=self._storage, dtype=dtype)

    def _stored(self, source: TensorSource, dtype: torch.dtype) -> Tensor:
        """A plain weight: mapped if it is used as it is, else in the buffer until it is moved."""
        import torch

        info = self._plan.logical.tensors[source.name]
        same = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
        if self._storage.type == "cpu" and same.get(info.dtype) is dtype:
            return _rows(self._reader.mapped(source.name), source)
        return self._reader.buffered(source.name, source.part, source.parts, source.span)

    def _parts(self, packing: Packing) -> dict[str, Tensor]:
        """The stored parts of a packed weight at their place, each with its own memory."""
        cpu = self._storage.type == "cpu"
        read = self._reader.mapped if cpu else self._reader.buffered
        return {part: read(name).to(self._storage) for part, name in packing.parts.items()}

    def _dequantized(self, packing: Packing) -> Tensor:
        from inline_core.loading.dequantize import dequantize

        return dequantize(packing, self._parts(packing), self._dtype)

    def _pack(self, name: str, shape: torch.Size) -> None:
        """Replace a linear by one that holds its weight small."""
        from inline_core.loading.dequantize import quantize_int8, split_rows
        from inline_core.loading.linears import PackedLinear, replace_linear

        source = self._sources[name]
        packing = self._packings.get(source.name)
        if packing is None:
            stored = self._stored(source, self._dtype).to(self._storage)
            self._check_shape(name, stored.shape, shape)
            packing, parts = quantize_int8(stored)
        else:
            parts = self._parts(packing)
            if source.parts > 1:
                split = split_rows(packing, parts, source.part, source.parts, source.span)
                if split is None:
                    self._keep_plain(name, shape)
                    return
                packing, parts = split
            self._check_shape(name, packing.shape, shape)
        owner = name.rpartition(".")[0]
        bias = self._module.get_submodule(owner).bias
        replace_linear(self._module, owner, PackedLinear(packing, parts, bias))  # type: ignore[arg-type]

    def _keep_plain(self, name: str, shape: torch.Size) -> None:
        """A fused projection whose layout cannot be split is held in full precision."""
        import torch

        tensor = self._plain(name, self._dtype)
        self._check_shape(name, tensor.shape, shape)
        owner, _, leaf = name.rpartition(".")
        parameter = torch.nn.Parameter(tensor, requires_grad=False)
        self._module.get_submodule(owner).register_parameter(leaf, parameter)

    def _check_shape(self, name: str, has: torch.Size | tuple[int, ...], needs: torch.Size) -> None:
        if tuple(has) != tuple(needs):
            message = (
                f"{self._plan.label}: {name} has shape {tuple(has)}, "
                f"the architecture needs {tuple(needs)}"
            )
            raise ModelFileInvalid(message)


def _rows(tensor: Tensor, source: TensorSource) -> Tensor:
    """Row blocks of a fused projection; the whole tensor if it is not fused."""
    rows = tensor.shape[0] // source.parts
    return tensor.narrow(0, source.part * rows, source.span * rows)


def _as_wanted(tensor: Tensor, shape: torch.Size) -> Tensor:
    """GGUF drops leading dimensions of size 1; only those are put back."""
    if tuple(tensor.shape) == tuple(shape)[-tensor.ndim :] and tensor.numel() == shape.numel():
        return tensor.view(shape)
    return tensor


def _mismatch(label: str, missing: list[str], unexpected: list[str]) -> str:
    parts = [
        f"{len(names)} weights {word} ({', '.join(names[:_MOST_NAMES])}"
        f"{', ...' if len(names) > _MOST_NAMES else ''})"
        for names, word in ((missing, "missing"), (unexpected, "unexpected"))
        if names
    ]
    return f"{label} does not match its architecture: {' and '.join(parts)}"
