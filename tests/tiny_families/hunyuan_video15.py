"""HunyuanVideo 1.5: an original-layout transformer and VAE, Qwen2.5-VL, ByT5, SigLIP."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from diffusers import (
    AutoencoderKLHunyuanVideo15,
    ClassifierFreeGuidance,
    FlowMatchEulerDiscreteScheduler,
    HunyuanVideo15ImageToVideoPipeline,
    HunyuanVideo15Pipeline,
    HunyuanVideo15Transformer3DModel,
)
from transformers import (
    ByT5Tokenizer,
    SiglipImageProcessorPil,
    SiglipVisionConfig,
    SiglipVisionModel,
    T5EncoderModel,
)

from inline_core.families.hunyuan_video15.text import PREFIX
from tests import original_layouts, tiny, tiny_encoders
from tests.tiny_families import FamilyRun, qwen_image

NAME: Final = "hunyuan-video-1.5"
LAYERS: Final = 4
BYTES: Final = 384
GLYPHS: Final = 24
SEEN: Final = 64
TRANSFORMER: Final[Mapping[str, Any]] = {
    "in_channels": 65,
    "out_channels": 32,
    "num_attention_heads": 1,
    "attention_head_dim": 32,
    "num_layers": 2,
    "num_refiner_layers": 1,
    "text_embed_dim": qwen_image.HIDDEN,
    "text_embed_2_dim": GLYPHS,
    "image_embed_dim": SEEN,
    "rope_axes_dim": (4, 14, 14),
    "target_size": 64,
}
VAE: Final[Mapping[str, Any]] = {
    "block_out_channels": (8, 8, 16, 32, 64),
    "layers_per_block": 1,
}
RUNS: Final = (
    FamilyRun(
        "tencent/hunyuanvideo-1-5-text-to-video",
        {"steps": 2, "frames": 5},
        takes=(("video", "mp4"),),
        fps=24.0,
        seconds=5 / 24,
        same_as={"cfg": 6.0},
    ),
    FamilyRun(
        "tencent/hunyuanvideo-1-5-image-to-video",
        {"steps": 1, "frames": 5, "variant": "i2v-480p-distilled"},
        takes=(("video", "mp4"),),
        images={"image": (64, 64)},
        fps=24.0,
        seconds=5 / 24,
    ),
)


def transformer(seed: int = 70, **changes: Any) -> HunyuanVideo15Transformer3DModel:
    """A transformer with weights big enough to move the video."""
    torch.manual_seed(seed)
    model = HunyuanVideo15Transformer3DModel(**{**TRANSFORMER, **changes})
    for name, parameter in model.named_parameters():
        # Those of ByT5 are 2048 wide, whatever the rest is.
        scale = 0.02 if parameter.shape[-1] == 2048 else 0.12
        if not name.endswith("norm.weight"):
            torch.nn.init.normal_(parameter, std=scale)
    return model.eval()


def vae() -> AutoencoderKLHunyuanVideo15:
    """A VAE with 32 latent channels, a 16th of the picture and 4 frames in one."""
    torch.manual_seed(71)
    return AutoencoderKLHunyuanVideo15(**VAE).eval()


def glyph_encoder() -> T5EncoderModel:
    """A ByT5 of two layers."""
    return tiny_encoders.t5(72, GLYPHS, vocab_size=BYTES)


def vision() -> SiglipVisionModel:
    """A tower of one layer that sees four places."""
    torch.manual_seed(73)
    config = SiglipVisionConfig(
        hidden_size=SEEN,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=1,
        image_size=28,
        patch_size=14,
    )
    model = SiglipVisionModel(config)
    tiny.randomise(model, 0.2)
    return model.eval()


def original_keys(state: Mapping[str, torch.Tensor], *, joined: bool = False) -> Any:
    """As Tencent releases it, or with q, k and v `joined` as in HunyuanVideo.

    The last modulation has the shift first there, and the scale in diffusers.
    """
    rules = (
        (r"^context_embedder_2\.norm\.", "byt5_in.layernorm."),
        (r"^context_embedder_2\.linear_(\d)\.", r"byt5_in.fc\1."),
        (r"^image_embedder\.norm_in\.", "vision_in.proj.0."),
        (r"^image_embedder\.linear_1\.", "vision_in.proj.1."),
        (r"^image_embedder\.linear_2\.", "vision_in.proj.3."),
        (r"^image_embedder\.norm_out\.", "vision_in.proj.4."),
        (r"^cond_type_embed\.", "cond_type_embedding."),
        (r"^time_embed\.timestep_embedder\.linear_1\.", "time_in.mlp.0."),
        (r"^time_embed\.timestep_embedder\.linear_2\.", "time_in.mlp.2."),
        (r"^time_embed\.timestep_embedder_r\.linear_1\.", "time_r_in.mlp.0."),
        (r"^time_embed\.timestep_embedder_r\.linear_2\.", "time_r_in.mlp.2."),
    )
    made = original_layouts.hunyuan_video(original_layouts.renamed(state, rules))
    for name, tensor in list(made.items()):
        if name.startswith("final_layer.adaLN_modulation.1."):
            made[name] = torch.cat(tuple(reversed(tensor.chunk(2))))
        if "_attn_qkv." in name and name.startswith("double_blocks.") and not joined:
            del made[name]
            for part, rows in zip("qkv", tensor.chunk(3), strict=True):
                made[name.replace("_attn_qkv.", f"_attn_{part}.")] = rows.clone()
    return made


def comfy_keys(state: Mapping[str, torch.Tensor]) -> Any:
    """As ComfyUI calls everything inside."""
    rules = (
        (r"_mod\.linear\.", "_mod.lin."),
        (r"_attn_qkv\.", "_attn.qkv."),
        (r"_attn_([qk])_norm\.weight", r"_attn.norm.\1_norm.scale"),
        (r"norm\.q_norm\.", "norm.query_norm."),
        (r"norm\.k_norm\.", "norm.key_norm."),
        (r"_attn_proj\.", "_attn.proj."),
        (r"mlp\.fc1\.", "mlp.0."),
        (r"mlp\.fc2\.", "mlp.2."),
        (r"(time_in|t_embedder)\.mlp\.0\.", r"\1.in_layer."),
        (r"(time_in|t_embedder)\.mlp\.2\.", r"\1.out_layer."),
        (r"c_embedder\.linear_1\.", "c_embedder.in_layer."),
        (r"c_embedder\.linear_2\.", "c_embedder.out_layer."),
    )
    return original_layouts.renamed(original_keys(state, joined=True), rules)


def original_vae_keys(state: Mapping[str, torch.Tensor]) -> Any:
    """The names of ldm, with the levels of the decoder in the order of the file."""
    rules = (
        (r"mid_block\.resnets\.0", "mid.block_1"),
        (r"mid_block\.resnets\.1", "mid.block_2"),
        (r"mid_block\.attentions\.0\.(group_)?norm\.", "mid.attn_1.norm."),
        (r"mid_block\.attentions\.0\.to_([qkv])", r"mid.attn_1.\1"),
        (r"mid_block\.attentions\.0\.(to_out\.0|proj_out)", "mid.attn_1.proj_out"),
        (r"down_blocks\.(\d)\.resnets", r"down.\1.block"),
        (r"down_blocks\.(\d)\.downsamplers\.0", r"down.\1.downsample"),
        (r"up_blocks\.(\d)\.resnets", r"up.\1.block"),
        (r"up_blocks\.(\d)\.upsamplers\.0", r"up.\1.upsample"),
        (r"conv_norm_out", "norm_out"),
        (r"conv_shortcut", "nin_shortcut"),
    )
    return original_layouts.renamed(state, rules)


def save_byt5(folder: Path) -> None:
    """A single file as ComfyUI has it, without a tokenizer: bytes need none."""
    tiny.save(glyph_encoder().state_dict(), folder / "text_encoders/byt5.safetensors")


def save_vision(folder: Path) -> None:
    """`sigclip_vision_patch14_384.safetensors` has the tower and its head below `vision_model.`."""
    keys = {f"vision_model.{name}": tensor for name, tensor in vision().state_dict().items()}
    tiny.save(keys, folder / "clip_vision/siglip.safetensors")


def save_models(folder: Path) -> None:
    """`hunyuan.safetensors`, its VAE, both text encoders and the tower, in original layouts."""
    keys = original_keys(transformer().state_dict())
    tiny.save(keys, folder / "diffusion_models/hunyuan.safetensors")
    tiny.save(original_vae_keys(vae().state_dict()), folder / "vae/hunyuan_vae.safetensors")
    qwen_image.save_text_encoder(folder, LAYERS)
    save_byt5(folder)
    save_vision(folder)
    tiny.settle(folder)


def pipeline(kind: str = "t2v", guidance: float = 6.0, most: int = 100) -> Any:
    """HunyuanVideo15Pipeline, or HunyuanVideo15ImageToVideoPipeline (`i2v`).

    The length of its template is that of the test's tokenizer; prompts are padded to `most` (it
    has 1000) and what is seen to four places (729), as masked padding only takes time.
    """
    words = qwen_image.tokenizer()
    words.chat_template = tiny.CHAT_TEMPLATE
    parts: dict[str, Any] = {
        "text_encoder": qwen_image.text_encoder(LAYERS).model.language_model,
        "tokenizer": words,
        "transformer": transformer(),
        "vae": vae(),
        "scheduler": FlowMatchEulerDiscreteScheduler(shift=5.0),
        "text_encoder_2": glyph_encoder(),
        "tokenizer_2": ByT5Tokenizer(),
        "guider": ClassifierFreeGuidance(guidance_scale=guidance),
    }
    if kind == "i2v":
        parts["image_encoder"] = vision()
        size = {"height": 28, "width": 28}
        parts["feature_extractor"] = SiglipImageProcessorPil(size=size)
        pipe: Any = HunyuanVideo15ImageToVideoPipeline(**parts)
    else:
        pipe = HunyuanVideo15Pipeline(**parts)
    pipe.prompt_template_encode_start_idx = len(words(PREFIX).input_ids)
    pipe.tokenizer_max_length = most
    pipe.vision_num_semantic_tokens = 4
    return pipe


def pipeline_latents(pipe: Any, **call: Any) -> torch.Tensor:
    """The latents of the last step; its steps are evenly spaced in time from 1 to 0, as ours are."""
    pipe.set_progress_bar_config(disable=True)
    with torch.inference_mode():
        found: torch.Tensor = pipe(output_type="latent", return_dict=False, **call)[0]
    return found
