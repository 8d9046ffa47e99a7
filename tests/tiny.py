"""Tiny random checkpoints of the real architectures in the real on-disk layouts.

Everything is seeded and small, so a whole models folder is written in well under two seconds.
Files get an old modification time: a file that changed a moment ago counts as still being copied.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from diffusers import AutoencoderKL, ZImageTransformer2DModel
from safetensors.torch import save_file
from tokenizers.pre_tokenizers import ByteLevel
from transformers import Qwen2Tokenizer, Qwen3Config, Qwen3Model

CAP_FEAT_DIM: Final = 64
TRANSFORMER: Final[Mapping[str, Any]] = {
    "dim": 64,
    "n_layers": 2,
    "n_refiner_layers": 1,
    "n_heads": 2,
    "n_kv_heads": 2,
    "cap_feat_dim": CAP_FEAT_DIM,
    "axes_dims": [8, 12, 12],
}
VAE: Final[Mapping[str, Any]] = {
    "block_out_channels": (8, 16, 16, 16),
    "down_block_types": ("DownEncoderBlock2D",) * 4,
    "up_block_types": ("UpDecoderBlock2D",) * 4,
    "layers_per_block": 1,
    "latent_channels": 16,
    "norm_num_groups": 8,
    "use_quant_conv": False,
    "use_post_quant_conv": False,
    "scaling_factor": 0.3611,
    "shift_factor": 0.1159,
}
SPECIAL_TOKENS: Final = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>")
# The shape of the template of Qwen3 for one user message with thinking enabled.
CHAT_TEMPLATE: Final = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def settle(folder: Path, age_s: float = 60) -> None:
    """Make every file below `folder` look as if it was written `age_s` seconds ago."""
    then = time.time() - age_s
    for file in [folder, *folder.rglob("*")]:
        os.utime(file, (then, then))


def transformer(seed: int = 0, **changes: Any) -> ZImageTransformer2DModel:
    """A Z-Image transformer with weights big enough to move the picture."""
    torch.manual_seed(seed)
    model = ZImageTransformer2DModel(**{**TRANSFORMER, **changes})
    randomise(model, 0.25)
    return model.eval()


def vae(seed: int = 1, **changes: Any) -> AutoencoderKL:
    """A KL autoencoder with 16 latent channels and factor 8."""
    torch.manual_seed(seed)
    model = AutoencoderKL(**{**VAE, **changes})
    return model.eval()


def text_encoder(seed: int = 2, hidden_size: int = CAP_FEAT_DIM) -> Qwen3Model:
    """A Qwen3 of two layers whose vocabulary is bytes and specials."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=272,
        hidden_size=hidden_size,
        intermediate_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
    )
    model = Qwen3Model(config)
    randomise(model, 0.15)
    return model.eval()


def tokenizer() -> Qwen2Tokenizer:
    """A byte-level tokenizer of the real class: one token a byte."""
    vocab = {character: index for index, character in enumerate(sorted(ByteLevel.alphabet()))}
    for token in SPECIAL_TOKENS:
        vocab[token] = len(vocab)
    made = Qwen2Tokenizer(vocab=vocab, merges=[], extra_special_tokens=list(SPECIAL_TOKENS[1:]))
    made.chat_template = CHAT_TEMPLATE
    return made


def randomise(model: torch.nn.Module, scale: float) -> None:
    """Fill matrices and biases with noise that moves what comes out."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim >= 2 or name.endswith("bias"):
                size = parameter.shape[-1] if parameter.ndim >= 2 else 16
                noise = torch.randn(parameter.shape, generator=generator)
                parameter.copy_(noise * scale * 4 / size**0.5)


def original_keys(state: Mapping[str, torch.Tensor], prefix: str = "") -> dict[str, torch.Tensor]:
    """Z-Image in the original layout: fused qkv, short names; diffusers' converter undone."""
    made: dict[str, torch.Tensor] = {}
    for name, tensor in state.items():
        if ".attention.to_q." in name:
            parts = [state[name.replace("to_q", part)] for part in ("to_q", "to_k", "to_v")]
            made[name.replace("to_q", "qkv")] = torch.cat(parts)
        elif not re.search(r"\.attention\.to_[kv]\.", name):
            new = name.replace("all_final_layer.2-1.", "final_layer.")
            new = new.replace("all_x_embedder.2-1.", "x_embedder.")
            new = new.replace(".attention.to_out.0.", ".attention.out.")
            new = new.replace(".norm_k.", ".k_norm.").replace(".norm_q.", ".q_norm.")
            made[new] = tensor
    made["norm_final.weight"] = torch.ones(state["x_pad_token"].shape[1])
    return {prefix + name: tensor.contiguous() for name, tensor in made.items()}


def ldm_keys(state: Mapping[str, torch.Tensor], blocks: int = 4) -> dict[str, torch.Tensor]:
    """A VAE in the layout of ae.safetensors (ldm names, attention as 1x1 convolutions)."""
    made: dict[str, torch.Tensor] = {}
    for name, tensor in state.items():
        value = tensor
        new = re.sub(r"down_blocks\.(\d+)\.resnets\.(\d+)", r"down.\1.block.\2", name)
        new = re.sub(r"down_blocks\.(\d+)\.downsamplers\.0", r"down.\1.downsample", new)

        def up(match: re.Match[str]) -> str:
            rest = match.group(2).replace("resnets", "block").replace("upsamplers.0", "upsample")
            return f"up.{blocks - 1 - int(match.group(1))}.{rest}"

        new = re.sub(r"up_blocks\.(\d+)\.(resnets|upsamplers\.0)", up, new)
        new = re.sub(r"mid_block\.resnets\.(\d)", lambda m: f"mid.block_{int(m.group(1)) + 1}", new)
        new = new.replace("conv_shortcut", "nin_shortcut").replace("conv_norm_out", "norm_out")
        if "mid_block.attentions.0" in new:
            new = new.replace("mid_block.attentions.0", "mid.attn_1")
            for ours, theirs in (
                ("group_norm", "norm"),
                ("to_q", "q"),
                ("to_k", "k"),
                ("to_v", "v"),
                ("to_out.0", "proj_out"),
            ):
                new = new.replace(f".{ours}.", f".{theirs}.")
            if new.endswith("weight") and ".norm." not in new:
                value = tensor[:, :, None, None]
        made[new] = value.contiguous()
    return made


def save(
    tensors: Mapping[str, torch.Tensor],
    path: Path,
    metadata: dict[str, str] | None = None,
    dtype: torch.dtype | None = None,
) -> Path:
    """Write a safetensors file and make it look settled."""
    path.parent.mkdir(parents=True, exist_ok=True)
    cast = {
        name: (tensor.to(dtype) if dtype else tensor).contiguous().clone()
        for name, tensor in tensors.items()
    }
    save_file(cast, str(path), metadata={"format": "pt", **(metadata or {})})
    settle(path)
    return path


def save_text_encoder_folder(folder: Path, model: Qwen3Model | None = None) -> Path:
    """A Hugging Face folder: config.json, model.safetensors and the tokenizer's files."""
    (model or text_encoder()).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    settle(folder)
    return folder


def save_text_encoder_file(
    path: Path, model: Qwen3Model | None = None, *, tokens: bool = True, prefix: str = "model."
) -> Path:
    """A single file with `model.` keys, and its tokenizer in `<stem>.tokenizer/`."""
    state = (model or text_encoder()).state_dict()
    save({prefix + name: tensor for name, tensor in state.items()}, path)
    if tokens:
        tokenizer().save_pretrained(path.parent / f"{path.stem}.tokenizer")
        settle(path.parent)
    return path


def save_vae_folder(folder: Path, model: AutoencoderKL | None = None) -> Path:
    """A diffusers folder: config.json and diffusion_pytorch_model.safetensors."""
    (model or vae()).save_pretrained(folder)
    settle(folder)
    return folder


def vae_metadata(**changes: Any) -> dict[str, str]:
    """Metadata that carries what a VAE file's shapes do not tell."""
    config = {key: VAE[key] for key in ("norm_num_groups", "scaling_factor", "shift_factor")}
    return {"autoencoder_kl": json.dumps({**config, **changes})}


def save_models(folder: Path, *, dtype: torch.dtype | None = None) -> Path:
    """A whole models folder: z.safetensors, ae.safetensors and the text encoder folder `qwen`."""
    save(
        original_keys(transformer().state_dict()),
        folder / "diffusion_models/z.safetensors",
        dtype=dtype,
    )
    save(ldm_keys(vae().state_dict()), folder / "vae/ae.safetensors", vae_metadata(), dtype=dtype)
    save_text_encoder_folder(folder / "text_encoders/qwen")
    settle(folder)
    return folder


def save_pipeline(folder: Path) -> Path:
    """A whole diffusers pipeline folder with transformer/, vae/, text_encoder/ and tokenizer/."""
    transformer().save_pretrained(folder / "transformer")
    save_vae_folder(folder / "vae")
    text_encoder().save_pretrained(folder / "text_encoder")
    tokenizer().save_pretrained(folder / "tokenizer")
    (folder / "model_index.json").write_text('{"_class_name": "ZImagePipeline"}')
    settle(folder)
    return folder


@functools.cache
def shared_models() -> Path:
    """One models folder for the whole test session; do not write into it."""
    folder = Path(tempfile.mkdtemp(prefix="inline-tiny-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return save_models(folder)
