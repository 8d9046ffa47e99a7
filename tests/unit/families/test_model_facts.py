"""What decides how a model can be split is read from its header, for models of real sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from inline_core.devices.split import ModelFacts
from inline_core.families.demand import model_facts
from inline_core.families.registry import FAMILIES
from inline_core.loading.component import ComponentRef, Role
from inline_core.sampling.family import ModelFamily
from tests.plans import plan_of_shapes
from tests.real_models import shapes_of, shared
from tests.unit.loading.architectures.catalog_of_models import DIFFUSION_MODELS

SIZES = {
    "z-image": (30, 30),
    "flux-1-dev": (24, 19 + 38),
    "flux-2-klein-4b": (24, 5 + 20),
    "flux-2-dev": (48, 8 + 48),
    "qwen-image": (24, 60),
    "wan-t2v-14b": (40, 40),
    "wan-2.2-5b": (24, 30),
    "krea-2": (48, 28),
}


@pytest.mark.parametrize(("name", "sizes"), SIZES.items())
def test_heads_and_layers_are_read(name: str, sizes: tuple[int, int]) -> None:
    model = DIFFUSION_MODELS[name]
    state = dict(shared(model.class_name, model.arguments))
    identity = plan_of_shapes(shapes_of(state)).identity
    family = FAMILIES[identity.family]
    path = Path("m.safetensors")
    reference = ComponentRef(Role.DIFFUSION_MODEL, family.name, "told", path.name, path, "")
    label = family.rules.label
    assert model_facts(reference, identity, family) == ModelFacts(
        "m.safetensors", label, "told", *sizes
    )


def test_every_family_that_is_split_is_looked_at() -> None:
    split = {family.name for family in FAMILIES.values() if family.splits.backends}
    assert split == {DIFFUSION_MODELS[name].family for name in SIZES}


@pytest.mark.parametrize("family", [one for one in FAMILIES.values() if one.splits.backends])
def test_variants_that_are_told_apart_are_known(family: ModelFamily) -> None:
    """A word that no variant has would be looked for in vain."""
    traits, rules = family.splits, family.rules
    assert traits.few_steps | traits.without_cfg <= rules.defaults.keys()
