"""Real models as names and shapes: built on the meta device, written as headers without data."""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import diffusers
import torch
import transformers
from diffusers.pipelines.ltx2 import LTX2TextConnectors, LTX2Vocoder
from torch import nn
from torch.nn.modules.conv import _ConvNd

from inline_core.loading.header import read_header
from inline_core.loading.identify import FileIdentity, identify

State = dict[str, torch.Tensor]
_LOCAL = {"LTX2TextConnectors": LTX2TextConnectors, "LTX2Vocoder": LTX2Vocoder}


@dataclass(frozen=True)
class Model:
    """One model: its class, the arguments of its published size and what must be found."""

    class_name: str
    family: str
    variant: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)


# What the files have in front of the names of the class.
_FILE_PREFIXES = {"CLIPTextModel": "text_model.", "CLIPVisionModel": "vision_model."}
_NAME = "reset_parameters"
_LAYERS: tuple[type[nn.Module], ...] = (
    nn.Linear,
    nn.Embedding,
    nn.LayerNorm,
    nn.GroupNorm,
    _ConvNd,
)


def build(class_name: str, arguments: Mapping[str, Any]) -> State:
    """The tensors of a model on the meta device, by the names that files give them."""
    prefix = _FILE_PREFIXES.get(class_name, "")
    with _without_initialisation(), torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch's old weight norm
        made = _made(class_name, dict(arguments))
    return {prefix + name: tensor for name, tensor in made.state_dict().items()}


@contextlib.contextmanager
def _without_initialisation() -> Iterator[None]:
    """Shapes need no values: most of the time of building a model would go there."""
    before = {layer: vars(layer)[_NAME] for layer in _LAYERS if _NAME in vars(layer)}
    try:
        for layer in before:
            setattr(layer, _NAME, lambda _: None)
        yield
    finally:
        for layer, method in before.items():
            setattr(layer, _NAME, method)


def _made(class_name: str, arguments: dict[str, Any]) -> Any:
    if class_name in _LOCAL:
        return _LOCAL[class_name](**arguments)
    if hasattr(diffusers, class_name):
        return getattr(diffusers, class_name)(**arguments)
    model = getattr(transformers, class_name)
    return model(model.config_class(**arguments))


@functools.cache
def _cached(class_name: str, arguments: str) -> State:
    return build(class_name, json.loads(arguments))


def shared(class_name: str, arguments: Mapping[str, Any]) -> State:
    """The same, built once for equal arguments (defaults written out or not); do not change it."""
    all_arguments = {**_defaults(class_name), **arguments}
    return _cached(class_name, json.dumps(all_arguments, sort_keys=True))


def _defaults(class_name: str) -> dict[str, Any]:
    if not hasattr(diffusers, class_name):
        return {}
    parameters = inspect.signature(getattr(diffusers, class_name).__init__).parameters
    return {
        name: parameter.default
        for name, parameter in parameters.items()
        if parameter.default is not inspect.Parameter.empty
    }


def write_header(state: Mapping[str, torch.Tensor], path: Path) -> Path:
    """A complete safetensors file in bf16 as a sparse file: the header is real, the data a hole."""
    header: dict[str, Any] = {}
    offset = 0
    for name, tensor in state.items():
        end = offset + 2 * tensor.numel()
        entry = {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": [offset, end]}
        header[name] = entry
        offset = end
    raw = json.dumps(header).encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw)
    os.truncate(path, 8 + len(raw) + offset)
    return path


def identify_state(state: Mapping[str, torch.Tensor], path: Path) -> FileIdentity:
    """Write the header, read it back as the server does, and identify it."""
    return identify([read_header(write_header(state, path))])


def shapes_of(state: Mapping[str, torch.Tensor]) -> dict[str, tuple[int, ...]]:
    """Names and shapes, to compare two models."""
    return {name: tuple(tensor.shape) for name, tensor in state.items()}


def differences(left: Mapping[str, torch.Tensor], right: Mapping[str, torch.Tensor]) -> list[str]:
    """Every name or shape in which two models differ (empty: none)."""
    one, two = shapes_of(left), shapes_of(right)
    return sorted(
        f"{name}: {one.get(name)} and {two.get(name)}"
        for name in one.keys() | two.keys()
        if one.get(name) != two.get(name)
    )
