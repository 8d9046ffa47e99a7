"""Write quantized weight files as other programs do, with formulas of their own.

Nothing of `inline_core` is used here.  Each writer gives the weights as its own numpy arithmetic
unpacks them again, so that a test compares two independent implementations.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import gguf
import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open

from tests import tiny

# Two threads on a busy machine are much slower than one.
torch.set_num_threads(1)

Floats = NDArray[Any]  # float32
Bytes = NDArray[np.uint8]

BLOCKS: Final = ("layers.", "noise_refiner.", "context_refiner.")
K_QUANTS: Final = ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")
LEGACY_QUANTS: Final = ("Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0")
E2M1: Final = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


@dataclass(frozen=True)
class PackedFile:
    """A written file, what its packed weights really are, and what they were."""

    path: Path
    weights: Mapping[str, torch.Tensor]
    originals: Mapping[str, torch.Tensor]
    plain: Mapping[str, torch.Tensor]


@dataclass
class _Pieces:
    """Tensors of the file to write, and the unpacked weights."""

    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    weights: dict[str, torch.Tensor] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)


@functools.cache
def plain_weights() -> dict[str, torch.Tensor]:
    """The tiny Z-Image transformer in the original layout with fused qkv, float32; do not change."""
    state = tiny.transformer().state_dict()
    return {name: tensor.detach() for name, tensor in tiny.original_keys(state).items()}


def _is_packed(name: str, tensor: torch.Tensor, columns: int) -> bool:
    return name.startswith(BLOCKS) and tensor.ndim == 2 and tensor.shape[1] % columns == 0


def _write(
    path: Path,
    pack: Callable[[_Pieces, str, Floats], Floats],
    columns: int = 1,
    extra: Mapping[str, torch.Tensor] | None = None,
    metadata: Mapping[str, str] | None = None,
) -> PackedFile:
    pieces, plain = _Pieces(metadata=dict(metadata or {})), plain_weights()
    pieces.tensors |= extra or {}
    for name, tensor in plain.items():
        if _is_packed(name, tensor, columns):
            pieces.weights[name] = torch.from_numpy(pack(pieces, name, tensor.numpy()))
        else:
            pieces.tensors[name] = tensor.bfloat16()
    layers = pieces.metadata.pop("layers", None)
    if layers:
        document = {"format_version": "1.0", "layers": json.loads(layers)}
        pieces.metadata["_quantization_metadata"] = json.dumps(document)
    tiny.save(pieces.tensors, path, pieces.metadata)
    return PackedFile(path, pieces.weights, {name: plain[name] for name in pieces.weights}, plain)


# ---- float8 -----------------------------------------------------------------------------------


def float8_values(codes: Bytes, exponent_bits: int) -> Floats:
    """Decode E4M3 (4 exponent bits, bias 7) or E5M2 (5, bias 15) bit by bit."""
    mantissa_bits = 7 - exponent_bits
    bias = 2 ** (exponent_bits - 1) - 1
    sign = np.where(codes & 128, -1.0, 1.0)
    exponent = ((codes & 127) >> mantissa_bits).astype(np.int64)
    fraction = (codes & (2**mantissa_bits - 1)) / 2**mantissa_bits
    normal = (1 + fraction) * 2.0 ** (exponent - bias)
    values: Floats = sign * np.where(exponent == 0, fraction * 2.0 ** (1 - bias), normal)
    return values.astype(np.float32)


def _to_float8(values: NDArray[Any], exponent_bits: int = 4) -> torch.Tensor:
    kind = torch.float8_e4m3fn if exponent_bits == 4 else torch.float8_e5m2
    return torch.from_numpy(np.ascontiguousarray(values)).to(kind)


def _codes(tensor: torch.Tensor) -> Bytes:
    codes: Bytes = tensor.view(torch.uint8).numpy()
    return codes


def fp8_scaled(path: Path, *, marker: bool = True) -> PackedFile:
    """The old layout: `scaled_fp8`, `X.scale_weight`, `X.scale_input`."""

    def pack(pieces: _Pieces, name: str, weight: Floats) -> Floats:
        module = name.removesuffix("weight")
        scale = np.float32(np.abs(weight).max() / 448)
        packed = _to_float8(weight / scale)
        pieces.tensors[name] = packed
        pieces.tensors[module + "scale_weight"] = torch.tensor(scale)
        pieces.tensors[module + "scale_input"] = torch.tensor(1.0)
        return float8_values(_codes(packed), 4) * scale

    extra = {"scaled_fp8": torch.zeros(2, dtype=torch.float8_e4m3fn)} if marker else {}
    return _write(path, pack, extra=extra)


def fp8_blocks(path: Path) -> PackedFile:
    """What Qwen and DeepSeek publish: `weight_scale_inv`, a bfloat16 scale for 128x128 values."""

    def pack(pieces: _Pieces, name: str, weight: Floats) -> Floats:
        rows, columns = weight.shape
        grid = torch.rand(-(-rows // 128), -(-columns // 128)).add(0.5).mul(0.01).bfloat16()
        spread = np.kron(grid.float().numpy(), np.ones((128, 128), np.float32))[:rows, :columns]
        packed = _to_float8(weight / spread)
        pieces.tensors |= {name: packed, f"{name}_scale_inv": grid}
        return float8_values(_codes(packed), 4) * spread

    return _write(path, pack)


# ---- comfy_quant ------------------------------------------------------------------------------


def _mark(pieces: _Pieces, name: str, told: Mapping[str, Any], *, in_metadata: bool) -> None:
    layer = name.removesuffix(".weight")
    if in_metadata:
        layers = json.loads(pieces.metadata.get("layers", "{}"))
        pieces.metadata["layers"] = json.dumps({**layers, layer: told})
    else:
        raw = np.frombuffer(json.dumps(told).encode(), np.uint8).copy()
        pieces.tensors[f"{layer}.comfy_quant"] = torch.from_numpy(raw)


def comfy_fp8(path: Path, form: str = "float8_e4m3fn", *, in_metadata: bool = False) -> PackedFile:
    """`X.comfy_quant` or file metadata, with `X.weight_scale` and `X.input_scale`."""
    bits = 4 if form == "float8_e4m3fn" else 5

    def pack(pieces: _Pieces, name: str, weight: Floats) -> Floats:
        scale = np.float32(np.abs(weight).max() / (448 if bits == 4 else 57344))
        packed = _to_float8(weight / scale, bits)
        pieces.tensors |= {name: packed, f"{name}_scale": torch.tensor(scale)}
        pieces.tensors[name.removesuffix("weight") + "input_scale"] = torch.tensor(1.0)
        told = {"format": form, "full_precision_matrix_mult": True}
        _mark(pieces, name, told, in_metadata=in_metadata)
        return float8_values(_codes(packed), bits) * scale

    return _write(path, pack)


def _rotation(size: int) -> Floats:
    """ConvRot's matrix from its closed form: minus where an odd number of digits pair off."""
    four = np.array([[1, 1, 1, -1], [1, 1, -1, 1], [1, -1, 1, 1], [-1, 1, 1, 1]])
    row, column = np.indices((size, size))
    matrix = np.ones((size, size))
    while size > 1:
        matrix *= four[row % 4, column % 4]
        row, column, size = row // 4, column // 4, size // 4
    scaled: Floats = matrix / np.sqrt(len(matrix))
    return scaled.astype(np.float32)


def comfy_int8(
    path: Path, *, rows: bool = True, convrot: int = 0, in_metadata: bool = False
) -> PackedFile:
    """`int8_tensorwise` with one scale or one for each row, rotated or not."""

    def pack(pieces: _Pieces, name: str, weight: Floats) -> Floats:
        values = weight.astype(np.float64)
        turn = np.kron(np.eye(weight.shape[1] // convrot), _rotation(convrot)) if convrot else None
        if turn is not None:
            values = values @ turn.T
        most = np.abs(values).max(axis=1, keepdims=True) if rows else np.abs(values).max()
        scale = np.asarray(most / 127, np.float32)
        packed = np.clip(np.rint(values / scale), -127, 127).astype(np.int8)
        pieces.tensors |= {name: torch.from_numpy(packed), f"{name}_scale": torch.tensor(scale)}
        told: dict[str, Any] = {"format": "int8_tensorwise"}
        if convrot:
            told |= {"convrot": True, "convrot_groupsize": convrot}
        _mark(pieces, name, told, in_metadata=in_metadata)
        made = packed.astype(np.float64) * scale
        return (made if turn is None else made @ turn).astype(np.float32)

    return _write(path, pack, columns=convrot or 1)


def tiled(scales: NDArray[Any]) -> NDArray[Any]:
    """Scales in cuBLAS's order, by the formula for the place of one scale."""
    rows, columns = scales.shape
    tall, wide = -(-rows // 128), -(-columns // 4)
    out = np.zeros(tall * wide * 512, scales.dtype)
    for row in range(rows):
        for column in range(columns):
            tile = (row // 128) * wide + column // 4
            out[tile * 512 + row % 32 * 16 + row % 128 // 32 * 4 + column % 4] = scales[row, column]
    return out.reshape(tall * 128, wide * 4)


def comfy_nvfp4(path: Path, *, in_metadata: bool = False) -> PackedFile:
    """Two E2M1 numbers a byte, an E4M3 scale for 16 of them, one float scale for all."""

    def pack(pieces: _Pieces, name: str, weight: Floats) -> Floats:
        groups = weight.reshape(len(weight), -1, 16)
        whole = np.float32(np.abs(weight).max() / (448 * 6))
        scale = _to_float8(np.abs(groups).max(-1) / 6 / whole)
        steps = float8_values(_codes(scale), 4) * whole
        codes = np.abs((groups / steps[..., None])[..., None] - E2M1).argmin(-1)
        codes = codes.reshape(weight.shape).astype(np.uint8)
        pieces.tensors[name] = torch.from_numpy(codes[:, ::2] << 4 | codes[:, 1::2])
        pieces.tensors[f"{name}_scale"] = torch.from_numpy(tiled(_codes(scale))).view(
            torch.float8_e4m3fn
        )
        pieces.tensors[f"{name}_scale_2"] = torch.tensor(whole)
        _mark(pieces, name, {"format": "nvfp4"}, in_metadata=in_metadata)
        made: Floats = E2M1[codes].reshape(groups.shape) * steps[..., None]
        return made.reshape(weight.shape)

    return _write(path, pack, columns=16)


def comfy_mxfp8(path: Path, *, as_bytes: bool = False) -> PackedFile:
    """Float8 with a power of two for 32 of them."""

    def pack(pieces: _Pieces, name: str, weight: Floats) -> Floats:
        groups = weight.reshape(len(weight), -1, 32)
        exponent = np.ceil(np.log2(np.abs(groups).max(-1) / 448)).astype(np.int64)
        steps = (2.0**exponent).astype(np.float32)[..., None]
        packed = _to_float8((groups / steps).reshape(weight.shape))
        scale = torch.from_numpy(tiled((exponent + 127).astype(np.uint8)))
        pieces.tensors[name] = packed
        pieces.tensors[f"{name}_scale"] = scale if as_bytes else scale.view(torch.float8_e8m0fnu)
        _mark(pieces, name, {"format": "mxfp8"}, in_metadata=False)
        made: Floats = float8_values(_codes(packed), 4).reshape(groups.shape) * steps
        return made.reshape(weight.shape)

    return _write(path, pack, columns=32)


# ---- torchao ----------------------------------------------------------------------------------


@contextlib.contextmanager
def torchao_noise_ignored() -> Iterator[None]:
    """Torchao warns about its extensions and its own deprecations; nothing of it matters here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def torchao(folder: Path, config: Any) -> PackedFile:
    """What diffusers saves of a model that torchao quantized."""
    with torchao_noise_ignored():
        from diffusers import TorchAoConfig, ZImageTransformer2DModel

        model = tiny.transformer().bfloat16()
        model.save_pretrained(folder / "plain")
        quantized = ZImageTransformer2DModel.from_pretrained(
            folder / "plain",
            quantization_config=TorchAoConfig(config),
            torch_dtype=torch.bfloat16,
        )
        quantized.save_pretrained(folder / "packed")
        weights = {
            name: tensor.dequantize(torch.float32)
            for name, tensor in quantized.state_dict().items()
            if type(tensor) is not torch.Tensor
        }
    tiny.settle(folder / "packed")
    path = folder / "packed/diffusion_pytorch_model.safetensors"
    plain = {name: tensor.float() for name, tensor in model.state_dict().items()}
    return PackedFile(path, weights, {name: plain[name] for name in weights}, plain)


# ---- GGUF -------------------------------------------------------------------------------------


def random_blocks(kind: str, count: int) -> Bytes:
    """Blocks of a ggml type with random numbers and sane half-precision scales."""
    generator = np.random.default_rng(11)
    _, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    blocks = generator.integers(0, 256, (count, size), dtype=np.uint8)
    places = {"Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}
    for place in places[kind]:
        scale = generator.normal(0, 0.01, (count, 1)).astype(np.float16)
        blocks[:, place : place + 2] = scale.view(np.uint8)
    return blocks


def gguf_file(path: Path, kind: str = "Q8_0", *, architecture: str = "lumina2") -> PackedFile:
    """GGUF by the gguf package; blocks where rows fit them, F32 for vectors, else BF16.

    Of the tiny model only the time embedder has rows long enough for K-quants, whose numbers are
    random as nothing in Python makes real ones.
    """
    quantization = gguf.GGMLQuantizationType[kind]
    values, size = gguf.GGML_QUANT_SIZES[quantization]
    writer = gguf.GGUFWriter(path, architecture)
    plain, weights = plain_weights(), {}
    for name, tensor in plain.items():
        data = tensor.numpy()
        fits = values > 1 and data.ndim == 2 and data.shape[1] % values == 0
        if fits and name.startswith((*BLOCKS, "t_embedder.")):
            blocks = data.size // values
            packed = (
                random_blocks(kind, blocks).reshape(len(data), -1)
                if kind in K_QUANTS
                else gguf.quants.quantize(data, quantization)
            )
            assert packed.size == blocks * size
            writer.add_tensor(name, packed, raw_dtype=quantization)
            made = gguf.quants.dequantize(packed, quantization)
            weights[name] = torch.from_numpy(made.reshape(data.shape))
        elif data.ndim < 2 or "pad_token" in name:
            writer.add_tensor(name, data)
        else:
            bf16 = gguf.GGMLQuantizationType.BF16
            writer.add_tensor(name, gguf.quants.quantize(data, bf16), raw_dtype=bf16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    tiny.settle(path.parent)
    return PackedFile(path, weights, {name: plain[name] for name in weights}, plain)


# ---- changes ----------------------------------------------------------------------------------


def without(file: PackedFile, drop: Callable[[str], bool], path: Path) -> Path:
    """The same safetensors file without some of its tensors."""
    with safe_open(str(file.path), framework="pt") as opened:
        metadata = opened.metadata()
        tensors = {name: opened.get_tensor(name) for name in opened.keys() if not drop(name)}  # noqa: SIM118
    return tiny.save(tensors, path, metadata)


def is_scale(name: str) -> bool:
    """True for the names of scales, in every spelling."""
    ends = ("scale_weight", "weight_scale", "weight_scale_inv", "weight_scale_2")
    return name.endswith(ends)


# Every layout, with how much its weights may differ from the original ones (relative).
WRITERS: Final[Mapping[str, tuple[Callable[[Path], PackedFile], float]]] = {
    "fp8-scaled": (fp8_scaled, 0.03),
    "fp8-scaled-unmarked": (lambda path: fp8_scaled(path, marker=False), 0.03),
    "fp8-blocks": (fp8_blocks, 0.03),
    "comfy-fp8": (comfy_fp8, 0.03),
    "comfy-fp8-metadata": (lambda path: comfy_fp8(path, in_metadata=True), 0.03),
    "comfy-fp8-e5m2": (lambda path: comfy_fp8(path, "float8_e5m2"), 0.06),
    "comfy-int8": (lambda path: comfy_int8(path, rows=False), 0.02),
    "comfy-int8-rows": (comfy_int8, 0.02),
    "comfy-int8-convrot": (lambda path: comfy_int8(path, convrot=16), 0.02),
    "comfy-int8-convrot-64": (lambda path: comfy_int8(path, convrot=64, in_metadata=True), 0.02),
    "comfy-nvfp4": (comfy_nvfp4, 0.11),
    "comfy-nvfp4-metadata": (lambda path: comfy_nvfp4(path, in_metadata=True), 0.11),
    "comfy-mxfp8": (comfy_mxfp8, 0.03),
    "comfy-mxfp8-bytes": (lambda path: comfy_mxfp8(path, as_bytes=True), 0.03),
    "gguf-Q8_0": (lambda path: gguf_file(path, "Q8_0"), 0.01),
    "gguf-Q5_1": (lambda path: gguf_file(path, "Q5_1"), 0.05),
    "gguf-Q5_0": (lambda path: gguf_file(path, "Q5_0"), 0.06),
    "gguf-Q4_1": (lambda path: gguf_file(path, "Q4_1"), 0.1),
    "gguf-Q4_0": (lambda path: gguf_file(path, "Q4_0"), 0.11),
    **{
        f"gguf-{kind}": ((lambda path, kind=kind: gguf_file(path, kind)), float("inf"))  # type: ignore[misc]
        for kind in K_QUANTS
    },
}


@functools.cache
def shared(layout: str) -> PackedFile:
    """One file of each layout for the whole test session; do not write to it."""
    folder = Path(tempfile.mkdtemp(prefix="inline-packed-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return WRITERS[layout][0](
        folder / f"x.{'gguf' if layout.startswith('gguf') else 'safetensors'}"
    )
