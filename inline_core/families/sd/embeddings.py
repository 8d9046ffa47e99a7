"""Embeddings (textual inversion): files with vectors that stand in for words of a prompt.

Imports torch, so it is imported on the device thread only.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch

from inline_core.errors import ModelFileInvalid, ModelFileMissing
from inline_core.loading.files import open_weights
from inline_core.loading.header import SAFE_SUFFIXES
from inline_core.loading.reader import TensorReader

if TYPE_CHECKING:
    from torch import Tensor

Find = Callable[[str, str], Path | None]

# What the vectors of each text encoder are called, by its position; then what others call them.
_KEYS: Final = ("clip_l", "clip_g")
_SHARED: Final = "emb_params"


def vectors_of(name: str, position: int, width: int, find: Find) -> Tensor:
    """The vectors (count, width) of an embedding for the text encoder at a position, float32.

    `find` gives the path of a file by category and name.
    Raises: ModelFileMissing naming the embedding, ModelFileInvalid for files of another kind.
    """
    names = (*(f"{name}{suffix}" for suffix in SAFE_SUFFIXES), name)
    path = next((path for one in names if (path := find("embeddings", one))), None)
    if path is None:
        message = (
            f"the prompt names embedding:{name}, which is not in models/embeddings: put "
            f"{name}.safetensors there, or take it out of the prompt"
        )
        raise ModelFileMissing(message)
    files = open_weights(path, path.name)
    tensors = files.tensors
    alone = next(iter(tensors)) if len(tensors) == 1 else ""
    key = next((key for key in (_KEYS[position], _SHARED, alone) if key in tensors), None)
    shape = tensors[key].shape if key is not None else ()
    if key is None or shape[-1:] != (width,) or len(shape) not in (1, 2):
        has = ", ".join(f"{found} {info.shape}" for found, info in list(tensors.items())[:4])
        message = (
            f"the embedding {name} was made for another model: it has {has}, the text encoder "
            f"needs vectors of {width}"
        )
        raise ModelFileInvalid(message)
    with TensorReader(files, path.name) as reader:
        return reader.buffered(key).to(torch.float32, copy=True).reshape(-1, width)
