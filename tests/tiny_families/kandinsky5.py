"""Kandinsky 5: a transformer file, HunyuanVideo's VAE, Qwen2.5-VL and CLIP."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from diffusers import (
    AutoencoderKLHunyuanVideo,
    FlowMatchEulerDiscreteScheduler,
    Kandinsky5T2VPipeline,
    Kandinsky5Transformer3DModel,
)

from inline_core.families.kandinsky5.text import PREFIX
from tests import original_layouts, tiny, tiny_encoders
from tests.tiny_families import FamilyRun, qwen_image

NAME: Final = "kandinsky-5"
CLIP: Final = 64
TRANSFORMER: Final[Mapping[str, Any]] = {
    "in_visual_dim": 16,
    "out_visual_dim": 16,
    "in_text_dim": qwen_image.HIDDEN,
    "in_text_dim2": CLIP,
    "time_dim": 32,
    "model_dim": 32,
    "ff_dim": 48,
    "num_text_blocks": 1,
    "num_visual_blocks": 2,
    "axes_dims": (4, 6, 6),
    "visual_cond": True,
}
RUNS: Final = (
    FamilyRun(
        "kandinskylab/kandinsky-5",
        {"steps": 2, "frames": 5, "guidance": 2.0},
        takes=(("video", "mp4"),),
        fps=24.0,
        seconds=5 / 24,
        same_as={"cfg": 2.0},
    ),
)


def transformer(**changes: Any) -> Kandinsky5Transformer3DModel:
    """A transformer with weights big enough to move the video."""
    torch.manual_seed(130)
    model = Kandinsky5Transformer3DModel(**{**TRANSFORMER, **changes})
    tiny.randomise(model, 0.2)
    return model.eval()


def vae() -> AutoencoderKLHunyuanVideo:
    """A narrow VAE of the published depth."""
    torch.manual_seed(131)
    model = AutoencoderKLHunyuanVideo(
        block_out_channels=(8, 8, 16, 16), layers_per_block=1, norm_num_groups=8
    )
    tiny.randomise(model, 0.3)
    return model.eval()


def original_vae(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """With ldm's names: levels of the decoder from its end, attention as convolutions."""
    made = original_layouts.renamed(
        state,
        (
            (r"\.mid_block\.resnets\.0\.", ".mid.block_1."),
            (r"\.mid_block\.resnets\.1\.", ".mid.block_2."),
            (r"\.mid_block\.attentions\.0\.group_norm\.", ".mid.attn_1.norm."),
            (r"\.mid_block\.attentions\.0\.to_([qkv])\.", r".mid.attn_1.\1."),
            (r"\.mid_block\.attentions\.0\.to_out\.0\.", ".mid.attn_1.proj_out."),
            (r"\.conv_norm_out\.", ".norm_out."),
            (r"\.(down|up)_blocks\.(\d+)\.resnets\.", r".\1.\2.block."),
            (r"\.(down|up)_blocks\.(\d+)\.(down|up)samplers\.0\.", r".\1.\2.\3sample."),
            (r"\.conv_shortcut\.", ".nin_shortcut."),
        ),
    )
    turned = {}
    for name, tensor in made.items():
        new = re.sub(r"^decoder\.up\.(\d+)", lambda found: f"decoder.up.{3 - int(found[1])}", name)
        matrix = re.search(r"attn_1\.(q|k|v|proj_out)\.weight", name)
        turned[new] = tensor[:, :, None, None, None] if matrix else tensor
    return turned


def save_models(folder: Path) -> None:
    """`kandinsky.safetensors`, `hunyuan_vae.safetensors`, `qwen25vl` and `clip_l.safetensors`."""
    tiny.save(dict(transformer().state_dict()), folder / "diffusion_models/kandinsky.safetensors")
    tiny.save(original_vae(vae().state_dict()), folder / "vae/hunyuan_vae.safetensors")
    qwen_image.save_text_encoder(folder)
    model = tiny_encoders.clip(width=CLIP)
    tiny_encoders.save_clip_file(folder / "text_encoders/clip_l.safetensors", model)
    tiny.settle(folder)


class Processor:
    """What Qwen2VLProcessor does with texts; its own wants torchvision."""

    def __init__(self) -> None:
        self._words = qwen_image.tokenizer()

    def __call__(self, text: list[str], images: None, videos: None, **more: Any) -> Any:
        del images, videos
        return self._words(text, **more)

    def decode(self, ids: Any) -> str:
        return str(self._words.decode(ids))


def pipeline(**changes: Any) -> Any:
    """Kandinsky5T2VPipeline; the length of its template is that of the test's tokenizer."""
    pipe = Kandinsky5T2VPipeline(
        transformer=transformer(**changes),
        vae=vae(),
        text_encoder=qwen_image.text_encoder(),
        tokenizer=Processor(),
        text_encoder_2=tiny_encoders.clip(width=CLIP),
        tokenizer_2=tiny_encoders.clip_tokenizer(),
        scheduler=FlowMatchEulerDiscreteScheduler(shift=5.0),
    )
    pipe.prompt_template_encode_start_idx = len(qwen_image.tokenizer()(PREFIX).input_ids)
    return pipe
