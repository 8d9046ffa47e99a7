from __future__ import annotations

from typing import Any

import pytest
import torch
from diffusers import ZImageTransformer2DModel
from diffusers.loaders.single_file_utils import (
    convert_z_image_transformer_checkpoint_to_diffusers,
)

from inline_core.families.z_image.keys import transformer_sources
from tests import tiny
from tests.plans import plan_of_shapes


@pytest.mark.parametrize("layout", ["original", "diffusers"])
def test_the_real_size_comes_out_of_its_header(layout: str) -> None:
    with torch.device("meta"):
        real: Any = ZImageTransformer2DModel()
        state = real.state_dict()
        keys = tiny.original_keys(state) if layout == "original" else state
    plan = plan_of_shapes({name: tuple(tensor.shape) for name, tensor in keys.items()})
    found = plan.identity
    assert (found.variant, found.parameter_count // 10**7) == ("turbo", 615)
    with torch.device("meta"):
        built: Any = ZImageTransformer2DModel(**found.config)
    names = real.config.keys() - {"_use_default_values"}
    assert {key: built.config[key] for key in names} == {key: real.config[key] for key in names}
    sources = transformer_sources(plan.files.tensors, found.prefix)
    wanted = {name: tuple(p.shape) for name, p in built.named_parameters()}
    assert wanted.keys() == sources.keys() - {"norm_final.weight"}
    for name, shape in wanted.items():
        source = sources[name]
        rows, *rest = keys[source.name].shape
        assert (rows // source.parts, *rest) == shape


def test_names_agree_with_the_converters_of_diffusers() -> None:
    state = tiny.transformer().state_dict()
    keys = tiny.original_keys(state, "model.diffusion_model.")
    converted = convert_z_image_transformer_checkpoint_to_diffusers(dict(keys))
    ours = transformer_sources(keys, "model.diffusion_model.")
    assert converted.keys() == ours.keys() - {"norm_final.weight"}
