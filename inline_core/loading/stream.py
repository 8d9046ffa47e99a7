"""Fill a module that was built on the meta device, tensor by tensor, from mapped files.

On the processor a tensor of the right precision is used where it lies in the mapped file, so
loading copies nothing.  Used on the device thread only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from safetensors import SafetensorError, safe_open

from inline_core.errors import ModelFileInvalid, ModelFileMissing
from inline_core.loading.files import WeightFiles

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from inline_core.devices.placement import Placement
    from inline_core.loading.identify import FileIdentity

_MOST_NAMES: Final = 5


@dataclass(frozen=True, slots=True)
class TensorSource:
    """Where the weight of a module comes from: a tensor of the file, or rows of it.

    `part` of `parts` picks one of equal row blocks (q, k, v of a fused projection); `flatten`
    drops trailing dimensions of size 1 (1x1 convolutions that became linear).
    """

    name: str
    part: int = 0
    parts: int = 1
    flatten: bool = False


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """All that a loader needs: checked files, what they are, where to put them, how to call them.

    `check` is called between tensors and raises to stop the load.
    """

    files: WeightFiles
    identity: FileIdentity
    placement: Placement
    label: str
    check: Callable[[], None]


class TensorReader:
    """Reads tensors of a component and notices when its files were replaced meanwhile."""

    def __init__(self, plan: LoadPlan) -> None:
        self._label = plan.label
        self._files = plan.files
        self._home = {name: header for header in plan.files.headers for name in header.tensors}
        self._open: dict[str, Any] = {}

    def names(self) -> Collection[str]:
        """All tensors of all files."""
        return self._home.keys()

    def read(self, source: TensorSource) -> Tensor:
        """One tensor, mapped, in the file's own precision.  Raises: ModelFileMissing/Invalid."""
        header = self._home[source.name]
        path = str(header.path)
        try:
            if path not in self._open:
                self.check_unchanged()
                self._open[path] = safe_open(path, framework="pt")
            tensor: Tensor = self._open[path].get_tensor(source.name)
        except FileNotFoundError as error:
            message = f"{self._label} vanished during load: put it back and run again"
            raise ModelFileMissing(message) from error
        except (SafetensorError, OSError) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            message = f"{self._label} could not be read ({reason}): it was replaced or is damaged"
            raise ModelFileInvalid(message) from error
        if source.parts > 1:
            rows = tensor.shape[0] // source.parts
            tensor = tensor.narrow(0, source.part * rows, rows)
        return tensor.flatten(1) if source.flatten else tensor

    def check_unchanged(self) -> None:
        """Raise if a file is not the one whose header was read."""
        for header in self._files.headers:
            try:
                status = header.path.stat()
            except OSError as error:
                message = f"{self._label} vanished during load: put it back and run again"
                raise ModelFileMissing(message) from error
            if (status.st_size, status.st_mtime_ns) != (header.size_bytes, header.mtime_ns):
                message = f"{self._label} was replaced during load: run again"
                raise ModelFileInvalid(message)


def fill(
    module: nn.Module,
    sources: Mapping[str, TensorSource],
    plan: LoadPlan,
    *,
    ignorable: Collection[str] = (),
) -> None:
    """Give every parameter of `module` its weight, at the place and precision of the plan.

    Strict: every parameter must have a source and every tensor of the file must be used, except
    those in `ignorable`.
    Raises: ModelFileInvalid with counts and the first five names.
    """
    reader, label = TensorReader(plan), plan.label
    wanted = dict(module.named_parameters())
    missing = sorted(wanted.keys() - sources.keys())
    used = {source.name for name, source in sources.items() if name in wanted}
    unexpected = sorted(set(reader.names()) - used - set(ignorable))
    if missing or unexpected:
        raise ModelFileInvalid(_mismatch(label, missing, unexpected))
    import torch

    dtype: torch.dtype = getattr(torch, plan.placement.dtype)
    for name, parameter in wanted.items():
        plan.check()
        tensor = reader.read(sources[name])
        if tensor.shape != parameter.shape:
            message = (
                f"{label}: {name} has shape {tuple(tensor.shape)}, "
                f"the architecture needs {tuple(parameter.shape)}"
            )
            raise ModelFileInvalid(message)
        target = tensor.to(device=plan.placement.device, dtype=dtype)
        owner, _, leaf = name.rpartition(".")
        setattr(module.get_submodule(owner), leaf, torch.nn.Parameter(target, requires_grad=False))
    reader.check_unchanged()
    left = [name for name, buffer in module.named_buffers() if buffer.is_meta]
    if left:
        message = f"{label}: buffers without a value: {', '.join(left[:_MOST_NAMES])}"
        raise ModelFileInvalid(message)


def _mismatch(label: str, missing: list[str], unexpected: list[str]) -> str:
    parts = [
        f"{len(names)} weights {word} ({', '.join(names[:_MOST_NAMES])}"
        f"{', ...' if len(names) > _MOST_NAMES else ''})"
        for names, word in ((missing, "missing"), (unexpected, "unexpected"))
        if names
    ]
    return f"{label} does not match its architecture: {' and '.join(parts)}"
