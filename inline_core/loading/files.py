"""The files behind one component: a single file, shards in a folder, or a folder with a config."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from inline_core.errors import ModelFileInvalid
from inline_core.loading.header import SAFE_SUFFIXES, Header, TensorInfo, part_of, read_header

TOKENIZER_FILES: Final = ("tokenizer.json", "vocab.json", "tokenizer_config.json")
# Ours (written by the demo's export) and the plain word.
_CONFIG_KEYS: Final = ("autoencoder_kl", "config")
PIPELINE_PARTS: Final[Mapping[str, str]] = {
    "transformer": "diffusion_models",
    "transformer_2": "diffusion_models",
    "unet": "diffusion_models",
    "vae": "vae",
    "audio_vae": "vae",
    "vocoder": "vae",
    "text_encoder": "text_encoders",
    "text_encoder_2": "text_encoders",
    "text_encoder_3": "text_encoders",
    "connectors": "text_encoders",
    "condition_encoder": "text_encoders",
}


@dataclass(frozen=True, slots=True, eq=False)
class WeightFiles:
    """The checked headers of one component and the `config.json` beside them, if there is one.

    `stamp` changes when the content may have changed: sizes, times and header hashes.
    """

    path: Path
    headers: tuple[Header, ...]
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """Bytes of all files together."""
        return sum(header.size_bytes for header in self.headers)

    @property
    def tensors(self) -> dict[str, TensorInfo]:
        """All tensors of all files by name."""
        return {name: info for header in self.headers for name, info in header.tensors.items()}

    @property
    def stamp(self) -> str:
        """Equal stamps mean equal weights; all parts of one file have the same."""
        # The config of a single file is a part of its header.
        if len(self.headers) == 1 and (not self.config or self.headers[0].path == self.path):
            header = self.headers[0]
            return f"{header.size_bytes:x}-{header.mtime_ns:x}-{header.digest}"
        text = "|".join(
            f"{header.path.name}:{header.size_bytes}:{header.mtime_ns}:{header.digest}"
            for header in self.headers
        )
        text += json.dumps(self.config, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def is_weight_folder(names: set[str]) -> bool:
    """Say whether a folder is one component: a config or a shard index, with weights beside it."""
    weights = any(name.lower().endswith(SAFE_SUFFIXES) for name in names)
    index = any(name.endswith(".safetensors.index.json") for name in names)
    return (weights and "config.json" in names) or index


def is_pipeline_folder(names: set[str]) -> bool:
    """Say whether a folder is a whole diffusers pipeline, whose parts are offered one by one."""
    return "model_index.json" in names or {"transformer", "vae", "text_encoder"} <= names


def open_weights(path: Path, name: str | None = None, part: str = "") -> WeightFiles:
    """Read the headers of a file, or of all the shards of a folder, and the folder's config.

    With `part` only the tensors below that prefix, without it: one component of an all-in-one file.
    Raises: ModelFileMissing, ModelFileInvalid (a shard is absent, broken, or the folder is empty).
    """
    label = name or path.name
    if not path.is_dir():
        header = read_header(path, label)
        if part:
            # What the metadata says is about the whole, or about another part.
            return WeightFiles(path, (part_of(header, part),))
        return WeightFiles(path, (header,), _config_in_metadata(header))
    shards = _shards(path, label)
    headers = tuple(read_header(shard, f"{label}/{shard.name}") for shard in shards)
    if part:
        return WeightFiles(path, tuple(part_of(header, part) for header in headers))
    config = read_json(path / "config.json")
    return WeightFiles(path, headers, config or {})


def _shards(folder: Path, label: str) -> list[Path]:
    files = sorted(
        file
        for file in folder.iterdir()
        if file.suffix.lower() in SAFE_SUFFIXES and not file.name.startswith(".")
    )
    indexes = sorted(folder.glob("*.safetensors.index.json"))
    if indexes:
        named = set((read_json(indexes[0]).get("weight_map") or {}).values())
        missing = sorted(named - {file.name for file in files})
        if missing:
            message = (
                f"{label} lacks {len(missing)} of {len(named)} shards "
                f"({', '.join(missing[:5])}): finish the download"
            )
            raise ModelFileInvalid(message)
        return [file for file in files if file.name in named]
    if not files:
        message = f"{label} holds no .safetensors file: download its weights"
        raise ModelFileInvalid(message)
    return files


def _config_in_metadata(header: Header) -> Mapping[str, Any]:
    """A single file may carry what its shapes do not tell as JSON in its metadata."""
    for key in _CONFIG_KEYS:
        if key not in header.metadata:
            continue
        try:
            config = json.loads(header.metadata[key])
        except ValueError:
            continue
        if isinstance(config, dict):
            return config
    return {}


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file; empty when the file is absent.  Raises: ModelFileInvalid."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        message = f"{path.parent.name}/{path.name} is not readable JSON: download it again"
        raise ModelFileInvalid(message) from error
    return document if isinstance(document, dict) else {}
