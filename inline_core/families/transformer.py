"""What the diffusion models of all families have in common when they are loaded.

Imports torch, so it is imported on the device thread only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import torch
from accelerate import init_empty_weights

from inline_core.families.key_table import KeyTable
from inline_core.loading.adapters import AdaptedModel, AdapterTarget
from inline_core.loading.offload import offload
from inline_core.loading.stages import keep_stage
from inline_core.loading.stream import LoadPlan, TensorSource, fill

_MATRIX = 2


class Keys(Protocol):
    """What a module's weights are called in files; `KeyTable` is the usual one."""

    def sources(self, names: Iterable[str], prefix: str) -> dict[str, TensorSource]:
        """Module name -> place in the file, for all layouts."""

    def ignored(self, prefix: str) -> list[str]:
        """Names in a file with this prefix that may be left over."""


def load_transformer(plan: LoadPlan, build: Callable[..., Any], table: Keys, **config: Any) -> Any:
    """A module with its weights streamed in; `config` stands beside what the shapes tell.

    What a config.json beside the file says wins, for the arguments that it shares with the shapes.
    Raises: ModelFileInvalid, RunCancelled.
    """
    told = {
        key: plan.files.config[key]
        for key in {**config, **plan.identity.config}
        if plan.files.config.get(key) is not None
    }
    # Unlike with the meta device, what is computed and not loaded (positions) is really there.
    with init_empty_weights(include_buffers=False):
        model = build(**{**config, **plan.identity.config, **told})
    absent = keep_stage(model, *plan.stage) if plan.stage[1] > 1 else ()
    place_buffers(model, plan.placement.storage)
    prefix = plan.identity.prefix
    sources = table.sources(plan.logical.tensors, prefix)
    elsewhere = [source.name for name, source in sources.items() if name.startswith(absent)]
    # Of the class itself: norms and tables of modulation that lose too much in half precision.
    precise = getattr(build, "_keep_in_fp32_modules", None) or ()
    fill(model, sources, plan, ignorable=[*table.ignored(prefix), *elsewhere], precise=precise)
    offload(model, plan.placement)
    return model.eval()


def buffers_as_weights(model: Any, *names: str) -> None:
    """Let buffers that lie in files like weights be filled like them."""
    for name in names:
        owner, _, leaf = name.rpartition(".")
        module = model.get_submodule(owner)
        empty = torch.empty_like(getattr(module, leaf), device="meta")
        delattr(module, leaf)
        module.register_parameter(leaf, torch.nn.Parameter(empty, requires_grad=False))


def place_buffers(model: Any, storage: str) -> None:
    """Move the buffers of a module, which were computed when it was built, to where it is held."""
    for name, buffer in list(model.named_buffers()):
        owner, _, leaf = name.rpartition(".")
        module = model.get_submodule(owner)
        kept = leaf not in module._non_persistent_buffers_set  # noqa: SLF001 - no other way to ask
        module.register_buffer(leaf, buffer.to(torch.device(storage)), persistent=kept)


def adapted_model(plan: LoadPlan, label: str, table: KeyTable) -> AdaptedModel:
    """What adapters can be put on: every linear under its names in all layouts."""
    sources = table.sources(plan.logical.tensors, plan.identity.prefix)
    return adapted(plan, label, sources, table.adapter_targets)


def adapted(
    plan: LoadPlan,
    label: str,
    sources: Mapping[str, TensorSource],
    targets: Callable[[Iterable[str]], dict[str, list[AdapterTarget]]],
) -> AdaptedModel:
    """The same for a family with rules of its own instead of a table."""
    shapes = {
        name: (shape[0] // source.parts * source.span, *shape[1:])
        for name, source in sources.items()
        if len(shape := plan.logical.tensors[source.name].shape) == _MATRIX
    }
    return AdaptedModel(plan.label, label, targets(shapes), shapes)
