from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from diffusers import AutoencoderKL, ZImageTransformer2DModel
from diffusers.loaders.single_file_utils import (
    convert_ldm_vae_checkpoint,
    convert_z_image_transformer_checkpoint_to_diffusers,
)
from transformers import Qwen3Config, Qwen3Model

from inline_core.devices.placement import Placement
from inline_core.errors import ModelFileInvalid
from inline_core.families.z_image.components import (
    load_text_encoder,
    load_vae,
    text_encoder_config,
    transformer_config,
    vae_config,
)
from inline_core.families.z_image.family import FLUX_SPACE
from inline_core.families.z_image.keys import transformer_sources, vae_sources
from inline_core.loading.files import WeightFiles, open_weights
from inline_core.loading.header import Header, TensorInfo
from inline_core.loading.identify import identify
from inline_core.loading.stream import LoadPlan
from tests import tiny

if TYPE_CHECKING:
    from collections.abc import Mapping

FLOAT32 = Placement("cpu", "float32", "none", "test")


def files_of(shapes: Mapping[str, tuple[int, ...]]) -> WeightFiles:
    """Files that exist only as a header: real sizes need no real bytes."""
    tensors = {
        name: TensorInfo("BF16", shape, 0, 2 * torch.Size(shape).numel())
        for name, shape in shapes.items()
    }
    path = Path("real.safetensors")
    return WeightFiles(path, (Header(path, 0, 0, tensors, {}, ""),))


def plan_of(path: Path) -> LoadPlan:
    files = open_weights(path)
    return LoadPlan(files, identify(files.headers), FLOAT32, path.name, lambda: None)


@pytest.mark.parametrize("layout", ["original", "diffusers"])
def test_the_real_size_comes_out_of_its_header(layout: str) -> None:
    with torch.device("meta"):
        real: Any = ZImageTransformer2DModel()
        state = real.state_dict()
        keys = tiny.original_keys(state) if layout == "original" else state
    files = files_of({name: tuple(tensor.shape) for name, tensor in keys.items()})
    found = identify(files.headers)
    assert (found.variant, found.parameter_count // 10**7) == ("turbo", 615)
    with torch.device("meta"):
        built: Any = ZImageTransformer2DModel(**transformer_config(found))
    names = real.config.keys() - {"_use_default_values"}
    assert {key: built.config[key] for key in names} == {key: real.config[key] for key in names}
    sources = transformer_sources(files.tensors, found.prefix)
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
    model = tiny.vae()
    ldm = tiny.ldm_keys(model.state_dict())
    converted = convert_ldm_vae_checkpoint(dict(ldm), dict(model.config))
    assert converted.keys() == vae_sources(ldm, 4).keys()
    for name, source in vae_sources(ldm, 4).items():
        tensor = ldm[source.name]
        assert torch.equal(converted[name], tensor.flatten(1) if source.flatten else tensor)


def test_the_real_vae_comes_out_of_its_header() -> None:
    real_config = {
        "block_out_channels": (128, 256, 512, 512),
        "down_block_types": ("DownEncoderBlock2D",) * 4,
        "up_block_types": ("UpDecoderBlock2D",) * 4,
        "layers_per_block": 2,
        "latent_channels": 16,
        "norm_num_groups": 32,
        "use_quant_conv": False,
        "use_post_quant_conv": False,
        "mid_block_add_attention": True,
        "scaling_factor": 0.3611,
        "shift_factor": 0.1159,
    }
    with torch.device("meta"):
        state = AutoencoderKL(**real_config).state_dict()
        keys = tiny.ldm_keys(state)
    files = files_of({name: tuple(tensor.shape) for name, tensor in keys.items()})
    assert vae_config(files, identify(files.headers), FLUX_SPACE) == real_config


def test_the_real_text_encoder_comes_out_of_its_header() -> None:
    config = Qwen3Config(
        vocab_size=151936,
        hidden_size=2560,
        intermediate_size=9728,
        num_hidden_layers=36,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
        rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
    )
    with torch.device("meta"):
        state = Qwen3Model(config).state_dict()
    files = files_of({f"model.{name}": tuple(tensor.shape) for name, tensor in state.items()})
    derived = text_encoder_config(files, identify(files.headers))
    for key in (
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "rms_norm_eps",
    ):
        assert getattr(derived, key) == getattr(config, key), key
    assert derived.rope_parameters["rope_theta"] == 1_000_000.0


@pytest.mark.parametrize("layout", ["ldm", "ldm-with-config", "folder"])
def test_every_vae_layout_gives_the_same_weights(tmp_path: Path, layout: str) -> None:
    model = tiny.vae()
    if layout == "folder":
        path = tiny.save_vae_folder(tmp_path / "vae", model)
    else:
        told = tiny.vae_metadata(scaling_factor=0.5) if layout == "ldm-with-config" else {}
        path = tiny.save(tiny.ldm_keys(model.state_dict()), tmp_path / "ae.safetensors", told)
    runtime = load_vae(plan_of(path), FLUX_SPACE)
    loaded = runtime._model.state_dict()
    assert all(torch.equal(loaded[name], t) for name, t in model.state_dict().items())
    assert runtime._scaling == (0.5 if layout == "ldm-with-config" else 0.3611)


@pytest.mark.parametrize("layout", ["folder", "model.", ""])
def test_every_text_encoder_layout_gives_the_same_features(tmp_path: Path, layout: str) -> None:
    model = tiny.text_encoder()
    if layout == "folder":
        path = tokens = tiny.save_text_encoder_folder(tmp_path / "qwen", model)
    else:
        path = tiny.save_text_encoder_file(tmp_path / "q.safetensors", model, prefix=layout)
        tokens = tmp_path / "q.tokenizer"
    encoder = load_text_encoder(plan_of(path), tokens)
    with torch.inference_mode():
        features = encoder.encode("a red circle").features
        ids = tiny.tokenizer()(
            "<|im_start|>user\na red circle<|im_end|>\n<|im_start|>assistant\n", return_tensors="pt"
        ).input_ids
        wanted = model(input_ids=ids, output_hidden_states=True).hidden_states[-2][0]
    assert torch.allclose(features, wanted, atol=1e-6)


def test_a_decoder_alone_is_refused(tmp_path: Path) -> None:
    keys = {
        name: tensor
        for name, tensor in tiny.vae().state_dict().items()
        if name.startswith("decoder.")
    }
    with pytest.raises(ModelFileInvalid, match="no encoder"):
        load_vae(plan_of(tiny.save(keys, tmp_path / "d.safetensors")), FLUX_SPACE)
