from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from inline_core.loading.component import Role
from inline_core.loading.files import open_weights
from inline_core.loading.header import Header, TensorInfo
from inline_core.loading.identify import FileIdentity, identify
from tests import tiny


def header_of(
    shapes: Mapping[str, tuple[int, ...]], dtype: str = "BF16", **metadata: str
) -> Header:
    """A header without a file, as identification needs no more."""
    tensors = {
        name: TensorInfo(dtype, shape, 0, 2 * int(torch.Size(shape).numel()))
        for name, shape in shapes.items()
    }
    return Header(Path("x.safetensors"), 0, 0, tensors, metadata, "digest")


def of_file(path: Path) -> FileIdentity:
    return identify(open_weights(path).headers)


@pytest.mark.parametrize("prefix", ["", "model.diffusion_model.", "diffusion_model."])
def test_z_image_in_the_original_layout(tmp_path: Path, prefix: str) -> None:
    keys = tiny.original_keys(tiny.transformer().state_dict(), prefix)
    found = of_file(tiny.save(keys, tmp_path / "x.safetensors"))
    assert (found.role, found.family, found.layout) == (
        Role.DIFFUSION_MODEL,
        "z-image",
        "original",
    )
    assert found.prefix == prefix
    assert found.geometry == {
        "dim": 64,
        "in_channels": 16,
        "cap_feat_dim": 64,
        "n_layers": 2,
        "n_refiner_layers": 1,
        "head_dim": 32,
    }
    assert found.variant == "tiny"
    assert found.problems == ()


@pytest.mark.parametrize("prefix", ["", "transformer."])
def test_z_image_in_the_diffusers_layout(tmp_path: Path, prefix: str) -> None:
    state = {prefix + name: t for name, t in tiny.transformer().state_dict().items()}
    found = of_file(tiny.save(state, tmp_path / "x.safetensors"))
    assert (found.family, found.layout, found.geometry["head_dim"]) == ("z-image", "diffusers", 32)


def test_the_demo_says_so_in_its_metadata(tmp_path: Path) -> None:
    keys = tiny.original_keys(tiny.transformer().state_dict())
    told = {"modelspec.title": "Inline demo 1", "modelspec.resolution": "128x96"}
    found = of_file(tiny.save(keys, tmp_path / "x.safetensors", told))
    assert (found.variant, found.native_size, found.title) == ("demo", (128, 96), "Inline demo 1")


@pytest.mark.parametrize("layout", ["ldm", "diffusers"])
def test_vae(tmp_path: Path, layout: str) -> None:
    state = tiny.vae().state_dict()
    keys = tiny.ldm_keys(state) if layout == "ldm" else state
    found = of_file(tiny.save(keys, tmp_path / "x.safetensors"))
    assert (found.role, found.family, found.layout) == (Role.VAE, "autoencoder-kl", layout)
    assert found.geometry == {"latent_channels": 16, "factor": 8}
    assert found.in_words() == "a VAE (decoder.* keys)"


@pytest.mark.parametrize("prefix", ["", "model."])
def test_text_encoder(tmp_path: Path, prefix: str) -> None:
    path = tiny.save_text_encoder_file(tmp_path / "q.safetensors", prefix=prefix)
    found = of_file(path)
    assert (found.role, found.family, found.prefix) == (Role.TEXT_ENCODER, "qwen3", prefix)
    assert found.geometry["hidden_size"] == tiny.CAP_FEAT_DIM
    assert found.geometry["vocab_size"] == 272


@pytest.mark.parametrize(
    ("spelling", "label"),
    [("lora_A.weight", "LoRA"), ("lora_down.weight", "LoRA"), ("lokr_w1", "LoKr")],
)
def test_lora(spelling: str, label: str) -> None:
    shapes = {f"diffusion_model.layers.{i}.attention.to_q.{spelling}": (4, 8) for i in range(144)}
    found = identify([header_of(shapes)])
    assert (found.role, found.family) == (Role.LORA, "z-image")
    assert label in found.label
    assert "144" in found.evidence


@pytest.mark.parametrize(
    ("keys", "family", "label"),
    [
        (
            ["double_blocks.0.img_attn.norm.key_norm.scale", "vector_in.in_layer.weight"],
            "flux-1",
            "FLUX.1",
        ),
        (["single_stream_modulation.lin.weight"], "flux-2", "FLUX.2"),
        (["txtfusion.projector.weight"], "krea-2", "Krea 2"),
        (["txt_norm.weight", "img_in.weight"], "qwen-image", "Qwen-Image"),
        (["head.modulation"], "wan", "Wan"),
        (["distilled_guidance_layer.in_proj.weight"], "chroma", "Chroma"),
        (["cap_embedder.1.weight", "x_embedder.weight"], "lumina2", "Lumina 2"),
    ],
)
def test_other_architectures_are_named(keys: list[str], family: str, label: str) -> None:
    shapes = {f"model.diffusion_model.{key}": (8, 8) for key in keys}
    found = identify([header_of(shapes)])
    assert (found.role, found.family) == (Role.DIFFUSION_MODEL, family)
    assert label in found.label


@pytest.mark.parametrize(("width", "family"), [(768, "sd15"), (2048, "sdxl")])
def test_sd15_and_sdxl_differ_by_their_text_width(width: int, family: str) -> None:
    block = "input_blocks.1.1.transformer_blocks.0.attn2.to_k.weight"
    found = identify([header_of({"input_blocks.0.0.weight": (320, 4, 3, 3), block: (320, width)})])
    assert found.family == family


def test_an_all_in_one_checkpoint_is_told_by_name() -> None:
    shapes = {
        "model.diffusion_model.input_blocks.0.0.weight": (8, 4, 3, 3),
        "first_stage_model.decoder.conv_in.weight": (8, 4, 3, 3),
        "cond_stage_model.x.weight": (8, 8),
    }
    found = identify([header_of(shapes)])
    assert found.role is Role.CHECKPOINT
    assert found.problems == ("it is no whole model: out.2.weight is not in it",)
    assert found.in_words() == (
        "an all-in-one SD1.5 checkpoint (diffusion model with VAE and text encoder)"
    )


@pytest.mark.parametrize(
    ("extra", "dtype", "words"),
    [
        ({"scaled_fp8": (0,)}, "F8_E4M3", "scaled fp8"),
        ({"layers.0.attention.qkv.comfy_quant": (8,)}, "I8", "comfy_quant"),
        ({}, "I8", "without scales"),
    ],
)
def test_pre_quantized_files_without_their_scales_are_refused_by_name(
    extra: dict[str, tuple[int, ...]], dtype: str, words: str
) -> None:
    shapes = {name: tuple(t.shape) for name, t in z_image_keys().items()}
    found = identify([header_of(shapes | extra, dtype)])
    assert found.family == "z-image"
    assert words in found.problems[0]


def z_image_keys() -> dict[str, torch.Tensor]:
    return tiny.original_keys(tiny.transformer().state_dict())


def test_anything_else_is_unknown() -> None:
    assert identify([header_of({"foo.bar": (1,)})]).role is Role.UNKNOWN


@pytest.mark.parametrize(
    ("shapes", "role", "words"),
    [
        (
            {"control_all_x_embedder.2-1.weight": (8, 132), "control_layers.0.x": (8,)},
            Role.CONTROLNET,
            "a Z-Image ControlNet",
        ),
        (
            {"controlnet_blocks.0.y_rms.weight": (8,)},
            Role.MODEL_PATCH,
            "a Qwen-Image ControlNet model patch",
        ),
        ({"controlnet_blocks.0.weight": (8, 8)}, Role.CONTROLNET, "a ControlNet"),
        (
            {"vision_model.embeddings.class_embedding": (8,)},
            Role.CLIP_VISION,
            "a CLIP vision encoder",
        ),
        ({"conv_first.weight": (8,), "conv_last.weight": (8,)}, Role.UPSCALER, "an upscaler"),
        (
            {"initial_conv.weight": (8,), "post_upsample_res_blocks.0.conv1.weight": (8,)},
            Role.LATENT_UPSCALER,
            "an LTX latent upscaler",
        ),
        (
            {"model.embed_tokens.weight": (128256, 4096)},
            Role.TEXT_ENCODER,
            "a decoder language model of another kind",
        ),
        (
            {
                "video_embeddings_connector.learnable_registers": (8, 8),
                "audio_embeddings_connector.learnable_registers": (8, 8),
                "text_embedding_projection.aggregate_embed.weight": (8, 8),
            },
            Role.TEXT_ENCODER,
            "an LTX-2 text connectors text encoder",
        ),
        (
            {"genre_embedder.weight": (8,), "speaker_embedder.weight": (8,)},
            Role.DIFFUSION_MODEL,
            "an ACE-Step 1.0 diffusion model",
        ),
        (
            {"encoder.layers.0.weight_v": (8, 2, 7), "decoder.layers.0.weight_v": (8, 64, 7)},
            Role.VAE,
            "an Oobleck audio VAE",
        ),
    ],
)
def test_other_roles_are_named(shapes: dict[str, tuple[int, ...]], role: Role, words: str) -> None:
    found = identify([header_of(shapes)])
    assert (found.role, found.label) == (role, words)


def test_a_whole_model_cut_to_pieces_says_what_is_missing() -> None:
    found = identify([header_of({"double_blocks.0.img_attn.norm.key_norm.scale": (128,)})])
    assert found.problems == ("it is no whole model: img_in.weight is not in it",)
    assert (found.family, found.config) == ("flux-1", {})


def test_a_pruned_minimax_h3_is_refused_by_name() -> None:
    shapes = {"token_refiner.blocks.0.attn.qkv_proj.weight": (8, 8), "adaln_t_table": (8, 8)}
    assert "pruned" in identify([header_of(shapes)]).problems[0]


def test_a_family_without_a_runtime_is_no_problem() -> None:
    shapes = {name: tuple(t.shape) for name, t in z_image_keys().items()}
    assert identify([header_of(shapes)]).problems == ()


def test_the_work_grows_with_the_number_of_tensors_only() -> None:
    """Names are looked at a fixed number of times, however many there are."""

    class Counted(str):
        looked_at = 0
        __slots__ = ()

        def startswith(self, *args: object) -> bool:
            Counted.looked_at += 1
            return str.startswith(self, *args)  # type: ignore[arg-type]

    def looks(blocks: int) -> int:
        Counted.looked_at = 0
        shapes: dict[str, tuple[int, ...]] = {
            Counted(f"double_blocks.{i}.img_attn.norm.key_norm.scale"): (128,)
            for i in range(blocks)
        }
        identify([header_of(shapes)])
        return Counted.looked_at

    few, many = looks(100), looks(1000)
    assert many <= 10 * few + 100
    assert many <= 30 * 1000


def test_architectures_need_no_torch() -> None:
    code = "import sys, inline_core.loading.identify; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
