"""LTX-2.5: original-layout transformer and VAE, its other parts as folders, Gemma 4.

Video VAE, audio VAE and vocoder are those of LTX-2.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from diffusers import (
    FlowMatchEulerDiscreteScheduler,
    LTX2VideoDiffusionDecoderModel,
    LTX2VideoTransformer3DModel,
)
from diffusers.guiders import LTX2Guidance
from diffusers.modular_pipelines.ltx2 import LTX25AutoBlocks
from diffusers.pipelines.ltx2 import LTX2TextConnectors
from transformers import Gemma4UnifiedTextConfig, Gemma4UnifiedTextModel

from tests import original_layouts, tiny
from tests.tiny_families import FamilyRun, ltx2

NAME: Final = "ltx25"
HIDDEN: Final = 16
WIDTH: Final = 64
LAYERS: Final = 3
TRANSFORMER: Final[Mapping[str, Any]] = {
    **{key: value for key, value in ltx2.TRANSFORMER.items() if key != "caption_channels"},
    "gated_attn": True,
    "cross_attn_mod": True,
    "audio_gated_attn": True,
    "audio_cross_attn_mod": True,
    "use_prompt_embeddings": False,
    "ff_bias": False,
    "use_prompt_adaln_single": False,
    "use_keyframes_abs_pos_embedding": True,
}
TEXT: Final[Mapping[str, Any]] = {
    "vocab_size": 272,
    "hidden_size": HIDDEN,
    "intermediate_size": 32,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "global_head_dim": 16,
    "attention_k_eq_v": True,
    "num_global_key_value_heads": 1,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
}
# Windows of several sizes that videos of 32 x 32 pixels and 9 frames are large enough for.
DECODER: Final[Mapping[str, Any]] = {
    "decoder_head_dim": 8,
    "decoder_stage_channels": (32, 16, 16, 16, 8),
    "decoder_stage_depths": (1, 1, 1, 1, 2),
    "decoder_stage_kernels": ((3, 1, 1), (3, 2, 2), (3, 2, 2), (3, 3, 3)),
    "decoder_stage5_kernel": (5, 5, 7),
    "decoder_upsample_channel_reductions": (2, 1, 1, 2),
    "decoder_t_emb_dim": 16,
}
RUNS: Final = (
    FamilyRun(
        "lightricks/ltx-2-5-text-to-video",
        {"mode": "quality", "num_inference_steps": 2},
        takes=(("video", "mp4"), ("audio", "wav")),
        fps=24.0,
        seconds=25 / 24,
        same_as={"cfg": 3.0, "steps": 2, "frames": 25},
    ),
    FamilyRun(
        "lightricks/ltx-2-5-image-to-video",
        {"duration": 1.0, "generate_audio": False},
        takes=(("video", "mp4"),),
        fps=24.0,
        seconds=25 / 24,
        images={"image": (90, 70)},
    ),
    FamilyRun(
        "lightricks/ltx-2-5-first-last-frame",
        {"mode": "quality", "num_inference_steps": 1, "guidance": 1.0, "generate_audio": False},
        takes=(("video", "mp4"),),
        fps=24.0,
        seconds=25 / 24,
        images={"image": (90, 70), "last_image": (64, 64)},
    ),
)


def transformer(seed: int = 80) -> LTX2VideoTransformer3DModel:
    """A transformer with weights big enough to move the video."""
    torch.manual_seed(seed)
    model = LTX2VideoTransformer3DModel(**TRANSFORMER)
    tiny.randomise(model, 0.2)
    return model.eval()


def video_decoder() -> LTX2VideoDiffusionDecoderModel:
    """A decoder with the statistics of the VAE."""
    torch.manual_seed(81)
    model = LTX2VideoDiffusionDecoderModel(**DECODER)
    tiny.randomise(model, 0.3)
    model.latents_mean.copy_(ltx2.vae().latents_mean)
    model.latents_std.copy_(ltx2.vae().latents_std)
    return model.eval()


def connectors() -> LTX2TextConnectors:
    """Connectors of one block, with a projection each for video and sound."""
    torch.manual_seed(82)
    sides = {
        f"{side}_{name}": value
        for side in ("video", "audio")
        for name, value in (
            ("connector_num_attention_heads", 2),
            ("connector_attention_head_dim", WIDTH // 2),
            ("connector_num_layers", 1),
            ("gated_attn", True),
            ("hidden_dim", WIDTH),
        )
    }
    model = LTX2TextConnectors(
        caption_channels=HIDDEN,
        text_proj_in_factor=LAYERS + 1,
        rope_type="split",
        per_modality_projections=True,
        proj_bias=True,
        **sides,
    )
    tiny.randomise(model, 0.2)
    return model.eval()


def text_encoder() -> Gemma4UnifiedTextModel:
    """A Gemma 4 of three layers, the last of which looks at all tokens, with heads of its own."""
    torch.manual_seed(83)
    model = Gemma4UnifiedTextModel(Gemma4UnifiedTextConfig(**TEXT))
    tiny.randomise(model, 0.1)
    for index, layer in enumerate(model.layers):
        layer.layer_scalar.fill_(0.5 + 0.3 * index)
    return model.eval()


def save_models(folder: Path) -> None:
    """All pieces in a models folder."""
    state = original_layouts.ltx_2(transformer().state_dict())
    state = {f"model.diffusion_model.{name}": tensor for name, tensor in state.items()}
    tiny.save(state, folder / "diffusion_models/ltx25.safetensors")
    vae = original_layouts.ltx_vae(ltx2.vae().state_dict())
    tiny.save(vae, folder / "vae/ltx25-vae.safetensors")
    video_decoder().save_pretrained(folder / "vae/ltx25-decoder")
    sound = original_layouts.ltx_2_audio(ltx2.audio_vae().state_dict())
    tiny.save(sound, folder / "vae/ltx25-audio.safetensors")
    ltx2.vocoder().save_pretrained(folder / "vae/ltx25-vocoder")
    connectors().save_pretrained(folder / "text_encoders/ltx25-connectors")
    text_encoder().save_pretrained(folder / "text_encoders/ltx25-gemma")
    tiny.tokenizer().save_pretrained(folder / "text_encoders/ltx25-gemma")
    tiny.settle(folder)


def pipeline(scale: float = 1.0, *, shifted: bool = True) -> Any:
    """The reference: diffusers' blocks with the same parts; `scale` is that of the guidance."""
    made = LTX25AutoBlocks().init_pipeline()
    shift = {"shift_terminal": 0.1} if shifted else {}
    made.update_components(
        scheduler=FlowMatchEulerDiscreteScheduler(
            use_dynamic_shifting=shifted,
            base_shift=0.95,
            max_shift=2.05,
            base_image_seq_len=1024,
            max_image_seq_len=4096,
            **shift,
        ),
        vae=ltx2.vae(),
        audio_vae=ltx2.audio_vae(),
        text_encoder=text_encoder(),
        tokenizer=tiny.tokenizer(),
        connectors=connectors(),
        transformer=transformer(),
        vocoder=ltx2.vocoder(),
        diffusion_decoder=video_decoder(),
        guider=LTX2Guidance(guidance_scale=scale),
        audio_guider=LTX2Guidance(guidance_scale=scale),
    )
    made.set_progress_bar_config(disable=True)
    return made
