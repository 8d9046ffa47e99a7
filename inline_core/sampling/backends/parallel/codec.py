"""Jobs and what belongs to them as bytes: msgpack for the structure, tensors beside it.

Nothing is unpickled: only plain values, and frozen dataclasses and enums of this package by name.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgpack
import numpy as np

from inline_core.errors import Internal

_OURS: Final = "inline_core."
_PLAIN: Final = (bool, int, float, str, bytes)
# Tags of what msgpack has no type for; every list on the wire starts with one of them.
_TUPLE, _LIST, _MAP, _SET, _PATH, _ENUM, _DATA, _TENSOR, _ARRAY = range(9)


def pack(value: Any) -> tuple[bytes, list[np.ndarray[Any, Any]]]:
    """Bytes of the structure, and the contents of its tensors and arrays in order, as uint8.

    Raises: Internal for a value that cannot be sent, such as a function.
    """
    blobs: list[np.ndarray[Any, Any]] = []
    body: bytes = msgpack.packb(_packed(value, blobs))
    return body, blobs


def unpack(body: bytes, blobs: Sequence[np.ndarray[Any, Any]]) -> Any:
    """What `pack` was given; tensors share the memory of `blobs`.

    Raises: Internal for what no `pack` of this release made.
    """
    return _unpacked(msgpack.unpackb(body, strict_map_key=False), blobs)


def _packed(value: Any, blobs: list[np.ndarray[Any, Any]]) -> Any:
    if isinstance(value, enum.Enum):
        return [_ENUM, _name(type(value)), value.value]
    if value is None or isinstance(value, _PLAIN):
        return value
    if isinstance(value, Path):
        return [_PATH, str(value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field.name for field in dataclasses.fields(value) if field.init]
        return [
            _DATA,
            _name(type(value)),
            [[name, _packed(getattr(value, name), blobs)] for name in fields],
        ]
    if isinstance(value, Mapping):
        items = [[_packed(key, blobs), _packed(item, blobs)] for key, item in value.items()]
        return [_MAP, items]
    for kind, tag in ((tuple, _TUPLE), (list, _LIST), (frozenset, _SET)):
        if isinstance(value, kind):
            return [tag, [_packed(item, blobs) for item in value]]
    return _packed_numbers(value, blobs)


def _packed_numbers(value: Any, blobs: list[np.ndarray[Any, Any]]) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        flat = np.ascontiguousarray(value)
        blobs.append(flat.reshape(-1).view(np.uint8))
        return [_ARRAY, len(blobs) - 1, flat.dtype.str, list(flat.shape)]
    if type(value).__module__.split(".")[0] == "torch" and hasattr(value, "detach"):
        import torch

        flat = value.detach().to("cpu").contiguous()
        blobs.append(flat.reshape(-1).view(torch.uint8).numpy())
        return [_TENSOR, len(blobs) - 1, str(flat.dtype).removeprefix("torch."), list(flat.shape)]
    message = f"a {type(value).__name__} cannot be sent to another process"
    raise Internal(message)


def _unpacked(value: Any, blobs: Sequence[np.ndarray[Any, Any]]) -> Any:
    if not isinstance(value, list):
        return value
    tag, *rest = value
    if tag == _MAP:
        return {_unpacked(key, blobs): _unpacked(item, blobs) for key, item in rest[0]}
    if tag in {_TUPLE, _LIST, _SET}:
        kind = {_TUPLE: tuple, _LIST: list, _SET: frozenset}[tag]
        return kind(_unpacked(item, blobs) for item in rest[0])
    if tag == _PATH:
        return Path(rest[0])
    if tag in {_ENUM, _DATA}:
        return _unpacked_ours(tag, rest, blobs)
    return _unpacked_numbers(tag, rest, blobs)


def _unpacked_ours(tag: int, rest: list[Any], blobs: Sequence[np.ndarray[Any, Any]]) -> Any:
    kind = _type(rest[0])
    if tag == _ENUM and issubclass(kind, enum.Enum):
        return kind(rest[1])
    if tag == _DATA and dataclasses.is_dataclass(kind):
        return kind(**{name: _unpacked(item, blobs) for name, item in rest[1]})
    message = f"{rest[0]} is not what it was sent as"
    raise Internal(message)


def _unpacked_numbers(tag: int, rest: list[Any], blobs: Sequence[np.ndarray[Any, Any]]) -> Any:
    index, dtype, shape = rest
    if tag == _ARRAY:
        return blobs[index].view(np.dtype(dtype)).reshape(shape)
    if tag == _TENSOR:
        import torch

        kind = getattr(torch, dtype)
        if not blobs[index].size:
            return torch.empty(shape, dtype=kind)
        return torch.from_numpy(blobs[index]).view(kind).reshape(shape)
    message = f"unknown tag {tag} in a message: the processes run different releases"
    raise Internal(message)


def _name(kind: type) -> str:
    name = f"{kind.__module__}:{kind.__qualname__}"
    if not name.startswith(_OURS):
        message = f"a {name} cannot be sent to another process"
        raise Internal(message)
    return name


def _type(name: str) -> type:
    module, _, path = name.partition(":")
    found: Any = None
    if module.startswith(_OURS):
        found = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part, None)
    if not isinstance(found, type):
        message = f"{name} is unknown here: the processes run different releases"
        raise Internal(message)
    return found
