"""Build Z-Image's modules from identified files: configs from headers, weights streamed in.

Imports torch and diffusers, so it is imported on the device thread only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch
from diffusers import AutoencoderKL, ZImageTransformer2DModel
from transformers import AutoTokenizer, Qwen3Config, Qwen3Model
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

from inline_core.errors import ModelFileInvalid, ModelFileMissing
from inline_core.families.z_image.decode import VaeRuntime
from inline_core.families.z_image.denoise import ZImageDenoiser
from inline_core.families.z_image.keys import (
    IGNORABLE,
    adapter_targets,
    text_encoder_sources,
    transformer_sources,
    vae_sources,
)
from inline_core.families.z_image.text import ZImageTextEncoder
from inline_core.loading.adapters import MatchedAdapter, match_adapter, merge_adapters
from inline_core.loading.component import LoraRef
from inline_core.loading.files import WeightFiles
from inline_core.loading.identify import FileIdentity, count_blocks
from inline_core.loading.stream import LoadPlan, fill
from inline_core.sampling.family import LatentSpace

# What the shapes do not tell; from the published configs.
ROPE_THETA: Final = 1_000_000.0
RMS_NORM_EPS: Final = 1e-6
NORM_GROUPS: Final = 32
# The user turn of Qwen3's template with thinking enabled; some single-file setups lack the file.
CHAT_TEMPLATE: Final = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def transformer_config(identity: FileIdentity) -> dict[str, Any]:
    """Constructor arguments of the transformer, derived from the header alone.

    The rope axes are 1/4, 3/8 and 3/8 of a head, as in the published config (32, 48, 48 of 128).
    """
    size = identity.geometry
    head = size["head_dim"] or 128
    return {
        "in_channels": size["in_channels"],
        "dim": size["dim"],
        "n_layers": size["n_layers"],
        "n_refiner_layers": size["n_refiner_layers"],
        "n_heads": size["dim"] // head,
        "n_kv_heads": size["dim"] // head,
        "cap_feat_dim": size["cap_feat_dim"],
        "axes_dims": [head // 4, 3 * head // 8, 3 * head // 8],
    }


def match_adapters(plan: LoadPlan, adapters: Sequence[LoraRef]) -> tuple[MatchedAdapter, ...]:
    """Where each adapter belongs in the model; headers only.  Raises: ModelFileInvalid."""
    sources = transformer_sources(plan.files.tensors, plan.identity.prefix)
    targets = adapter_targets(sources)
    return tuple(match_adapter(adapter, targets, plan.label) for adapter in adapters)


def load_denoiser(plan: LoadPlan, adapters: Sequence[MatchedAdapter] = ()) -> ZImageDenoiser:
    """The diffusion model, ready to predict.  Raises: ModelFileInvalid, RunCancelled."""
    config = transformer_config(plan.identity)
    with torch.device("meta"):
        model: Any = ZImageTransformer2DModel(**config)
    sources = transformer_sources(plan.files.tensors, plan.identity.prefix)
    ignorable = [plan.identity.prefix + name for name in IGNORABLE]
    fill(model, sources, plan, ignorable=ignorable)
    merge_adapters(model, adapters, plan.check)
    return ZImageDenoiser(model.eval())


def vae_config(files: WeightFiles, identity: FileIdentity, space: LatentSpace) -> dict[str, Any]:
    """Constructor arguments of the VAE from shapes; what a config beside the file says wins.

    Group count, scaling and shift are not in the shapes.
    """
    tensors = files.tensors
    blocks = int(math.log2(identity.geometry["factor"])) + 1
    ldm = identity.layout == "ldm"
    first = (
        "encoder.down.{}.block.0.conv1.weight"
        if ldm
        else ("encoder.down_blocks.{}.resnets.0.conv1.weight")
    )
    if first.format(0) not in tensors:
        message = "it has no encoder: a full VAE is needed"
        raise ModelFileInvalid(message)
    channels = tuple(tensors[first.format(index)].shape[0] for index in range(blocks))
    resnets = "encoder.down.0.block." if ldm else "encoder.down_blocks.0.resnets."
    attention = (
        "encoder.mid.attn_1.q.weight" if ldm else ("encoder.mid_block.attentions.0.to_q.weight")
    )
    config = {
        "block_out_channels": channels,
        "down_block_types": ("DownEncoderBlock2D",) * blocks,
        "up_block_types": ("UpDecoderBlock2D",) * blocks,
        "layers_per_block": count_blocks(tensors, resnets),
        "latent_channels": identity.geometry["latent_channels"],
        "norm_num_groups": math.gcd(NORM_GROUPS, *channels),
        "use_quant_conv": "quant_conv.weight" in tensors,
        "use_post_quant_conv": "post_quant_conv.weight" in tensors,
        "mid_block_add_attention": attention in tensors,
        "scaling_factor": space.scaling,
        "shift_factor": space.shift,
    }
    told = {key: files.config[key] for key in config if files.config.get(key) is not None}
    return {**config, **told}


def load_vae(plan: LoadPlan, space: LatentSpace) -> VaeRuntime:
    """The VAE, ready to decode and encode.  Raises: ModelFileInvalid, RunCancelled."""
    config = vae_config(plan.files, plan.identity, space)
    with torch.device("meta"):
        model: Any = AutoencoderKL(**config)
    sources = vae_sources(plan.files.tensors, len(config["block_out_channels"]))
    fill(model, sources, plan)
    return VaeRuntime(model.eval(), space)


def text_encoder_config(files: WeightFiles, identity: FileIdentity) -> Qwen3Config:
    """The text encoder's config from shapes; what a config.json beside the file says wins."""
    if files.config.get("model_type") == "qwen3":
        return Qwen3Config.from_dict(dict(files.config))
    tensors = files.tensors
    layer = f"{identity.prefix}layers.0."
    head = tensors[f"{layer}self_attn.q_norm.weight"].shape[0]
    return Qwen3Config(
        vocab_size=identity.geometry["vocab_size"],
        hidden_size=identity.geometry["hidden_size"],
        intermediate_size=tensors[f"{layer}mlp.gate_proj.weight"].shape[0],
        num_hidden_layers=identity.geometry["n_layers"],
        num_attention_heads=tensors[f"{layer}self_attn.q_proj.weight"].shape[0] // head,
        num_key_value_heads=tensors[f"{layer}self_attn.k_proj.weight"].shape[0] // head,
        head_dim=head,
        rms_norm_eps=RMS_NORM_EPS,
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_THETA},
    )


def load_text_encoder(plan: LoadPlan, tokenizer_folder: Path) -> ZImageTextEncoder:
    """The text encoder with its tokenizer.  Raises: ModelFileInvalid/Missing, RunCancelled."""
    tokenizer = _tokenizer(tokenizer_folder, plan.label)
    config = text_encoder_config(plan.files, plan.identity)
    with torch.device("meta"):
        model: Any = Qwen3Model(config)
    # Not a weight and not in any file: computed from the config.
    with torch.device(plan.placement.device):
        model.rotary_emb = Qwen3RotaryEmbedding(config=config)
    sources = text_encoder_sources(plan.files.tensors, plan.identity.prefix)
    fill(model, sources, plan, ignorable=["lm_head.weight"])
    return ZImageTextEncoder(model.eval(), tokenizer)


def _tokenizer(folder: Path, label: str) -> Any:
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).replace(str(folder), folder.name)
        message = f"the tokenizer of {label} in {folder.name}/ cannot be read: {reason}"
        raise ModelFileMissing(message) from error
    if not tokenizer.chat_template:
        tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer
