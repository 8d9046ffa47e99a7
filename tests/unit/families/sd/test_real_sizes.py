"""Names and plans of the published models, from headers alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from diffusers import ControlNetModel

from inline_core.families.sd.family import SD15, SDXL
from inline_core.families.sd.keys import unet_keys
from inline_core.sampling.family import PassSize
from tests import original_layouts, real_sizes
from tests.plans import plan_of_shapes
from tests.real_models import shapes_of
from tests.unit.loading.architectures.catalog_of_models import DIFFUSION_MODELS


@pytest.mark.parametrize("name", ["sd15", "sdxl", "sdxl-refiner", "sdxl-inpaint", "sd15-inpaint"])
def test_both_layouts_of_the_unet_have_every_weight(name: str) -> None:
    real_sizes.check_layouts(name, unet_keys)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["sd15", "sdxl"])
def test_both_layouts_of_the_controlnet_have_every_weight(name: str) -> None:
    given: dict[str, Any] = dict(DIFFUSION_MODELS[name].arguments)
    given.pop("up_block_types", None)
    with torch.device("meta"):
        model = ControlNetModel(conditioning_embedding_out_channels=(16, 32, 96, 256), **given)
    state = dict(model.state_dict())
    wanted = {key: tuple(tensor.shape) for key, tensor in state.items()}
    for keys in (original_layouts.controlnet(state), state):
        found = plan_of_shapes(shapes_of(keys)).identity
        assert (str(found.role), found.family) == ("controlnet", name)
        sources = unet_keys(found.config).sources(keys, found.prefix)
        shapes = {key: tuple(keys[source.name].shape) for key, source in sources.items()}
        assert shapes == wanted


def test_plans_of_the_published_models() -> None:
    assert real_sizes.plans(SD15, "sd15", ["clip-l"], "kl-4").rungs == ["resident"] * 4
    plans = real_sizes.plans(SDXL, "sdxl", ["clip-l", "clip-g"], "kl-4")
    assert plans.rungs == ["resident"] * 4


def test_the_work_grows_with_the_latents() -> None:
    geometry = {"channels": 320, "attended": 0, "projection_class_embeddings_input_dim": 2816}
    small, large = (
        SDXL.workload(PassSize(geometry, side, side)).denoise_values for side in (512, 1024)
    )
    assert large == 4 * small
    assert SDXL.workload(PassSize(geometry, 512, 512, members=2)).denoise_values == 2 * small
