"""Read tensors out of weight files: mapped where they lie, or through one reusable buffer.

Mapped tensors cost no memory of their own; the buffer is for tensors that go elsewhere (another
device, another precision), so that reading a file of any size takes one tensor of host memory.
Used on the device thread only.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Collection
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Self

from inline_core.errors import ModelFileInvalid, ModelFileMissing
from inline_core.loading.files import WeightFiles
from inline_core.loading.header import Header, TensorInfo

if TYPE_CHECKING:
    import torch
    from torch import Tensor

# Names of the safetensors format and torch's for the same; what is absent is read as bytes.
_TORCH_NAMES: Final = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}
_READ_AHEAD: Final = 4 << 20
_LONGEST_READ: Final = 1 << 30  # Linux reads at most 2 GiB in one call


class TensorReader:
    """Reads tensors of a component and notices when its files were replaced meanwhile.

    `pinned` makes the buffer page-locked, for copies to a GPU.  Close it (or use `with`) when all
    is read; mapped tensors stay valid after that, also when the file is replaced by a rename.
    """

    def __init__(self, files: WeightFiles, label: str, *, pinned: bool = False) -> None:
        self._label = label
        self._files = files
        self._pinned = pinned
        self._home = {name: header for header in files.headers for name in header.tensors}
        self._open: dict[str, BinaryIO] = {}
        self._maps: dict[str, mmap.mmap] = {}
        self._buffer: Tensor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the files and let the buffer go."""
        for file in self._open.values():
            file.close()
        self._open.clear()
        self._maps.clear()
        self._buffer = None

    def names(self) -> Collection[str]:
        """All tensors of all files."""
        return self._home.keys()

    def position(self, name: str) -> tuple[int, int]:
        """Sorts tensors as they lie on the disk."""
        header = self._home[name]
        return self._files.headers.index(header), header.tensors[name].start

    def mapped(self, name: str) -> Tensor:
        """The tensor where it lies in the file, copied only when it is not aligned.

        Raises: ModelFileMissing, ModelFileInvalid.
        """
        import torch

        header, info = self._place(name)
        dtype, shape = _form(info)
        start = header.data_start + info.start
        if start % dtype.itemsize or not info.size_bytes:
            return self.buffered(name).clone()
        mapping = self._mapping(header)
        flat = torch.frombuffer(
            mapping, dtype=dtype, count=info.size_bytes // dtype.itemsize, offset=start
        )
        return flat.view(shape)

    def buffered(self, name: str, part: int = 0, parts: int = 1, span: int = 1) -> Tensor:
        """The tensor, or `span` of equal blocks of its rows, valid until the next call.

        Raises: ModelFileMissing, ModelFileInvalid.
        """
        header, info = self._place(name)
        dtype, shape = _form(info)
        if parts > 1:
            shape = (shape[0] // parts * span, *shape[1:])
        block = info.size_bytes // parts
        room = self._room_for(block * span)
        self._read_into(header, header.data_start + info.start + part * block, room)
        return room.view(dtype).view(shape)

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

    # ---- inside --------------------------------------------------------------------------------

    def _place(self, name: str) -> tuple[Header, TensorInfo]:
        header = self._home[name]
        return header, header.tensors[name]

    def _file(self, header: Header) -> BinaryIO:
        path = str(header.path)
        if path not in self._open:
            self.check_unchanged()
            try:
                self._open[path] = header.path.open("rb", buffering=0)
            except OSError as error:
                raise self._unreadable(error) from error
        return self._open[path]

    def _mapping(self, header: Header) -> mmap.mmap:
        path = str(header.path)
        if path not in self._maps:
            file = self._file(header)
            try:
                # Private: a change in memory never reaches the file.
                _read_ahead(file, header.size_bytes)
                self._maps[path] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
            except (OSError, ValueError) as error:
                raise self._unreadable(error) from error
        return self._maps[path]

    def _room_for(self, size_bytes: int) -> Tensor:
        import torch

        if self._buffer is None or self._buffer.numel() < size_bytes:
            self._buffer = None  # let the small one go before the big one is made
            self._buffer = torch.empty(size_bytes, dtype=torch.uint8, pin_memory=self._pinned)
        return self._buffer[:size_bytes]

    def _read_into(self, header: Header, start: int, room: Tensor) -> None:
        file = self._file(header)
        view = memoryview(room.numpy().data)
        done = 0
        while done < len(view):
            part = view[done : done + _LONGEST_READ]
            try:
                count = _read_at(file, part, start + done)
            except OSError as error:
                raise self._unreadable(error) from error
            if count <= 0:
                message = f"{self._label} is cut off: it was replaced or is damaged"
                raise ModelFileInvalid(message)
            done += count

    def _unreadable(self, error: Exception) -> ModelFileInvalid:
        reason = getattr(error, "strerror", None) or type(error).__name__
        return ModelFileInvalid(
            f"{self._label} could not be read ({reason}): it was replaced or is damaged"
        )


def _form(info: TensorInfo) -> tuple[torch.dtype, tuple[int, ...]]:
    """Dtype of torch and the shape of a stored tensor; packed blocks are flat bytes."""
    import torch

    name = _TORCH_NAMES.get(info.dtype)
    if name is None:
        return torch.uint8, (info.size_bytes,)
    dtype: torch.dtype = getattr(torch, name)
    return dtype, info.shape


def _read_ahead(file: BinaryIO, size_bytes: int) -> None:
    """Ask a cold disk for all of a file in order, ahead of the pages that are touched.

    The kernel takes one read-ahead window a call, so the file is asked for in pieces.
    """
    advise: Any = getattr(os, "posix_fadvise", None)
    if advise is None:
        return  # Windows, macOS
    for start in range(0, size_bytes, _READ_AHEAD):
        advise(file.fileno(), start, _READ_AHEAD, os.POSIX_FADV_WILLNEED)


def _read_at(file: BinaryIO, part: memoryview, start: int) -> int:
    positioned: Any = getattr(os, "preadv", None)
    if positioned is not None:
        return int(positioned(file.fileno(), [part], start))
    file.seek(start)  # Windows
    return int(file.readinto(part))  # type: ignore[attr-defined]
