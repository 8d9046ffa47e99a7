"""Which weights of a file are packed (quantized), how, and which of its tensors belong together.

A packed weight is stored as small numbers and scales.  `logical_tensors` finds the scales that
belong to each weight, takes them and the markers out of the list of names, and gives every weight
the shape it has for the architecture.  What it does not know, or what lacks its scales, it names:
nothing is ever cast without its scales.  Nothing here needs torch.

Sources of the layouts: the READMEs and layout classes of comfy-kitchen 0.2 (Apache-2.0), the files
that torchao 0.18 writes, ggml's block types.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from inline_core.loading.gguf import BLOCKS
from inline_core.loading.gguf_names import is_renamed, plain_name
from inline_core.loading.header import PACKED_LAYERS, Header, TensorInfo

PackingFormat = Literal["fp8", "int8", "int8_convrot", "nvfp4", "mxfp8", "gguf"]

READ_BLOCKS: Final = frozenset(
    ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")
)
SQUARE: Final = 128  # weight_scale_inv holds a scale for 128 x 128 values
TILE_ROWS: Final = 128  # the order of scales that cuBLAS wants: tiles of 128 rows, 4 columns
TILE_COLUMNS: Final = 4
NVFP4_BLOCK: Final = 16
MXFP8_BLOCK: Final = 32

_PLAIN: Final = frozenset(("F64", "F32", "F16", "BF16", "I64", "I16", "U16", "BOOL", "C64"))
_FP8: Final = ("F8_E4M3", "F8_E5M2")
# Tokenizers as bytes inside text encoders of ComfyUI; ours lie beside them.
_TOKENIZERS: Final = ("spiece_model", "tekken_model")
_NEVER_PLAIN: Final = ("I8", "U8", "F4", "F6_E2M3", "F6_E3M2", "F8_E8M0")
_COMFY: Final = ".comfy_quant"
_MARKER: Final = "scaled_fp8"
_MOST_MARKER_BYTES: Final = 65536
_PREFIXES: Final = ("model.diffusion_model.", "diffusion_model.", "model.")
# What other quantizers leave in a file: end of a name -> whose it is.
_FOREIGN: Final = (
    (".quant_state.bitsandbytes__nf4", "bitsandbytes nf4"),
    (".quant_state.bitsandbytes__fp4", "bitsandbytes fp4"),
    (".SCB", "bitsandbytes int8"),
    (".wscales", "nunchaku SVDQuant"),
    (".qzeros", "GPTQ or AWQ"),
    (".qweight", "GPTQ or AWQ"),
    (".weight._data", "optimum-quanto"),
)
_REMEDY: Final = "use a bf16, fp8 or GGUF file of it"
_AGAIN: Final = "download it again, or use a bf16 file"


@dataclass(frozen=True, slots=True)
class Packing:
    """How one logical weight lies in a file.

    `parts`: what a tensor is for (`weight`, `scale`, `scale_2`, `zero_point`) -> its name in the
    file.  `shape` is the logical shape; `group_size` the columns that were rotated together
    (`int8_convrot`) or the side of the squares that share a scale (`fp8`; 0 where the shapes tell);
    `block` the ggml type (`gguf`, else empty).
    """

    format: PackingFormat
    parts: Mapping[str, str]
    shape: tuple[int, ...]
    group_size: int = 0
    block: str = ""


@dataclass(frozen=True, slots=True)
class LogicalTensors:
    """The weights of a component by their own names and shapes, however they are packed.

    `tensors` has no scales and markers any more.  `packings` has the packed weights only; all
    others may be cast.  `quantization` is a short name for people, empty for plain files.
    `problems` says why the files cannot be loaded, with the remedy.
    """

    tensors: Mapping[str, TensorInfo]
    packings: Mapping[str, Packing]
    quantization: str
    problems: tuple[str, ...]


def logical_tensors(headers: Iterable[Header]) -> LogicalTensors:
    """Find the packed weights in the files of one component.

    Headers only, and the few bytes of `comfy_quant` markers.  Plain files pass through untouched.
    """
    headers = tuple(headers)
    tensors = headers[0].tensors if len(headers) == 1 else _merged(headers)
    metadata = {key: value for header in headers for key, value in header.metadata.items()}
    parts = metadata.get("split.count", "1")
    if parts.isdigit() and int(parts) > 1:
        problem = f"it is one of {parts} parts of a split GGUF: merge them with llama-gguf-split"
        return LogicalTensors(tensors, {}, "GGUF", (problem,))
    renamed = is_renamed(metadata.get("general.architecture", ""))
    plain = all(info.dtype in _PLAIN for info in tensors.values())
    if plain and not renamed and PACKED_LAYERS not in metadata:
        return LogicalTensors(tensors, {}, "", ())
    found = _Found(tensors)
    found.absorbed |= {name for name in tensors if name.rpartition(".")[2] in _TOKENIZERS}
    if renamed:
        found.names |= {name: plain_name(name) for name in tensors}
    _gguf(found)
    _torchao(found, metadata)
    _comfy_quant(found, headers, metadata)
    _scaled_fp8(found)
    _foreign(found)
    return found.result()


def tiled_size(rows: int, columns: int) -> int:
    """Number of scales that a (rows, columns) grid takes in cuBLAS's order, with its padding."""
    return -(-rows // TILE_ROWS) * TILE_ROWS * (-(-columns // TILE_COLUMNS) * TILE_COLUMNS)


def block_of(size: int, count: int, square: int = 0) -> int:
    """How many of `size` values share one of `count` scales; 0 if that cannot be.

    `square` is the size of the blocks where it is known; the last block may be cut off then.
    """
    if square:
        return square if -(-size // square) == count else 0
    return size // count if count and size % count == 0 else 0


def _merged(headers: Sequence[Header]) -> dict[str, TensorInfo]:
    return {name: info for header in headers for name, info in header.tensors.items()}


@dataclass(slots=True)
class _Found:
    """What has been found so far; `names` is file name -> logical name where they differ."""

    tensors: Mapping[str, TensorInfo]
    packings: dict[str, Packing] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    absorbed: set[str] = field(default_factory=set)
    labels: Counter[str] = field(default_factory=Counter)
    faults: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    marked_layers: int = 0

    def pack(self, name: str, packing: Packing, label: str) -> None:
        """Take a packed weight, which the file calls `packing.parts["weight"]`."""
        weight = packing.parts["weight"]
        self.packings[name] = packing
        if weight != name:
            self.names[weight] = name
        self.labels[label] += self.tensors[weight].size_bytes

    def fault(self, cause: str, name: str, remedy: str = _AGAIN) -> None:
        """Note why `name` cannot be loaded; many weights usually share one cause."""
        self.faults.setdefault((cause, remedy), []).append(name)
        self.refused.add(name)

    def open(self, *dtypes: str) -> list[str]:
        """Names of the tensors of these types that nothing has been found out about yet."""
        return [
            name
            for name, info in self.tensors.items()
            if info.dtype in dtypes
            and name not in self.absorbed
            and (logical := self.names.get(name, name)) not in self.packings
            and logical not in self.refused
        ]

    def result(self) -> LogicalTensors:
        """All of it, in the order of the file."""
        tensors: dict[str, TensorInfo] = {}
        for name, info in self.tensors.items():
            if name in self.absorbed:
                continue
            logical = self.names.get(name, name)
            packing = self.packings.get(logical)
            tensors[logical] = info._replace(shape=packing.shape) if packing else info
        labels = [label for label, _ in self.labels.most_common()]
        if labels and labels[0].startswith("GGUF"):
            labels = labels[:1]  # nearly every file mixes types; the most common one names it
        problems = tuple(
            f"{cause} ({_some(names)}): {remedy}" for (cause, remedy), names in self.faults.items()
        )
        return LogicalTensors(tensors, self.packings, " and ".join(labels), problems)


def _some(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _gguf(found: _Found) -> None:
    for name, info in found.tensors.items():
        block = BLOCKS.get(info.dtype)
        if info.dtype in READ_BLOCKS:
            packing = Packing("gguf", {"weight": name}, info.shape, block=info.dtype)
            found.pack(found.names.get(name, name), packing, f"GGUF {info.dtype}")
        elif (block and block.values > 1) or info.dtype.startswith("ggml type"):
            cause = f"its weights are GGUF {info.dtype}, which is not supported"
            found.fault(cause, name, "use a file with Q8_0, Q6_K, Q5_K or Q4_K weights")


def _torchao(found: _Found, metadata: Mapping[str, str]) -> None:
    """Torchao keeps `X.weight` as `X._weight_qdata`, `X._weight_scale`, `X._weight_zero_point`."""
    for stored in [name for name in found.tensors if name.endswith("_qdata")]:
        stem = stored.removesuffix("qdata")
        module, _, leaf = stem.rpartition("._")
        name = f"{module}.{leaf.removesuffix('_')}"
        told = _json(metadata.get(name, ""))
        kind = told.get("_type", "")
        listed = told.get("_tensor_data_names")
        sides = sorted({*listed} - {"qdata"}) if isinstance(listed, list) else ["scale"]
        found.absorbed.update(
            side for side in found.tensors if side.startswith(stem) and side != stored
        )
        found.names[stored] = name
        wanted = {"Int8Tensor": ("I8",), "Float8Tensor": _FP8}.get(kind, ())
        label = {"Int8Tensor": "int8", "Float8Tensor": "fp8"}.get(kind, kind)
        if found.tensors[stored].dtype not in wanted or not set(sides) <= {"scale", "zero_point"}:
            words = f"torchao {kind}" if kind else "torchao weights without their description"
            found.fault(f"it is quantized ({words}), which is not supported", name, _REMEDY)
            continue
        parts = {"weight": stored, **{side: stem + side for side in sides}}
        packing = Packing("int8" if label == "int8" else "fp8", parts, found.tensors[stored].shape)
        if _has_scales(found, name, packing, label):
            found.pack(name, packing, f"{label} (torchao)")


def _comfy_quant(found: _Found, headers: Sequence[Header], metadata: Mapping[str, str]) -> None:
    layers: dict[str, Mapping[str, Any]] = {}
    if PACKED_LAYERS in metadata:
        told = _json(metadata[PACKED_LAYERS]).get("layers")
        layers |= told if isinstance(told, dict) else {}
    for header in headers:
        layers |= _read_markers(found, header)
    found.marked_layers = len(layers)
    for layer, config in layers.items():
        name = _full_name(found.tensors, f"{layer}.weight")
        if name not in found.tensors:
            found.fault("it has quantization markers without a weight", layer)
            continue
        module = name.removesuffix("weight")
        found.absorbed.update(side for side in (f"{module}input_scale",) if side in found.tensors)
        _comfy_layer(found, name, config if isinstance(config, Mapping) else {})


def _full_name(tensors: Mapping[str, TensorInfo], name: str) -> str:
    """The metadata may leave out the prefix that wraps a diffusion model."""
    names = (name, *(prefix + name for prefix in _PREFIXES))
    return next((full for full in names if full in tensors), name)


def _read_markers(found: _Found, header: Header) -> dict[str, Mapping[str, Any]]:
    """What the `X.comfy_quant` tensors of a file say: JSON as bytes."""
    names = [name for name in header.tensors if name.endswith(_COMFY)]
    found.absorbed.update(names)
    layers: dict[str, Mapping[str, Any]] = {}
    if not names:
        return layers
    try:
        with header.path.open("rb") as file:
            for name in names:
                info = header.tensors[name]
                file.seek(header.data_start + info.start)
                raw = file.read(min(info.size_bytes, _MOST_MARKER_BYTES))
                layers[name.removesuffix(_COMFY)] = _json(raw.rstrip(b"\0"))
    except OSError:
        found.fault("its quantization markers cannot be read", names[0])
    return layers


def _json(text: str | bytes) -> dict[str, Any]:
    try:
        document = json.loads(text) if text else {}
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


# comfy_quant's format -> ours, dtypes of the weight, name of the second scale.
_COMFY_FORMATS: Final[Mapping[str, tuple[PackingFormat, tuple[str, ...]]]] = {
    "float8_e4m3fn": ("fp8", ("F8_E4M3",)),
    "float8_e5m2": ("fp8", ("F8_E5M2",)),
    "int8_tensorwise": ("int8", ("I8",)),
    "nvfp4": ("nvfp4", ("U8",)),
    "mxfp8": ("mxfp8", _FP8),
}


def _comfy_layer(found: _Found, name: str, config: Mapping[str, Any]) -> None:
    told = str(config.get("format", ""))
    form, dtypes = _COMFY_FORMATS.get(told, ("fp8", ()))
    info = found.tensors[name]
    if not dtypes:
        words = f"comfy_quant {told}" if told else "comfy_quant without a format"
        found.fault(f"it is quantized ({words}), which is not supported", name, _REMEDY)
        return
    if info.dtype not in dtypes:
        found.fault(f"its marker says {told}, but its weights are {info.dtype}", name)
        return
    shape, group, label = info.shape, 0, told if form in ("nvfp4", "mxfp8") else form
    if form == "nvfp4":
        shape = (*shape[:-1], shape[-1] * 2)
    if form == "int8" and config.get("convrot"):
        form, label, group = "int8_convrot", "int8", _group(config)
        if group < 4 or group & (group - 1) or group.bit_length() % 2 == 0 or shape[-1] % group:  # noqa: PLR2004 - a power of 4
            found.fault("its convrot_groupsize is wrong", name)
            return
    parts = {"weight": name, "scale": f"{name}_scale"}
    if form == "nvfp4":
        parts["scale_2"] = f"{name}_scale_2"
    words = "comfy_quant, convrot" if group else "comfy_quant"
    packing = Packing(form, parts, shape, group)
    if _has_scales(found, name, packing, told):
        found.pack(name, packing, f"{label} ({words})")


def _group(config: Mapping[str, Any]) -> int:
    size = config.get("convrot_groupsize", 256)
    return size if isinstance(size, int) else 0


def _has_scales(found: _Found, name: str, packing: Packing, told: str) -> bool:
    """Say whether all parts are there and fit; notes the fault if not."""
    sides = set(packing.parts.values()) - {packing.parts["weight"]}
    found.absorbed.update(sides & found.tensors.keys())
    for part, stored in packing.parts.items():
        if stored not in found.tensors:
            found.fault(f"its weights are {told} without their {part}", name)
            return False
        if part == "weight":
            continue
        side = found.tensors[stored]
        if side.dtype not in _SIDE_DTYPES.get((packing.format, part), _ANY_SIDE):
            found.fault(f"the {part} of its {told} weights is {side.dtype}", name)
            return False
        if not _fits(packing, part, side.shape):
            found.fault(f"the {part} of its {told} weights has the wrong shape {side.shape}", name)
            return False
    return True


_FLOATS: Final = ("F32", "F16", "BF16", "F64")
_ANY_SIDE: Final = (*_FLOATS, "I8", "I16", "I32", "I64")
_SIDE_DTYPES: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("fp8", "scale"): _FLOATS,
    ("int8", "scale"): _FLOATS,
    ("int8_convrot", "scale"): _FLOATS,
    ("nvfp4", "scale"): ("F8_E4M3",),
    ("nvfp4", "scale_2"): _FLOATS,
    ("mxfp8", "scale"): ("F8_E8M0", "U8"),
}


def _fits(packing: Packing, part: str, shape: tuple[int, ...]) -> bool:
    """Say whether a scale of this shape can belong to the weight."""
    count, rows = math.prod(shape), packing.shape[0] if packing.shape else 1
    if packing.format in ("nvfp4", "mxfp8"):
        if part == "scale_2":
            return count == 1
        block = NVFP4_BLOCK if packing.format == "nvfp4" else MXFP8_BLOCK
        two = len(packing.shape) == 2  # noqa: PLR2004 - a matrix
        columns = packing.shape[-1]
        return two and columns % block == 0 and count == tiled_size(rows, columns // block)
    if count == 1 or (count == rows and shape[0] == rows):
        return True
    return len(shape) == len(packing.shape) == 2 and all(  # noqa: PLR2004 - both are matrices
        block_of(size, number, packing.group_size if packing.format == "fp8" else 0)
        for size, number in zip(packing.shape, shape, strict=True)
    )


def _scaled_fp8(found: _Found) -> None:
    """Float8 weights with a scale beside them, in any spelling; without one they may be a cast."""
    marked = [
        name.removesuffix(_MARKER)
        for name in found.tensors
        if name == _MARKER or name.endswith(f".{_MARKER}")
    ]
    found.absorbed.update(prefix + _MARKER for prefix in marked)
    for name in found.open(*_FP8):
        module = name.removesuffix("weight")
        scale = next((end for end in _SCALE_ENDS if module + end in found.tensors), None)
        found.absorbed.update(
            side
            for side in (f"{module}scale_input", f"{module}input_scale")
            if side in found.tensors
        )
        if scale and name != module:
            parts = {"weight": name, "scale": module + scale}
            square = SQUARE if scale == "weight_scale_inv" else 0
            packing = Packing("fp8", parts, found.tensors[name].shape, square)
            if _has_scales(found, name, packing, "scaled fp8"):
                found.pack(name, packing, "fp8 (scaled)")
        elif found.marked_layers or any(name.startswith(prefix) for prefix in marked):
            found.fault("its markers say scaled fp8, but weights have no scale", name)
        else:
            found.labels["fp8 (plain cast)"] += found.tensors[name].size_bytes


# X.scale_weight is the old scaled fp8; weight_scale what vLLM and comfy write; weight_scale_inv is
# DeepSeek's and Qwen's name for a scale per 128x128 block, which is multiplied all the same.
_SCALE_ENDS: Final = ("scale_weight", "weight_scale", "weight_scale_inv")


def _foreign(found: _Found) -> None:
    """Everything that is left and is not a plain number is refused by name."""
    for end, kind in _FOREIGN:
        names = [name for name in found.tensors if name.endswith(end)]
        if names:
            found.fault(f"it is quantized ({kind}), which is not supported", names[0], _REMEDY)
            break
    if found.faults:
        return
    for name in found.open(*_NEVER_PLAIN):
        dtype = found.tensors[name].dtype
        found.fault(f"its weights are {dtype} without scales or a marker", name)
    for name in found.open("U32"):
        if name.endswith(".weight") and name.removesuffix("weight") + "scales" in found.tensors:
            found.fault("it is quantized (MLX), which is not supported", name, _REMEDY)
