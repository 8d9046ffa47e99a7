"""Which upscaler a file holds, from the names and shapes of its tensors.  Never imports torch.

ESRGAN files come in three spellings: that of the old training code (`model.1.sub.0.RDB1...`), that
of ESRGAN's own release (`RRDB_trunk.0.RDB1...`) and that of BasicSR and Real-ESRGAN
(`body.0.rdb1...`).  Real-ESRGAN's small models are one row of convolutions (`body.0`, `body.1`...).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from inline_core.loading.header import Header, TensorInfo
from inline_core.loading.packing import logical_tensors

RGB: Final = 3
_OLD_BLOCK: Final = re.compile(r"model\.1\.sub\.(\d+)\.RDB([123])\.conv([1-5])\.0\.(weight|bias)")
_OLD_TRUNK: Final = re.compile(r"model\.1\.sub\.(\d+)\.(weight|bias)")
_OLD_TOP: Final = re.compile(r"model\.(\d+)\.(weight|bias)")
_RELEASE_BLOCK: Final = re.compile(r"RRDB_trunk\.(\d+)\.RDB([123])\.conv([1-5])\.(weight|bias)")
_BLOCK: Final = re.compile(r"body\.(\d+)\.rdb([123])\.conv([1-5])\.(weight|bias)")
_UP: Final = re.compile(r"(?:conv_up|upconv)(\d)\.(weight|bias)")
_ROW: Final = re.compile(r"body\.(\d+)\.(weight|bias)")
_RELEASE_NAMES: Final[Mapping[str, str]] = {
    "conv_first": "conv_first",
    "trunk_conv": "conv_body",
    "HRconv": "conv_hr",
    "conv_last": "conv_last",
}
_HEAD_AND_TAIL: Final = 2  # of the top convolutions of the old spelling: conv_hr and conv_last

Kind = Literal["rrdb", "compact"]


@dataclass(frozen=True, slots=True)
class UpscalerShape:
    """The sizes of an upscaler, and where its weights come from (module name -> tensor name).

    `scale` is how much larger the picture gets, `shuffle` by how much it is folded into channels
    first, `ups` how often the inside is doubled, `blocks` the number of repeated blocks.
    """

    kind: Kind
    scale: int
    width: int
    growth: int
    blocks: int
    ups: int
    shuffle: int
    sources: Mapping[str, str]


def upscaler_shape(tensors: Mapping[str, TensorInfo]) -> UpscalerShape | None:
    """The built-in architecture these tensors are of, or None if they are of none."""
    sources = _rrdb_sources(tensors)
    if "conv_first.weight" in sources and len(sources) == len(tensors):
        return _rrdb(tensors, sources)
    row = {"body.0.weight", "body.1.weight"} <= tensors.keys()
    if row and all(_ROW.fullmatch(name) for name in tensors):
        return _compact(tensors)
    return None


def scale_of(headers: Iterable[Header]) -> int:
    """How much larger a picture gets; 1 for an upscaler that is not built in (nobody knows yet)."""
    shape = upscaler_shape(logical_tensors(headers).tensors)
    return 1 if shape is None else shape.scale


def _rrdb_sources(tensors: Mapping[str, TensorInfo]) -> dict[str, str]:
    """Module names of the RRDB network for all tensors whose names are known."""
    found: dict[str, str] = {}
    tops = sorted({int(match[1]) for name in tensors if (match := _OLD_TOP.fullmatch(name))})
    old = tops[:1] == [0]
    for name in tensors:
        module = _old_name(name, tops) if old else _new_name(name)
        if module is not None:
            found[module] = name
    return found


def _old_name(name: str, tops: list[int]) -> str | None:
    block = _OLD_BLOCK.fullmatch(name)
    if block:
        return f"body.{block[1]}.rdb{block[2]}.conv{block[3]}.{block[4]}"
    trunk = _OLD_TRUNK.fullmatch(name)
    if trunk:
        return f"conv_body.{trunk[2]}"
    top = _OLD_TOP.fullmatch(name)
    if top is None:
        return None
    place = tops.index(int(top[1]))
    ups = len(tops) - 1 - _HEAD_AND_TAIL
    modules = ["conv_first", *(f"conv_ups.{index}" for index in range(ups)), "conv_hr", "conv_last"]
    return f"{modules[place]}.{top[2]}" if place < len(modules) else None


def _new_name(name: str) -> str | None:
    block = _BLOCK.fullmatch(name) or _RELEASE_BLOCK.fullmatch(name)
    if block:
        return f"body.{block[1]}.rdb{block[2]}.conv{block[3]}.{block[4]}"
    up = _UP.fullmatch(name)
    if up:
        return f"conv_ups.{int(up[1]) - 1}.{up[2]}"
    owner, _, leaf = name.rpartition(".")
    if owner in {"conv_body", "conv_hr"}:
        return name
    return f"{_RELEASE_NAMES[owner]}.{leaf}" if owner in _RELEASE_NAMES else None


def _rrdb(tensors: Mapping[str, TensorInfo], sources: dict[str, str]) -> UpscalerShape | None:
    shapes = {module: tensors[name].shape for module, name in sources.items()}
    first, last = shapes["conv_first.weight"], shapes.get("conv_last.weight", ())
    dense = shapes.get("body.0.rdb1.conv1.weight", ())
    if not dense or last[:1] != (RGB,):
        return None
    shuffle = math.isqrt(first[1] // RGB)
    numbers = {int(name.split(".")[1]) for name in shapes if name.startswith("body.")}
    ups = len({name.split(".")[1] for name in shapes if name.startswith("conv_ups.")})
    if shuffle * shuffle * RGB != first[1] or 2**ups % shuffle:
        return None
    return UpscalerShape(
        kind="rrdb",
        scale=2**ups // shuffle,
        width=first[0],
        growth=dense[0],
        blocks=max(numbers) + 1,
        ups=ups,
        shuffle=shuffle,
        sources=sources,
    )


def _compact(tensors: Mapping[str, TensorInfo]) -> UpscalerShape | None:
    numbers = [int(match[1]) for name in tensors if (match := _ROW.fullmatch(name))]
    count = max(numbers) + 1
    first, slope = tensors["body.0.weight"].shape, tensors["body.1.weight"].shape
    last = tensors.get(f"body.{count - 1}.weight")
    if first[1:2] != (RGB,) or slope != first[:1] or last is None or count % 2 == 0:
        return None
    scale = math.isqrt(last.shape[0] // RGB)
    if scale * scale * RGB != last.shape[0]:
        return None
    return UpscalerShape(
        kind="compact",
        scale=scale,
        width=first[0],
        growth=0,
        blocks=(count - 1) // 2 - 1,
        ups=0,
        shuffle=1,
        sources={name: name for name in tensors},
    )
