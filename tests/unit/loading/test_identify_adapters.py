"""LoRA files: the style, and the family they were made for."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from inline_core.loading.component import Role
from inline_core.loading.identify import FileIdentity, identify
from tests.unit.loading.test_identify import header_of

Shapes = dict[str, tuple[int, ...]]


def adapter(modules: Mapping[str, tuple[int, int]], down: str, up: str) -> Shapes:
    """Rank 8 on modules given as name: (rows, columns)."""
    made: Shapes = {}
    for name, (rows, columns) in modules.items():
        made[f"{name}.{down}.weight"] = (8, columns)
        made[f"{name}.{up}.weight"] = (rows, 8)
    return made


def found_in(shapes: Shapes, **metadata: str) -> FileIdentity:
    found = identify([header_of(shapes, **metadata)])
    assert found.role is Role.LORA
    return found


FAMILIES = [
    ("z-image", {"diffusion_model.layers.0.attention.to_q": (3840, 3840)}),
    ("z-image", {"lora_unet_layers_0_attention_qkv": (11520, 3840)}),
    ("lumina2", {"diffusion_model.layers.0.attention.qkv": (3840, 2304)}),
    ("krea-2", {"diffusion_model.blocks.0.attn.wq": (6144, 6144)}),
    ("krea-2", {"transformer.transformer_blocks.0.attn.to_gate": (6144, 6144)}),
    ("flux-1", {"lora_unet_double_blocks_0_img_mlp_0": (12288, 3072)}),
    ("flux-1", {"transformer.single_transformer_blocks.0.attn.to_q": (3072, 3072)}),
    ("flux-2", {"lora_unet_double_blocks_0_img_mlp_0": (18432, 3072)}),
    ("flux-2", {"diffusion_model.single_blocks.0.linear1": (27648, 3072)}),
    ("flux-2", {"transformer.single_transformer_blocks.0.attn.to_qkv_mlp_proj": (55296, 6144)}),
    ("qwen-image", {"transformer.transformer_blocks.0.img_mlp.net.2": (3072, 12288)}),
    ("qwen-image", {"transformer.transformer_blocks.0.attn.add_k_proj": (3072, 3072)}),
    ("wan", {"diffusion_model.blocks.0.self_attn.q": (5120, 5120)}),
    ("wan", {"transformer.blocks.0.attn1.to_q": (5120, 5120)}),
    ("ltx-video", {"transformer.transformer_blocks.0.attn1.to_q": (2048, 2048)}),
    ("ltx-2", {"diffusion_model.transformer_blocks.0.audio_attn1.to_q": (2048, 2048)}),
    ("hunyuan-video", {"diffusion_model.double_blocks.0.img_mlp.fc1": (12288, 3072)}),
    ("hunyuan-video-1.5", {"diffusion_model.double_blocks.0.img_mlp.fc1": (8192, 2048)}),
    ("sd-unet", {"lora_te_text_model_encoder_layers_0_mlp_fc1": (3072, 768)}),
    ("sdxl", {"lora_te2_text_model_encoder_layers_0_mlp_fc1": (5120, 1280)}),
    ("minimax-h3", {"diffusion_model.blocks.0.attn.qkv_proj": (21504, 5376)}),
    ("sd3", {"diffusion_model.joint_blocks.0.x_block.attn.qkv": (4608, 1536)}),
    ("ace-step", {"base_model.model.layers.0.cross_attn.q_proj": (2048, 2048)}),
    (
        "sdxl",
        {"lora_unet_input_blocks_4_1_transformer_blocks_0_attn2_to_k": (640, 2048)},
    ),
    (
        "sd15",
        {"lora_unet_down_blocks_0_attentions_0_transformer_blocks_0_attn2_to_k": (320, 768)},
    ),
    (
        "sdxl",
        {"unet.down_blocks.2.attentions.0.transformer_blocks.7.attn1.to_q": (1280, 1280)},
    ),
    ("unknown", {"somewhere.else": (64, 64)}),
]


@pytest.mark.parametrize(("family", "modules"), FAMILIES)
@pytest.mark.parametrize(("down", "up"), [("lora_A", "lora_B"), ("lora_down", "lora_up")])
def test_the_family_is_read_from_names_and_widths(
    family: str, modules: Mapping[str, tuple[int, int]], down: str, up: str
) -> None:
    assert found_in(adapter(modules, down, up)).family == family


def test_it_is_said_in_words() -> None:
    modules = {
        f"lora_unet_input_blocks_{i}_1_transformer_blocks_0_attn2_to_k": (640, 2048)
        for i in range(144)
    }
    found = found_in(adapter(modules, "lora_A", "lora_B"))
    assert found.in_words() == "a LoRA (144 lora_A keys) made for SDXL"
    assert found_in({"x.lora_A.weight": (8, 8)}).in_words() == "a LoRA (1 lora_A keys)"


@pytest.mark.parametrize(
    ("metadata", "family"),
    [
        ({"ss_base_model_version": "sdxl_base_v1-0"}, "sdxl"),
        ({"modelspec.architecture": "stable-diffusion-xl-v1-base/lora"}, "sdxl"),
        ({"ss_base_model_version": "sd_v1"}, "sd15"),
        ({"ss_base_model_version": "zimage"}, "z-image"),
        ({"ss_base_model_version": "wan2.2_14b"}, "wan"),
        ({"ss_base_model_version": "flux2"}, "flux-2"),
        ({"modelspec.architecture": "qwen-image/lora"}, "qwen-image"),
        ({"ss_base_model_version": "nobody knows"}, "unknown"),
        ({}, "unknown"),
    ],
)
def test_metadata_says_what_names_do_not(metadata: dict[str, str], family: str) -> None:
    assert found_in({"x.lora_A.weight": (8, 8)}, **metadata).family == family


def test_metadata_decides_between_kin_but_never_against_the_names() -> None:
    flux = adapter(
        {"lora_unet_double_blocks_0_img_attn_proj": (3072, 3072)}, "lora_down", "lora_up"
    )
    assert found_in(flux).family == "flux-1"
    assert found_in(flux, **{"modelspec.architecture": "chroma/lora"}).family == "chroma"
    assert found_in(flux, ss_base_model_version="sdxl_base_v1-0").family == "flux-1"
    unet = adapter(
        {"lora_unet_down_blocks_1_attentions_0_transformer_blocks_0_attn1_to_q": (640, 640)},
        "lora_down",
        "lora_up",
    )
    assert found_in(unet).in_words().endswith("made for Stable Diffusion")
    assert found_in(unet, ss_base_model_version="sdxl_base_v1-0").family == "sdxl"


@pytest.mark.parametrize(
    ("key", "label"),
    [
        ("lokr_w1", "a LoKr"),
        ("lokr_w1_a", "a LoKr"),
        ("hada_w1_a", "a LoHa"),
        ("oft_blocks", "an OFT"),
        ("oft_diag", "an OFT"),
        ("lora_down.weight", "a LoRA"),
        ("lora.down.weight", "a LoRA"),
        ("lora_linear_layer.down.weight", "a LoRA"),
        ("lora_A.default.weight", "a LoRA"),
    ],
)
def test_styles(key: str, label: str) -> None:
    assert found_in({f"lora_unet_layers_0_attention_out.{key}": (8, 8)}).label == label


def test_dora_has_scales() -> None:
    keys: Shapes = {"x.lora_A.weight": (8, 8), "x.lora_B.weight": (8, 8), "x.dora_scale": (8, 1)}
    assert found_in(keys).label == "a DoRA"
