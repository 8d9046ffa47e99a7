"""Model files with random weights of the real sizes, written as fast as the disk takes them."""

from __future__ import annotations

import json
import math
import os
import shutil
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from diffusers import AutoencoderKL, ZImageTransformer2DModel
from torch import Tensor
from transformers import Qwen3Config, Qwen3Model

from inline_core.loading.blocks import is_block_linear
from tests import tiny

FORMAT: Final = 1  # part of the folder's name: files of another version are not used again
# A prime, so that the rows of a matrix differ from each other.
_PATTERN_VALUES: Final = 4_194_301
_SCALE: Final = 0.02
_FP8_MOST: Final = 448.0
_NAMES: Final = {torch.bfloat16: "BF16", torch.float32: "F32", torch.float8_e4m3fn: "F8_E4M3"}
_DAY_S: Final = 86_400
LORA_RANK: Final = 16


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the models of a run look like."""

    transformer: Mapping[str, Any]
    vae: Mapping[str, Any]
    text: Mapping[str, Any]
    label: str


_VAE: Final = {
    "block_out_channels": (128, 256, 512, 512),
    "down_block_types": ("DownEncoderBlock2D",) * 4,
    "up_block_types": ("UpDecoderBlock2D",) * 4,
    "layers_per_block": 2,
    "latent_channels": 16,
    "use_quant_conv": False,
    "use_post_quant_conv": False,
}


def real_sizes(text_layers: int) -> Sizes:
    """Z-Image (diffusers' defaults are its config), the VAE of FLUX.1, Qwen3 4B."""
    text = {
        "vocab_size": 151_936,
        "hidden_size": 2560,
        "intermediate_size": 9728,
        "num_hidden_layers": text_layers,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
    }
    return Sizes({}, _VAE, text, f"real-{text_layers}")


def small_sizes() -> Sizes:
    """The same architectures for a dry run on the processor."""
    transformer = {
        "dim": 256,
        "n_layers": 2,
        "n_refiner_layers": 1,
        "n_heads": 4,
        "n_kv_heads": 4,
        "cap_feat_dim": 64,
        "axes_dims": [16, 24, 24],
    }
    text = {
        "vocab_size": 272,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
    }
    small = {"block_out_channels": (16,) * 4, "layers_per_block": 1, "norm_num_groups": 16}
    vae = {**_VAE, **small}
    return Sizes(transformer, vae, text, "small")


@dataclass(frozen=True, slots=True)
class Planned:
    """A file to write: its tensors in order, by name."""

    path: str
    tensors: Mapping[str, tuple[torch.dtype, tuple[int, ...]]]
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(math.prod(shape) * dtype.itemsize for dtype, shape in self.tensors.values())


@dataclass(frozen=True, slots=True)
class Files:
    """A models folder; `fp8` and `lora` lie beside it, so that no catalog offers them."""

    folder: Path
    model: Path
    twin: Path
    fp8: Path
    vae: Path
    text: Path
    lora: Path


def plan_files(sizes: Sizes) -> tuple[Planned, ...]:
    """All files of a run, from the shapes of the architectures."""
    with torch.device("meta"):
        transformer = ZImageTransformer2DModel(**sizes.transformer).state_dict()
        vae = AutoencoderKL(**sizes.vae).state_dict()
        text = Qwen3Model(Qwen3Config(**sizes.text)).state_dict()
    plain = _shapes(tiny.original_keys(transformer), torch.bfloat16)
    return (
        Planned("models/diffusion_models/a.safetensors", plain),
        Planned("fp8.safetensors", _as_fp8(plain)),
        Planned(
            "models/vae/ae.safetensors",
            _shapes(tiny.ldm_keys(vae), torch.float32),
            {"format": "pt"},
        ),
        Planned(
            "models/text_encoders/qwen.safetensors",
            {f"model.{name}": form for name, form in _shapes(text, torch.bfloat16).items()},
        ),
        Planned("lora.safetensors", _lora(plain)),
    )


def bytes_needed(plans: tuple[Planned, ...]) -> int:
    """Disk that the files take."""
    return sum(plan.size_bytes for plan in plans)


def write_files(root: Path, plans: tuple[Planned, ...]) -> tuple[Files, int]:
    """Write what is not there yet; gives the files and how many bytes were written.

    Raises: OSError if the disk is too small.
    """
    missing = [plan for plan in plans if not _is_there(root / plan.path, plan)]
    needed = sum(plan.size_bytes for plan in missing)
    root.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(root).free
    if needed > free:
        message = f"{needed / 1e9:.1f} GB are needed in {root}, {free / 1e9:.1f} GB are free"
        raise OSError(message)
    pattern = torch.randn(_PATTERN_VALUES, generator=torch.Generator().manual_seed(0)) * _SCALE
    for plan in missing:
        _write(root / plan.path, plan, pattern)
    files = Files(
        root / "models",
        root / plans[0].path,
        root / "models/diffusion_models/b.safetensors",
        root / plans[1].path,
        root / plans[2].path,
        root / plans[3].path,
        root / plans[4].path,
    )
    _twin(files.model, files.twin)
    tiny.tokenizer().save_pretrained(files.text.parent / f"{files.text.stem}.tokenizer")
    _settle(root)
    return files, needed


def _shapes(
    state: Mapping[str, Tensor], dtype: torch.dtype
) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
    return {name: (dtype, tuple(tensor.shape)) for name, tensor in state.items()}


def _as_fp8(
    plain: Mapping[str, tuple[torch.dtype, tuple[int, ...]]],
) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
    """Scaled fp8 as ComfyUI writes it: a marker, and one scale for each matrix of a block."""
    made: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {}
    for name, (dtype, shape) in plain.items():
        if not is_block_linear(name, shape):
            made[name] = (dtype, shape)
            continue
        made[name] = (torch.float8_e4m3fn, shape)
        made[name.removesuffix("weight") + "scale_weight"] = (torch.float32, ())
    made["scaled_fp8"] = (torch.float8_e4m3fn, (2,))
    return made


def _lora(
    plain: Mapping[str, tuple[torch.dtype, tuple[int, ...]]],
) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
    """A LoRA on every attention and feed-forward matrix of the main blocks."""
    made: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {}
    for name, (_, shape) in plain.items():
        if name.startswith("layers.") and is_block_linear(name, shape):
            stem = "diffusion_model." + name.removesuffix(".weight")
            made[f"{stem}.lora_A.weight"] = (torch.bfloat16, (LORA_RANK, shape[1]))
            made[f"{stem}.lora_B.weight"] = (torch.bfloat16, (shape[0], LORA_RANK))
    return made


def _is_there(path: Path, plan: Planned) -> bool:
    """A file is renamed when it is whole, so its size is enough to tell."""
    return path.is_file() and path.stat().st_size > plan.size_bytes


def _write(path: Path, plan: Planned, pattern: Tensor) -> None:
    """Header and tensors, one after the other, from one repeated pattern."""
    path.parent.mkdir(parents=True, exist_ok=True)
    header: dict[str, Any] = {"__metadata__": dict(plan.metadata)} if plan.metadata else {}
    start = 0
    for name, (dtype, shape) in plan.tensors.items():
        end = start + math.prod(shape) * dtype.itemsize
        header[name] = {"dtype": _NAMES[dtype], "shape": list(shape), "data_offsets": [start, end]}
        start = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 64)
    sources = _Sources(pattern)
    part = path.with_name(path.name + ".part")
    with part.open("wb", buffering=0) as file:
        _write_all(file.fileno(), memoryview(len(text).to_bytes(8, "little") + text))
        for name, (dtype, shape) in plan.tensors.items():
            for piece in sources.bytes_of(name, dtype, shape):
                _write_all(file.fileno(), piece)
    part.rename(path)


def _write_all(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


class _Sources:
    """The bytes of each tensor: pieces of one random pattern, so that nothing is drawn twice."""

    def __init__(self, pattern: Tensor) -> None:
        self._pattern = pattern
        self._most = float(pattern.abs().max())
        self._bytes: dict[torch.dtype, memoryview] = {}

    def bytes_of(
        self, name: str, dtype: torch.dtype, shape: tuple[int, ...]
    ) -> Iterator[memoryview]:
        """All of a tensor; norms are ones, so that the signal keeps its size."""
        count = math.prod(shape)
        if "scale_weight" in name:
            yield _raw(torch.full(shape, self._most / _FP8_MOST))
            return
        if name == "scaled_fp8" or (len(shape) == 1 and "norm" in name):
            yield _raw(torch.ones(shape).to(dtype))
            return
        data = self._data(dtype)
        # The same part of the pattern in bf16 and in fp8, so that both files mean one model.
        place = _start_of(name)
        while count:
            length = min(count, _PATTERN_VALUES - place)
            yield data[place * dtype.itemsize : (place + length) * dtype.itemsize]
            count -= length
            place = 0

    def _data(self, dtype: torch.dtype) -> memoryview:
        if dtype not in self._bytes:
            scaled = self._pattern
            if dtype is torch.float8_e4m3fn:
                # From the rounded values of the other file, as a converter would do it.
                scaled = self._pattern.bfloat16().float() * (_FP8_MOST / self._most)
            self._bytes[dtype] = _raw(scaled.to(dtype))
        return self._bytes[dtype]


def _start_of(name: str) -> int:
    """Another place of the pattern for each name."""
    return zlib.crc32(name.encode()) % _PATTERN_VALUES


def _raw(tensor: Tensor) -> memoryview:
    return memoryview(tensor.reshape(-1).contiguous().view(torch.uint8).numpy().data)


def _twin(path: Path, twin: Path) -> None:
    """The same weights under a second name: another model as far as the pool can tell."""
    if twin.exists() and twin.stat().st_size == path.stat().st_size:
        return
    twin.unlink(missing_ok=True)
    try:
        os.link(path, twin)
    except OSError:
        shutil.copyfile(path, twin)


def _settle(root: Path) -> None:
    """A file that changed a moment ago counts as still being copied."""
    then = time.time() - _DAY_S
    for file in root.rglob("*"):
        if file.is_file():
            os.utime(file, (then, then))
