"""Real sizes without real bytes: whether a table fits both layouts, and what a model's plan is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from inline_core.devices.budget import GIB, Gpu, Machine
from inline_core.devices.ladder import make_plan
from inline_core.families.demand import Opened, demand_of, describe
from inline_core.families.key_table import KeyTable
from inline_core.sampling.family import ModelFamily
from tests.original_layouts import ORIGINAL
from tests.plans import plan_of_shapes
from tests.real_models import Model, shapes_of, shared
from tests.unit.loading.architectures.catalog_of_models import (
    DIFFUSION_MODELS,
    TEXT_ENCODERS,
    VAES,
)

CARDS: Final = (8, 16, 24, 80)  # GiB


def check_layouts(name: str, table: Callable[[Mapping[str, Any]], KeyTable]) -> None:
    """Both layouts of a real model give every parameter of its class its shape.

    `table` makes the key table from the constructor arguments.
    """
    model = DIFFUSION_MODELS[name]
    state = shared(model.class_name, model.arguments)
    wanted = {key: tuple(tensor.shape) for key, tensor in state.items()}
    for keys in (ORIGINAL[model.class_name](dict(state)), dict(state)):
        found = plan_of_shapes(shapes_of(keys)).identity
        assert (found.family, found.variant) == (model.family, model.variant)
        sources = table(found.config).sources(keys, found.prefix)
        assert sources.keys() == wanted.keys()
        for key, source in sources.items():
            rows, *rest = keys[source.name].shape
            given = (rows // source.parts * source.span, *rest)
            assert given == wanted[key], (key, given, wanted[key])


@dataclass(frozen=True)
class Plans:
    """How many weights a real model has, and its rung on each of `CARDS`."""

    weights: int
    rungs: list[str]


def plans(family: ModelFamily, model: str | Model, encoders: Sequence[str], vae: str) -> Plans:
    """The rung of a real model at its usual size on cards of 8, 16, 24 and 80 GB."""
    found = _opened(DIFFUSION_MODELS[model] if isinstance(model, str) else model)
    defaults = family.rules.defaults
    usual = defaults.get(found.identity.variant) or next(iter(defaults.values()))
    members = 2 if usual.get("guidance", 1) > 1 and not family.guidance_input else 1
    largest = max(
        (_opened(TEXT_ENCODERS[name]) for name in encoders), key=lambda item: item.weights.values
    )
    parts = {"model": found, "text_encoder": largest, "vae": _opened(VAES[vae])}
    rungs: list[str] = []
    for size in CARDS:
        card = Gpu(0, "card", size * GIB, size * GIB, (8, 9))
        machine = Machine("cuda", "card", 64 * GIB, (card,))
        for rows in dict.fromkeys((members, 1)):
            demand = demand_of(
                family,
                parts,
                usual.get("width", 1),
                usual.get("height", 1),
                rows,
                frames=usual.get("frames", 1),
            )
            rung = make_plan(machine, "gpu-max", demand).rung
            if rung != "wont-fit":
                break
        # As `plan_of_job` does: guided estimates one after the other.
        apart = rung != "wont-fit" and rows < members
        rungs.append(f"{rung}, apart" if apart else rung)
    return Plans(found.weights.values, rungs)


def _opened(model: Model) -> Opened:
    with torch.device("meta"):
        state = dict(shared(model.class_name, model.arguments))
    if "shared.weight" in state:  # T5's embedding, which files have once
        state.pop("encoder.embed_tokens.weight", None)
    return describe(plan_of_shapes(shapes_of(state)).files)
