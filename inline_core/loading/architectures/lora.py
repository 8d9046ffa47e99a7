"""Adapters: which style a file is written in and which family it was made for.

The family is read from the names of the modules it changes and their widths, whatever trainer wrote
it; what those leave open is taken from the trainer's metadata.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from inline_core.loading.header import TensorInfo

_STYLE_KEY: Final = re.compile(
    r"[._](lora_A|lora_down|lora\.down|lora_linear_layer\.down|lokr_w1(?:_a)?|hada_w1_a"
    r"|oft_blocks|oft_diag|oft_R|boft_R|glora_a1)(?=[._\n]|$)",
    re.MULTILINE,
)
_STYLE_PARTS: Final = ("lora", "lokr_", "hada_", "oft_")
_STYLES: Final = (
    ("lokr", "LoKr"),
    ("hada", "LoHa"),
    ("oft", "OFT"),
    ("boft", "BOFT"),
    ("glora", "GLoRA"),
)
_SCALE_KEY: Final = "dora_scale"
_SIZES: Final = re.compile(r"[._](?:lora_A|lora_down|lora[._]down|lora_linear_layer[._]down)[._]")
_OUT_SIZES: Final = re.compile(r"[._](?:lora_B|lora_up|lora[._]up|lora_linear_layer[._]up)[._]")
_SD_WIDTHS: Final = {768: "sd15", 1024: "sd2", 2048: "sdxl", 1280: "sdxl"}
_FLUX_2_GROWTH: Final = 5  # its feed-forward gives 6 x the width (gate and value), FLUX.1's 4 x
_SD_SURE: Final = frozenset({"sd15", "sd2", "sdxl"})
_LUMINA_WIDTH: Final = 2304
_QWEN_WIDTH: Final = 3072
_HUNYUAN_1_5_WIDTH: Final = 2048
# Module names with every dot as an underscore, checked from the most telling to the least.
_FAMILIES: Final = tuple(
    (re.compile(pattern, re.MULTILINE), family)
    for pattern, family in (
        (r"(^|_)txtfusion_|text_fusion_|attn_to_gate(_|$)|blocks_\d+_attn_w[qkvo](_|$)", "krea-2"),
        (r"distilled_guidance_layer", "chroma"),
        (
            r"double_stream_modulation|single_stream_modulation|to_qkv_mlp_proj|ff_linear_in",
            "flux-2",
        ),
        (
            r"double_blocks_\d+_(img|txt)_(mlp_fc|mod_linear)|individual_token_refiner",
            "hunyuan-video",
        ),
        (r"double_blocks_\d+|single_transformer_blocks_\d+|single_blocks_\d+", "flux-1"),
        (r"joint_blocks_\d+", "sd3"),
        (r"img_mlp_(proj|gate_up|gate_layer|out)|txt_in_(text_norm|in_layer)", "qwen-image-2.1"),
        (r"(img|txt)_(mlp|mod)_|txt_norm", "qwen-image"),
        (r"audio_(to_video_)?attn|av_ca_|video_to_audio_attn", "ltx-2"),
        (r"(down|up|input|output)_blocks_\d+|mid_block|middle_block", "sd-unet"),
        (r"(layers|refiner)_\d+_attention_|(layers|refiner)_\d+_feed_forward_", "z-image"),
        (r"blocks_\d+_attn_(qkv_proj|out_proj)", "minimax-h3"),
        (r"layers_\d+_(cross_attn|self_attn)_[qkvo]_proj|layers_\d+_cross_attn_to_", "ace-step"),
        (r"(^|_)blocks_\d+_(self_attn|cross_attn|ffn)_", "wan"),
        (r"transformer_blocks_\d+_attn_(add_|to_add)", "attention-only"),
        (r"transformer_blocks_\d+_attn[12]_|patchify_proj|adaln_single", "ltx-video"),
        (r"(^|_)te[12]?_text_model_|text_encoder(_2)?_text_model_", "sd-unet"),
    )
)
# With the dots as they are: `transformer.blocks.0` is Wan, `transformer_blocks.0` is not.
_WAN_IN_DIFFUSERS: Final = re.compile(r"(?:^|\.)blocks\.\d+\.attn[12]\.", re.MULTILINE)
# What trainers write into `ss_base_model_version` and `modelspec.architecture`.
_TOLD: Final = (
    ("sdxl", "sdxl"),
    ("stable-diffusion-xl", "sdxl"),
    ("pony", "sdxl"),
    ("illustrious", "sdxl"),
    ("stable-diffusion-v1", "sd15"),
    ("sd_v1", "sd15"),
    ("sd_1", "sd15"),
    ("sd1", "sd15"),
    ("stable-diffusion-v2", "sd2"),
    ("sd_v2", "sd2"),
    ("stable-diffusion-3", "sd3"),
    ("sd3", "sd3"),
    ("chroma", "chroma"),
    ("flux2", "flux-2"),
    ("flux.2", "flux-2"),
    ("flux-2", "flux-2"),
    ("flux_2", "flux-2"),
    ("flux", "flux-1"),
    ("krea2", "krea-2"),
    ("krea-2", "krea-2"),
    ("zimage", "z-image"),
    ("z-image", "z-image"),
    ("z_image", "z-image"),
    ("lumina", "lumina2"),
    ("qwen", "qwen-image"),
    ("wan", "wan"),
    ("ltx2", "ltx-2"),
    ("ltx-2", "ltx-2"),
    ("ltx", "ltx-video"),
    ("hunyuan", "hunyuan-video"),
    ("minimax", "minimax-h3"),
    ("ace", "ace-step"),
)
# Families whose adapters cannot always be told apart by names: there the metadata decides.
_KIN: Final = (
    frozenset({"unknown", "flux-1", "chroma"}),
    frozenset({"unknown", "z-image", "lumina2"}),
    frozenset({"unknown", "ltx-video", "ltx-2"}),
    frozenset({"unknown", "sd-unet", "sd15", "sd2", "sdxl"}),
    frozenset({"unknown", "attention-only", "qwen-image", "sd3"}),
)


@dataclass(frozen=True, slots=True)
class AdapterKind:
    """How an adapter is written (`LoRA`, `LoKr`, ...) and the `family` it was made for.

    `spelling` is the part of the key that gave it away and `count` how many keys have it.
    """

    style: str
    spelling: str
    count: int
    family: str


def adapter_kind(
    tensors: Mapping[str, TensorInfo], metadata: Mapping[str, str]
) -> AdapterKind | None:
    """What an adapter file is, or None for files that are no adapter."""
    names = "\n".join(tensors)
    # A plain search is far quicker than the expression, and nearly every file is no adapter.
    if not any(part in names for part in _STYLE_PARTS):
        return None
    kinds = Counter(_STYLE_KEY.findall(names))
    if not kinds:
        return None
    spelling, count = kinds.most_common(1)[0]
    style = next((name for start, name in _STYLES if spelling.startswith(start)), "LoRA")
    if style == "LoRA" and _SCALE_KEY in names:
        style = "DoRA"
    return AdapterKind(style, spelling, count, _family(tensors, metadata))


def _family(tensors: Mapping[str, TensorInfo], metadata: Mapping[str, str]) -> str:
    names = "\n".join(tensors)
    modules = names.replace(".", "_")
    found = "wan" if _WAN_IN_DIFFUSERS.search(names) else "unknown"
    for pattern, family in _FAMILIES:
        if found == "unknown" and pattern.search(modules):
            found = family
    found = _refined(found, tensors)
    told = _told(metadata)
    kin = any(found in group and told in group for group in _KIN)
    if told and (found == "unknown" or kin) and not (found in _SD_SURE and told in _SD_SURE):
        return told
    return "unknown" if found == "attention-only" else found


def _refined(family: str, tensors: Mapping[str, TensorInfo]) -> str:
    """Tell kin apart by the widths of what they change."""
    if family == "sd-unet":
        widths = _columns(tensors, "attn2_to_k")
        sizes = {_SD_WIDTHS[width] for width in widths if width in _SD_WIDTHS}
        return sizes.pop() if len(sizes) == 1 else _by_depth(tensors)
    if family == "flux-1":
        return "flux-2" if _grows_like_flux_2(tensors) else family
    if family == "hunyuan-video":
        widths = _columns(tensors, "img_")
        return "hunyuan-video-1.5" if _HUNYUAN_1_5_WIDTH in widths else family
    if family == "z-image":
        widths = _columns(tensors, "attention")
        return "lumina2" if _LUMINA_WIDTH in widths else family
    if family == "attention-only":
        return "qwen-image" if _QWEN_WIDTH in _columns(tensors, "add_k_proj") else family
    return family


def _by_depth(tensors: Mapping[str, TensorInfo]) -> str:
    """Only SDXL has a second text encoder and several transformer layers in one block."""
    names = "\n".join(tensors).replace(".", "_")
    deep = re.search(r"transformer_blocks_[1-9]", names) or "lora_te2_" in names
    return "sdxl" if deep else "sd-unet"


def _columns(tensors: Mapping[str, TensorInfo], part: str) -> set[int]:
    """Input widths of the modules whose name has `part` in it."""
    return {
        info.shape[1]
        for name, info in tensors.items()
        if len(info.shape) > 1 and _SIZES.search(name) and part in name.replace(".", "_")
    }


def _grows_like_flux_2(tensors: Mapping[str, TensorInfo]) -> bool:
    """Compare what the first feed-forward matrix gives with what it takes."""
    part = re.compile(
        r"double_blocks[._]\d+[._](?:img|txt)_mlp[._]0|single_blocks[._]\d+[._]linear1"
    )
    taken: list[int] = []
    given: list[int] = []
    for name, info in tensors.items():
        match = part.search(name)
        if match is None or len(info.shape) < 2:  # noqa: PLR2004 - alphas have no axes
            continue
        if _SIZES.search(name):
            taken.append(info.shape[1])
        elif _OUT_SIZES.search(name):
            # The single blocks give query, key and value as well.
            qkv = 3 if "single" in match.group(0) else 0
            given.append(info.shape[0] - qkv * (taken[-1] if taken else 0))
    return bool(taken and given) and max(given) >= _FLUX_2_GROWTH * max(taken)


def _told(metadata: Mapping[str, str]) -> str:
    """The family that a trainer wrote down, or ""."""
    for key in ("modelspec.architecture", "ss_base_model_version"):
        told = metadata.get(key, "").lower()
        if told:
            return next((family for start, family in _TOLD if start in told), "")
    return ""
