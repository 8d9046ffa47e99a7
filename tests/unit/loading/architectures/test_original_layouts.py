"""The layouts people download are recognised as well, and give the same class and arguments."""

from __future__ import annotations

from pathlib import Path

import diffusers
import pytest
import torch

from tests.original_layouts import ORIGINAL, converted
from tests.real_models import Model, differences, identify_state, shared
from tests.unit.loading.architectures.catalog_of_models import DIFFUSION_MODELS, TINY, VAES

# diffusers 0.42.1 has no converter for these: the layout is the structure of the release only.
WITHOUT_CONVERTER = {"ltx-2.3", "wan-2.2"}
# Same names as their kin; the converter of the U-Net takes seconds.
ENOUGH_OF = {"sd15-inpaint", "sdxl-inpaint", "sd2", "flux-1-control", "flux-1-fill"}
NEEDS_CONFIG = {"UNet2DConditionModel", "AutoencoderKL", "AutoencoderKLFlux2"}
MODELS = [
    pytest.param(name, model, id=f"{kind}-{name}")
    for kind, models in (("model", DIFFUSION_MODELS), ("vae", VAES))
    for name, model in models.items()
    if model.class_name in ORIGINAL
]


def config_of(model: Model) -> dict[str, object]:
    with torch.device("meta"):
        made = getattr(diffusers, model.class_name)(**model.arguments)
    return dict(made.config)


CONVERTED = [model for model in MODELS if model.values[0] not in WITHOUT_CONVERTER | ENOUGH_OF]
SMALL = [
    pytest.param(name, model, id=f"tiny-{name}")
    for name, model in TINY.items()
    if model.class_name in ORIGINAL
]


@pytest.mark.parametrize(("name", "model"), CONVERTED)
def test_the_inverse_is_what_diffusers_converts(name: str, model: Model) -> None:
    state = shared(model.class_name, model.arguments)
    config = config_of(model) if model.class_name in NEEDS_CONFIG else {}
    back = converted(model.class_name, ORIGINAL[model.class_name](dict(state)), config)
    assert differences(state, back) == []


@pytest.mark.parametrize(("name", "model"), [*MODELS, *SMALL])
def test_the_original_names_tell_the_same(name: str, model: Model, tmp_path: Path) -> None:
    """Equal arguments mean an equal class: test_real_sizes rebuilds it from them."""
    state = shared(model.class_name, model.arguments)
    own = identify_state(state, tmp_path / "x.safetensors")
    original = ORIGINAL[model.class_name](dict(state))
    is_vae = model.class_name.startswith("Autoencoder")
    for prefix in ("", "vae." if is_vae else "model.diffusion_model."):
        found = identify_state(
            {prefix + key: tensor for key, tensor in original.items()}, tmp_path / "y.safetensors"
        )
        assert (found.family, found.class_name, found.variant, found.prefix, found.problems) == (
            model.family,
            model.class_name,
            model.variant,
            prefix,
            (),
        )
        assert found.layout in {"original", "ldm"}
        assert (found.config, found.geometry) == (own.config, own.geometry)
