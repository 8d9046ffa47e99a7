"""Tiny random FLUX.2 components of the real architectures in the real on-disk layouts."""

from __future__ import annotations

import atexit
import functools
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from diffusers import AutoencoderKLFlux2, Flux2Transformer2DModel
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import (
    Mistral3Config,
    Mistral3ForConditionalGeneration,
    PreTrainedTokenizerFast,
    Qwen2Tokenizer,
    Qwen3Config,
    Qwen3Model,
)

from inline_core.families.text_encoders.mistral import CHAT_TEMPLATE as MISTRAL_TEMPLATE
from inline_core.families.text_encoders.qwen3 import CHAT_TEMPLATE
from tests import original_layouts, tiny

HIDDEN: Final = 16
TRANSFORMER: Final[Mapping[str, Any]] = {
    "in_channels": 128,
    "num_layers": 1,
    "num_single_layers": 2,
    "attention_head_dim": 16,
    "num_attention_heads": 2,
    "joint_attention_dim": 3 * HIDDEN,
    "timestep_guidance_channels": 32,
    "axes_dims_rope": (4, 4, 4, 4),
    "mlp_ratio": 2,
    "guidance_embeds": False,
}
VAE: Final[Mapping[str, Any]] = {
    "block_out_channels": (8, 16, 16, 16),
    "layers_per_block": 1,
    "latent_channels": 32,
    "norm_num_groups": 8,
}


def transformer(seed: int = 10, **changes: Any) -> Flux2Transformer2DModel:
    """A FLUX.2 transformer with weights big enough to move the picture."""
    torch.manual_seed(seed)
    model = Flux2Transformer2DModel(**{**TRANSFORMER, **changes})
    tiny.randomise(model, 0.25)
    return model.eval()


def vae(seed: int = 11, **changes: Any) -> AutoencoderKLFlux2:
    """FLUX.2's autoencoder with 32 latent channels and statistics that are not 0 and 1."""
    torch.manual_seed(seed)
    model = AutoencoderKLFlux2(**{**VAE, **changes})
    model.bn.running_mean.copy_(torch.randn(128) * 0.1)
    model.bn.running_var.copy_(torch.rand(128) * 0.5 + 0.5)
    return model.eval()


def text_encoder(seed: int = 12, layers: int = 28, hidden_size: int = HIDDEN) -> Qwen3Model:
    """A Qwen3 deep enough for the layers that FLUX.2 reads."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=272,
        hidden_size=hidden_size,
        intermediate_size=32,
        num_hidden_layers=layers,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=16,
        rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
    )
    model = Qwen3Model(config)
    tiny.randomise(model, 0.15)
    return model.eval()


def tokenizer() -> Qwen2Tokenizer:
    """The byte-level tokenizer with the template that knows thinking turned off."""
    made = tiny.tokenizer()
    made.chat_template = CHAT_TEMPLATE
    return made


def mistral(seed: int = 13, layers: int = 32) -> Any:
    """A Mistral 3 with its vision tower, deeper than FLUX.2 reads, and with the real vocabulary."""
    torch.manual_seed(seed)
    text = {
        "model_type": "mistral",
        "vocab_size": 131_072,  # what tells these files
        "hidden_size": HIDDEN,
        "intermediate_size": 32,
        "num_hidden_layers": layers,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "head_dim": 128,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000_000.0},
        "sliding_window": None,
    }
    vision = {
        "model_type": "pixtral",
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "patch_size": 4,
        "image_size": 16,
    }
    model = Mistral3ForConditionalGeneration(Mistral3Config(text_config=text, vision_config=vision))
    tiny.randomise(model, 0.15)
    return model.eval()


def mistral_tokenizer() -> Any:
    """A byte-level tokenizer with the special tokens of Mistral Small 3, which pads at the start."""
    marks = ("[INST]", "[/INST]", "[IMG]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]")
    special = ("<unk>", "<s>", "</s>", "<pad>", *marks)
    characters = sorted(ByteLevel.alphabet())
    vocabulary = {token: place for place, token in enumerate((*special, *characters))}
    whole = Tokenizer(BPE(vocab=vocabulary, merges=[], unk_token="<unk>"))
    whole.pre_tokenizer = ByteLevel(add_prefix_space=False)
    made = PreTrainedTokenizerFast(
        tokenizer_object=whole,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        padding_side="left",
        extra_special_tokens=list(marks),
    )
    made.chat_template = MISTRAL_TEMPLATE
    return made


def comfy_mistral_keys(model: Any) -> dict[str, torch.Tensor]:
    """mistral_3_small_flux2_*.safetensors: 30 layers without a norm, and a tokenizer as bytes."""
    start = "model.language_model."
    kept = ("embed_tokens.", *(f"layers.{layer}." for layer in range(30)))
    state = {
        name[len(start) :]: tensor
        for name, tensor in model.state_dict().items()
        if name.startswith(start)
    }
    made = {f"model.{name}": value for name, value in state.items() if name.startswith(kept)}
    return made | {"tekken_model": torch.zeros(8, dtype=torch.uint8)}


def save_dev_models(folder: Path) -> Path:
    """A models folder of FLUX.2 dev: dev.safetensors, flux2-vae.safetensors, Mistral twice."""
    state = transformer(guidance_embeds=True).state_dict()
    tiny.save(original_keys(state), folder / "diffusion_models/dev.safetensors")
    tiny.save(vae_keys(vae().state_dict()), folder / "vae/flux2-vae.safetensors")
    encoders, model = folder / "text_encoders", mistral()
    tiny.save(comfy_mistral_keys(model), encoders / "mistral_flux2.safetensors")
    model.save_pretrained(encoders / "mistral")
    for name in ("mistral", "mistral_flux2.tokenizer"):
        mistral_tokenizer().save_pretrained(encoders / name)
    # As it is downloaded: without the file of the template.
    (encoders / "mistral_flux2.tokenizer/chat_template.jinja").unlink()
    tiny.settle(folder)
    return folder


def original_keys(state: Mapping[str, torch.Tensor], prefix: str = "") -> dict[str, torch.Tensor]:
    """The layout of the released single files: fused qkv, shift before scale at the end."""
    made = original_layouts.flux_2(dict(state))
    last = "final_layer.adaLN_modulation.1.weight"
    made[last] = torch.cat([*reversed(made[last].chunk(2))])
    return {prefix + name: tensor.contiguous() for name, tensor in made.items()}


def vae_keys(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """flux2-vae.safetensors: ldm names, and the statistics under their own."""
    return tiny.ldm_keys(state)


def released_vae_keys(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same as Black Forest Labs write it: the last convolutions inside the halves."""
    rules = (("^quant_conv", "encoder.quant_conv"), ("^post_quant", "decoder.post_quant"))
    made = dict(tiny.ldm_keys(state))
    for pattern, new in rules:
        made = {re.sub(pattern, new, name): tensor for name, tensor in made.items()}
    return made


def save_text_encoder_folder(folder: Path) -> Path:
    """A Hugging Face folder with the tokenizer's files."""
    text_encoder().save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    tiny.settle(folder)
    return folder


def save_models(folder: Path, *, dtype: torch.dtype | None = None) -> Path:
    """A models folder: klein.safetensors, flux2-vae.safetensors and the encoder folder `qwen-f2`.

    Nothing of another family in the folder is touched.
    """
    keys = original_keys(transformer().state_dict())
    tiny.save(keys, folder / "diffusion_models/klein.safetensors", dtype=dtype)
    tiny.save(vae_keys(vae().state_dict()), folder / "vae/flux2-vae.safetensors")
    save_text_encoder_folder(folder / "text_encoders/qwen-f2")
    tiny.settle(folder)
    return folder


@functools.cache
def shared_flux2_models() -> Path:
    """One models folder for the whole test session; do not write into it."""
    folder = Path(tempfile.mkdtemp(prefix="inline-tiny-flux2-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return save_models(folder)
