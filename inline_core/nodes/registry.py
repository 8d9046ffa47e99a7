"""All node types: the built-in ones, and those of installed packages (`inline_core.nodes`)."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from types import MappingProxyType, ModuleType

from inline_core.families.registry import FAMILIES
from inline_core.graph.spec import NodeSpec
from inline_core.nodes import (
    audio,
    audio_mix,
    conditioning,
    conditioning_combine,
    frames,
    fun,
    image,
    image_batch,
    image_colour,
    image_compose,
    image_control,
    image_filter,
    image_size,
    image_upscale,
    inputs,
    latent,
    latent_change,
    load,
    mask,
    mask_shape,
    measures,
    model_sigmas,
    numbers,
    outputs,
    patches,
    sample,
    sigmas,
    text_generate,
    texts,
    vace,
    video,
)
from inline_core.nodes.base import spec_of
from inline_core.nodes.generate_offer import node_of

_BUILTIN: tuple[ModuleType, ...] = (
    inputs,
    sample,
    latent,
    image,
    image_size,
    image_compose,
    image_colour,
    image_filter,
    image_control,
    image_batch,
    image_upscale,
    mask,
    mask_shape,
    video,
    audio,
    audio_mix,
    measures,
    numbers,
    texts,
    outputs,
    load,
    conditioning,
    conditioning_combine,
    latent_change,
    frames,
    fun,
    patches,
    model_sigmas,
    sigmas,
    text_generate,
    vace,
)
ENTRY_POINT_GROUP = "inline_core.nodes"


def node_specs() -> Mapping[str, NodeSpec]:
    """Every node type by name.  Raises: ValueError if two claim the same name."""
    specs: dict[str, NodeSpec] = {}
    modules = list(_BUILTIN)
    modules.extend(entry.load() for entry in entry_points(group=ENTRY_POINT_GROUP))
    for module in modules:
        for function in vars(module).values():
            if not hasattr(function, "node_spec") or function.__module__ != module.__name__:
                continue
            _add(specs, spec_of(function))
    for family in FAMILIES.values():
        for offer in family.offers:
            _add(specs, node_of(family, offer))
    return MappingProxyType(specs)


def _add(specs: dict[str, NodeSpec], spec: NodeSpec) -> None:
    if spec.type in specs:
        message = f"two nodes are named {spec.type!r}"
        raise ValueError(message)
    specs[spec.type] = spec
