"""Models under the names people download: the exact inverse of the converters of diffusers.

`ORIGINAL[class_name]` takes a model's tensors by the names of its class and gives them by those of
the original release.  `converted` is diffusers' own way back, to check each inverse with.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from diffusers.loaders import single_file_utils as single_file
from diffusers.loaders.single_file_model import SINGLE_FILE_LOADABLE_CLASSES

from tests import tiny

State = dict[str, torch.Tensor]
Rules = Sequence[tuple[str, str]]
_QKV: Final = ("to_q", "to_k", "to_v")
_ADDED_QKV: Final = ("add_q_proj", "add_k_proj", "add_v_proj")


def fused(state: Mapping[str, torch.Tensor], parts: Sequence[str], into: str) -> State:
    """Join the rows of several matrices (or biases) of one module into one."""
    made: State = {}
    ending = re.compile(r"\.(" + "|".join(map(re.escape, parts)) + r")\.(weight|bias)$")
    for name, tensor in state.items():
        match = ending.search(name)
        if match is None:
            made[name] = tensor
        elif match.group(1) == parts[0]:
            stem, kind = name[: match.start()], match.group(2)
            rows = [state[f"{stem}.{part}.{kind}"] for part in parts]
            made[f"{stem}.{into}.{kind}"] = torch.cat(rows)
    return made


def renamed(state: Mapping[str, torch.Tensor], rules: Rules) -> State:
    """Apply regular expressions to every name, one after the other."""
    made: State = {}
    for name, tensor in state.items():
        new = name
        for pattern, replacement in rules:
            new = re.sub(pattern, replacement, new)
        assert new not in made, f"two tensors are called {new}"
        made[new] = tensor
    return made


_FLUX: Final[Rules] = (
    (r"^proj_out\.", "final_layer.linear."),
    (r"^norm_out\.linear\.", "final_layer.adaLN_modulation.1."),
    (r"^single_transformer_blocks\.", "single_blocks."),
    (r"^transformer_blocks\.", "double_blocks."),
    (r"\.norm1\.linear\.", ".img_mod.lin."),
    (r"\.norm1_context\.linear\.", ".txt_mod.lin."),
    (r"\.attn\.fused\.", ".img_attn.qkv."),
    (r"\.attn\.added\.", ".txt_attn.qkv."),
    (r"\.attn\.to_out\.0\.", ".img_attn.proj."),
    (r"\.attn\.to_add_out\.", ".txt_attn.proj."),
    (r"(double_blocks\.\d+)\.attn\.norm_q\.weight", r"\1.img_attn.norm.query_norm.scale"),
    (r"(double_blocks\.\d+)\.attn\.norm_k\.weight", r"\1.img_attn.norm.key_norm.scale"),
    (r"\.attn\.norm_added_q\.weight", ".txt_attn.norm.query_norm.scale"),
    (r"\.attn\.norm_added_k\.weight", ".txt_attn.norm.key_norm.scale"),
    (r"(single_blocks\.\d+)\.attn\.norm_q\.weight", r"\1.norm.query_norm.scale"),
    (r"(single_blocks\.\d+)\.attn\.norm_k\.weight", r"\1.norm.key_norm.scale"),
    (r"\.ff\.net\.(\d)(\.proj)?\.", r".img_mlp.\1."),
    (r"\.ff_context\.net\.(\d)(\.proj)?\.", r".txt_mlp.\1."),
    (r"(single_blocks\.\d+)\.norm\.linear\.", r"\1.modulation.lin."),
    (r"(single_blocks\.\d+)\.proj_out\.", r"\1.linear2."),
    (r"^context_embedder\.", "txt_in."),
    (r"^x_embedder\.", "img_in."),
    (r"^time_\w+_embed\.timestep_embedder\.", "time_in."),
    (r"^time_\w+_embed\.text_embedder\.", "vector_in."),
    (r"^time_\w+_embed\.guidance_embedder\.", "guidance_in."),
    (r"^(\w+_in)\.linear_1\.", r"\1.in_layer."),
    (r"^(\w+_in)\.linear_2\.", r"\1.out_layer."),
    (r"^(distilled_guidance_layer\.layers\.\d+)\.linear_1\.", r"\1.in_layer."),
    (r"^(distilled_guidance_layer\.layers\.\d+)\.linear_2\.", r"\1.out_layer."),
    (r"^(distilled_guidance_layer\.norms\.\d+)\.weight", r"\1.scale"),
)


def flux_1(state: State) -> State:
    """FLUX.1 and Chroma."""
    single = {name: tensor for name, tensor in state.items() if name.startswith("single_")}
    rest = {name: tensor for name, tensor in state.items() if not name.startswith("single_")}
    single = {re.sub(r"\.attn\.(to_[qkv])\.", r".\1.", name): t for name, t in single.items()}
    single = fused(single, (*_QKV, "proj_mlp"), "linear1")
    rest = fused(fused(rest, _QKV, "fused"), _ADDED_QKV, "added")
    return renamed(rest | single, _FLUX)


def flux_2(state: State) -> State:
    """FLUX.2: as FLUX.1, with shared modulations and other feed-forwards."""
    rest = fused(fused(state, _QKV, "fused"), _ADDED_QKV, "added")
    rules: Rules = (
        (r"(stream_modulation\w*)\.linear\.", r"\1.lin."),
        (r"\.ff\.linear_in\.", ".img_mlp.0."),
        (r"\.ff\.linear_out\.", ".img_mlp.2."),
        (r"\.ff_context\.linear_in\.", ".txt_mlp.0."),
        (r"\.ff_context\.linear_out\.", ".txt_mlp.2."),
        (r"\.attn\.to_qkv_mlp_proj\.", ".linear1."),
        (r"^(single_transformer_blocks\.\d+)\.attn\.to_out\.", r"\1.linear2."),
    )
    return renamed(renamed(rest, rules), _FLUX)


def krea_2(state: State) -> State:
    """Krea 2; the modulation of a block is one flat vector."""
    flat = {
        name: tensor.reshape(-1)
        if re.match(r"transformer_blocks\..*scale_shift_table", name)
        else tensor
        for name, tensor in state.items()
    }
    rules: Rules = (
        (r"^final_layer\.scale_shift_table", "last.modulation.lin"),
        (r"^final_layer\.norm\.weight", "last.norm.scale"),
        (r"^final_layer\.linear\.", "last.linear."),
        (r"\.scale_shift_table$", ".mod.lin"),
        (r"\.norm1\.weight", ".prenorm.scale"),
        (r"\.norm2\.weight", ".postnorm.scale"),
        (r"\.ff\.", ".mlp."),
        (r"\.attn\.norm_([qk])\.weight", r".attn.qknorm.\1norm.scale"),
        (r"\.attn\.to_gate\.", ".attn.gate."),
        (r"\.attn\.to_out\.0\.", ".attn.wo."),
        (r"\.attn\.to_([qkv])\.", r".attn.w\1."),
        (r"^transformer_blocks\.", "blocks."),
        (r"^text_fusion\.", "txtfusion."),
        (r"^txt_in\.norm\.weight", "txtmlp.0.scale"),
        (r"^txt_in\.linear_1\.", "txtmlp.1."),
        (r"^txt_in\.linear_2\.", "txtmlp.3."),
        (r"^time_mod_proj\.", "tproj.1."),
        (r"^time_embed\.linear_1\.", "tmlp.0."),
        (r"^time_embed\.linear_2\.", "tmlp.2."),
        (r"^img_in\.", "first."),
    )
    return renamed(flat, rules)


def qwen_image_2_1(state: State) -> State:
    """Qwen-Image 2.1 as ComfyUI writes it."""
    return fused(state, ("gate_layer", "proj"), "gate_up")


_WAN: Final[Rules] = (
    (r"^proj_out\.", "head.head."),
    (r"^scale_shift_table$", "head.modulation"),
    (r"\.scale_shift_table$", ".modulation"),
    (r"(vace_blocks\.\d+)\.proj_in\.", r"\1.before_proj."),
    (r"(vace_blocks\.\d+)\.proj_out\.", r"\1.after_proj."),
    (r"\.norm2\.", ".norm3."),
    (r"^condition_embedder\.time_embedder\.linear_1\.", "time_embedding.0."),
    (r"^condition_embedder\.time_embedder\.linear_2\.", "time_embedding.2."),
    (r"^condition_embedder\.text_embedder\.linear_1\.", "text_embedding.0."),
    (r"^condition_embedder\.text_embedder\.linear_2\.", "text_embedding.2."),
    (r"^condition_embedder\.time_proj\.", "time_projection.1."),
    (r"^condition_embedder\.image_embedder\.norm1\.", "img_emb.proj.0."),
    (r"^condition_embedder\.image_embedder\.ff\.net\.0\.proj\.", "img_emb.proj.1."),
    (r"^condition_embedder\.image_embedder\.ff\.net\.2\.", "img_emb.proj.3."),
    (r"^condition_embedder\.image_embedder\.norm[23]\.", "img_emb.proj.4."),
    (r"\.attn1\.", ".self_attn."),
    (r"\.attn2\.", ".cross_attn."),
    (r"_attn\.to_out\.0\.", "_attn.o."),
    (r"_attn\.to_([qkv])\.", r"_attn.\1."),
    (r"\.add_k_proj\.", ".k_img."),
    (r"\.add_v_proj\.", ".v_img."),
    (r"\.norm_added_k\.", ".norm_k_img."),
    (r"\.ffn\.net\.0\.proj\.", ".ffn.0."),
    (r"\.ffn\.net\.2\.", ".ffn.2."),
)


def wan(state: State) -> State:
    """Wan and Wan VACE."""
    return renamed(state, _WAN)


def wan_animate(state: State) -> State:
    """Wan Animate: a face adapter with fused keys and values, a motion encoder."""
    adapter = {name: t for name, t in state.items() if name.startswith("face_adapter.")}
    rest = {name: t for name, t in state.items() if not name.startswith("face_adapter.")}
    adapter = renamed(
        fused(adapter, ("to_k", "to_v"), "linear1_kv"),
        (
            (r"^face_adapter\.", "face_adapter.fuser_blocks."),
            (r"\.to_q\.", ".linear1_q."),
            (r"\.to_out\.", ".linear2."),
            (r"\.norm_([qk])\.", r".\1_norm."),
        ),
    )
    convolutions = r"motion_encoder.enc.net_app.convs."

    def block(match: re.Match[str]) -> str:
        names = {
            "conv1.weight": "conv1.0.weight",
            "conv1.act_fn.bias": "conv1.1.bias",
            "conv2.weight": "conv2.1.weight",
            "conv2.act_fn.bias": "conv2.2.bias",
            "conv_skip.weight": "skip.1.weight",
        }
        return f"{convolutions}{int(match.group(1)) + 1}.{names[match.group(2)]}"

    made: State = {}
    for name, tensor in rest.items():
        new = re.sub(r"^motion_encoder\.res_blocks\.(\d+)\.(.*)$", block, name)
        new = new.replace("motion_encoder.conv_in.weight", f"{convolutions}0.0.weight")
        new = new.replace("motion_encoder.conv_in.act_fn.bias", f"{convolutions}0.1.bias")
        new = new.replace("motion_encoder.conv_out.weight", f"{convolutions}8.weight")
        new = new.replace("motion_encoder.motion_network", "motion_encoder.enc.fc")
        new = new.replace(
            "motion_encoder.motion_synthesis_weight", "motion_encoder.dec.direction.weight"
        )
        new = re.sub(r"^face_encoder\.(conv1_local|conv2|conv3)\.", r"face_encoder.\1.conv.", new)
        flat = new.startswith(convolutions) and new.endswith(".bias")
        made[new] = tensor[None, :, None, None] if flat else tensor
    return renamed(made, _WAN) | adapter


def ltx_video(state: State) -> State:
    """LTX-Video."""
    rules: Rules = (
        (r"^proj_in\.", "patchify_proj."),
        (r"^time_embed\.", "adaln_single."),
        (r"\.norm_([qk])\.", r".\1_norm."),
    )
    return renamed(state, rules)


def ltx_2(state: State) -> State:
    """LTX-2."""
    rules: Rules = (
        (r"^(audio_)?proj_in\.", r"\1patchify_proj."),
        (r"^(audio_)?time_embed\.", r"\1adaln_single."),
        (r"^(audio_)?prompt_adaln\.", r"\1prompt_adaln_single."),
        (r"^av_cross_attn_video_scale_shift\.", "av_ca_video_scale_shift_adaln_single."),
        (r"^av_cross_attn_audio_scale_shift\.", "av_ca_audio_scale_shift_adaln_single."),
        (r"^av_cross_attn_video_a2v_gate\.", "av_ca_a2v_gate_adaln_single."),
        (r"^av_cross_attn_audio_v2a_gate\.", "av_ca_v2a_gate_adaln_single."),
        (r"\.(video|audio)_a2v_cross_attn_scale_shift_table", r".scale_shift_table_a2v_ca_\1"),
        (r"\.norm_([qk])\.", r".\1_norm."),
    )
    return renamed(state, rules)


def hunyuan_video(state: State) -> State:
    """HunyuanVideo."""
    single = {name: t for name, t in state.items() if name.startswith("single_")}
    text = {name: t for name, t in state.items() if name.startswith("context_embedder.")}
    rest = {name: t for name, t in state.items() if name not in single and name not in text}
    single = {re.sub(r"\.attn\.(to_[qkv])\.", r".\1.", name): t for name, t in single.items()}
    single = renamed(
        fused(single, (*_QKV, "proj_mlp"), "linear1"),
        (
            (r"^single_transformer_blocks\.", "single_blocks."),
            (r"\.attn\.norm_([qk])\.", r".\1_norm."),
            (r"\.proj_out\.", ".linear2."),
            (r"\.norm\.linear\.", ".modulation.linear."),
        ),
    )
    text = renamed(
        fused(text, _QKV, "self_attn_qkv"),
        (
            (r"^context_embedder\.", "txt_in."),
            (r"token_refiner\.refiner_blocks", "individual_token_refiner.blocks"),
            (r"\.attn\.self_attn_qkv\.", ".self_attn_qkv."),
            (r"\.attn\.to_out\.0\.", ".self_attn_proj."),
            (r"\.norm_out\.linear\.", ".adaLN_modulation.1."),
            (r"time_text_embed\.timestep_embedder\.linear_1", "t_embedder.mlp.0"),
            (r"time_text_embed\.timestep_embedder\.linear_2", "t_embedder.mlp.2"),
            (r"time_text_embed\.text_embedder", "c_embedder"),
            (r"\.proj_in\.", ".input_embedder."),
            (r"\.ff\.net\.0\.proj\.", ".mlp.fc1."),
            (r"\.ff\.net\.2\.", ".mlp.fc2."),
        ),
    )
    rest = fused(fused(rest, _QKV, "img_attn_qkv"), _ADDED_QKV, "txt_attn_qkv")
    return renamed(rest, _HUNYUAN) | text | single


_HUNYUAN: Final[Rules] = (
    (r"^proj_out\.", "final_layer.linear."),
    (r"^norm_out\.linear\.", "final_layer.adaLN_modulation.1."),
    (r"^x_embedder\.", "img_in."),
    (r"^time_text_embed\.timestep_embedder\.linear_1\.", "time_in.mlp.0."),
    (r"^time_text_embed\.timestep_embedder\.linear_2\.", "time_in.mlp.2."),
    (r"^time_text_embed\.guidance_embedder\.linear_1\.", "guidance_in.mlp.0."),
    (r"^time_text_embed\.guidance_embedder\.linear_2\.", "guidance_in.mlp.2."),
    (r"^time_text_embed\.text_embedder\.linear_1\.", "vector_in.in_layer."),
    (r"^time_text_embed\.text_embedder\.linear_2\.", "vector_in.out_layer."),
    (r"^transformer_blocks\.", "double_blocks."),
    (r"\.attn\.(img|txt)_attn_qkv\.", r".\1_attn_qkv."),
    (r"\.attn\.norm_([qk])\.", r".img_attn_\1_norm."),
    (r"\.attn\.norm_added_([qk])\.", r".txt_attn_\1_norm."),
    (r"\.attn\.to_out\.0\.", ".img_attn_proj."),
    (r"\.attn\.to_add_out\.", ".txt_attn_proj."),
    (r"\.norm1\.linear\.", ".img_mod.linear."),
    (r"\.norm1_context\.linear\.", ".txt_mod.linear."),
    (r"\.ff\.net\.0\.proj\.", ".img_mlp.fc1."),
    (r"\.ff\.net\.2\.", ".img_mlp.fc2."),
    (r"\.ff_context\.net\.0\.proj\.", ".txt_mlp.fc1."),
    (r"\.ff_context\.net\.2\.", ".txt_mlp.fc2."),
)


def minimax_h3(state: State) -> State:
    """MiniMax H3 as Comfy-Org publishes it."""
    rules: Rules = (
        (r"^token_refiner\.refiner_blocks\.", "token_refiner.blocks."),
        (r"^transformer_blocks\.", "blocks."),
        (r"^time_embedder\.linear_1\.", "time_embedder.proj_in."),
        (r"^time_embedder\.linear_2\.", "time_embedder.proj_out."),
        (r"^proj_in\.", "video_patch_proj."),
        (r"^audio_proj_in\.", "audio_patch_proj."),
        (r"^context_embedder\.", "condition_proj."),
        (r"^norm_out\.norm\.", "final_layer.norm."),
        (r"^norm_out\.linear\.", "final_layer.adaln_proj.linear."),
        (r"^proj_out\.", "final_layer.video_out."),
        (r"^audio_proj_out\.", "final_layer.audio_out."),
        (r"\.attn\.norm_([qk])\.", r".attn.\1_norm."),
        (r"\.attn\.to_out\.0\.", ".attn.out_proj."),
        (r"\.ff\.net\.0\.proj\.", ".mlp.fc1."),
        (r"\.ff\.net\.2\.", ".mlp.fc2."),
    )
    return renamed(fused(state, _QKV, "qkv_proj"), rules)


def sd3(state: State) -> State:
    """Stable Diffusion 3 and 3.5."""
    rules: Rules = (
        (r"^proj_out\.", "final_layer.linear."),
        (r"^norm_out\.linear\.", "final_layer.adaLN_modulation.1."),
        (r"^pos_embed\.pos_embed$", "pos_embed"),
        (r"^pos_embed\.proj\.", "x_embedder.proj."),
        (r"^time_text_embed\.timestep_embedder\.linear_1\.", "t_embedder.mlp.0."),
        (r"^time_text_embed\.timestep_embedder\.linear_2\.", "t_embedder.mlp.2."),
        (r"^time_text_embed\.text_embedder\.linear_1\.", "y_embedder.mlp.0."),
        (r"^time_text_embed\.text_embedder\.linear_2\.", "y_embedder.mlp.2."),
        (r"^transformer_blocks\.", "joint_blocks."),
        (r"\.(attn2?)\.fused\.", r".x_block.\1.qkv."),
        (r"\.attn\.added\.", ".context_block.attn.qkv."),
        (r"\.(attn2?)\.norm_([qk])\.", r".x_block.\1.ln_\2."),
        (r"\.attn\.norm_added_([qk])\.", r".context_block.attn.ln_\1."),
        (r"(\d)\.(attn2?)\.to_out\.0\.", r"\1.x_block.\2.proj."),
        (r"\.attn\.to_add_out\.", ".context_block.attn.proj."),
        (r"\.norm1\.linear\.", ".x_block.adaLN_modulation.1."),
        (r"\.norm1_context\.linear\.", ".context_block.adaLN_modulation.1."),
        (r"\.ff\.net\.0\.proj\.", ".x_block.mlp.fc1."),
        (r"\.ff\.net\.2\.", ".x_block.mlp.fc2."),
        (r"\.ff_context\.net\.0\.proj\.", ".context_block.mlp.fc1."),
        (r"\.ff_context\.net\.2\.", ".context_block.mlp.fc2."),
    )
    return renamed(fused(fused(state, _QKV, "fused"), _ADDED_QKV, "added"), rules)


def lumina_2(state: State) -> State:
    """Lumina-Image 2.0."""
    rules: Rules = (
        (r"^norm_out\.linear_1\.", "final_layer.adaLN_modulation.1."),
        (r"^norm_out\.linear_2\.", "final_layer.linear."),
        (r"^time_caption_embed\.caption_embedder\.", "cap_embedder."),
        (r"^time_caption_embed\.timestep_embedder\.linear_1\.", "t_embedder.mlp.0."),
        (r"^time_caption_embed\.timestep_embedder\.linear_2\.", "t_embedder.mlp.2."),
        (r"\.norm1\.linear\.", ".adaLN_modulation.1."),
        (r"\.norm1\.norm\.", ".attention_norm1."),
        (r"^(context_refiner\.\d+)\.norm1\.", r"\1.attention_norm1."),
        (r"(\d)\.norm2\.", r"\1.attention_norm2."),
        (r"\.linear_([123])\.", r".w\1."),
        (r"\.attn\.norm_([qk])\.", r".attention.\1_norm."),
        (r"\.attn\.to_out\.0\.", ".attention.out."),
        (r"\.attn\.qkv\.", ".attention.qkv."),
    )
    made = renamed(fused(state, _QKV, "qkv"), rules)
    hidden = state["x_embedder.weight"].shape[0]
    return made | {"norm_final.weight": torch.empty(hidden, device="meta")}


def stable_diffusion(state: State) -> State:
    """The U-Net of SD1.5, SD2 and SDXL; two residual blocks a level."""
    step = 3  # two residual blocks and the resampling
    attention_in = {
        int(match.group(1))
        for name in state
        if (match := re.match(r"up_blocks\.(\d+)\.attentions\.", name))
    }

    def down(match: re.Match[str]) -> str:
        level, kind, index = int(match.group(1)), match.group(2), int(match.group(3))
        if kind == "downsamplers":
            return f"input_blocks.{(level + 1) * step}.0.op."
        return f"input_blocks.{1 + level * step + index}.{int(kind == 'attentions')}."

    def up(match: re.Match[str]) -> str:
        level, kind, index = int(match.group(1)), match.group(2), int(match.group(3))
        if kind == "upsamplers":
            return f"output_blocks.{level * step + 2}.{1 + (level in attention_in)}.conv."
        return f"output_blocks.{level * step + index}.{int(kind == 'attentions')}."

    made: State = {}
    for name, tensor in state.items():
        new = re.sub(r"^down_blocks\.(\d+)\.(downsamplers)\.(\d+)\.conv\.", down, name)
        new = re.sub(r"^down_blocks\.(\d+)\.(resnets|attentions)\.(\d+)\.", down, new)
        new = re.sub(r"^up_blocks\.(\d+)\.(upsamplers)\.(\d+)\.conv\.", up, new)
        new = re.sub(r"^up_blocks\.(\d+)\.(resnets|attentions)\.(\d+)\.", up, new)
        made[new] = tensor
    return renamed(made, _UNET)


_UNET: Final[Rules] = (
    (r"^mid_block\.resnets\.0\.", "middle_block.0."),
    (r"^mid_block\.resnets\.1\.", "middle_block.2."),
    (r"^mid_block\.attentions\.0\.", "middle_block.1."),
    (r"(_blocks?\.(?:\d+\.)+)norm1\.(weight|bias)$", r"\1in_layers.0.\2"),
    (r"(_blocks?\.(?:\d+\.)+)conv1\.", r"\1in_layers.2."),
    (r"(_blocks?\.(?:\d+\.)+)time_emb_proj\.", r"\1emb_layers.1."),
    (r"(_blocks?\.(?:\d+\.)+)norm2\.(weight|bias)$", r"\1out_layers.0.\2"),
    (r"(_blocks?\.(?:\d+\.)+)conv2\.", r"\1out_layers.3."),
    (r"(_blocks?\.(?:\d+\.)+)conv_shortcut\.", r"\1skip_connection."),
    (r"transformer_blocks\.(\d+)\.in_layers\.0\.", r"transformer_blocks.\1.norm1."),
    (r"transformer_blocks\.(\d+)\.out_layers\.0\.", r"transformer_blocks.\1.norm2."),
    (r"^time_embedding\.linear_1\.", "time_embed.0."),
    (r"^time_embedding\.linear_2\.", "time_embed.2."),
    (r"^add_embedding\.linear_1\.", "label_emb.0.0."),
    (r"^add_embedding\.linear_2\.", "label_emb.0.2."),
    (r"^conv_in\.", "input_blocks.0.0."),
    (r"^conv_norm_out\.", "out.0."),
    (r"^conv_out\.", "out.2."),
)
_WAN_VAE: Final[Rules] = (
    (r"^quant_conv\.", "conv1."),
    (r"^post_quant_conv\.", "conv2."),
    (r"^(encoder|decoder)\.conv_in\.", r"\1.conv1."),
    (r"^(encoder|decoder)\.norm_out\.gamma", r"\1.head.0.gamma"),
    (r"^(encoder|decoder)\.conv_out\.", r"\1.head.2."),
    (r"mid_block\.resnets\.0\.", "middle.0."),
    (r"mid_block\.resnets\.1\.", "middle.2."),
    (r"mid_block\.attentions\.0\.", "middle.1."),
    (r"\.norm1\.gamma", ".residual.0.gamma"),
    (r"\.conv1\.(?=\w+$)(?<=[0-9]\.conv1\.)", ".residual.2."),
    (r"\.norm2\.gamma", ".residual.3.gamma"),
    (r"(\d)\.conv2\.", r"\1.residual.6."),
    (r"\.conv_shortcut\.", ".shortcut."),
)


def wan_vae(state: State) -> State:
    """The VAEs of Wan 2.1 (flat lists) and Wan 2.2 (levels)."""
    nested = "encoder.down_blocks.0.resnets.0.conv1.weight" in state
    flat_ups = 4  # three residual blocks and the resampling

    def up(match: re.Match[str]) -> str:
        level, kind, index = int(match.group(1)), match.group(2), int(match.group(3))
        return f"decoder.upsamples.{level * flat_ups + (3 if kind == 'upsamplers' else index)}."

    made: State = {}
    for name, tensor in state.items():
        if nested:
            new = re.sub(
                r"^encoder\.down_blocks\.(\d+)\.resnets\.",
                r"encoder.downsamples.\1.downsamples.",
                name,
            )
            new = re.sub(
                r"^encoder\.down_blocks\.(\d+)\.downsampler\.",
                r"encoder.downsamples.\1.downsamples.2.",
                new,
            )
            new = re.sub(
                r"^decoder\.up_blocks\.(\d+)\.resnets\.", r"decoder.upsamples.\1.upsamples.", new
            )
            new = re.sub(
                r"^decoder\.up_blocks\.(\d+)\.upsampler\.",
                r"decoder.upsamples.\1.upsamples.3.",
                new,
            )
        else:
            new = name.replace("encoder.down_blocks.", "encoder.downsamples.")
            new = re.sub(r"^decoder\.up_blocks\.(\d+)\.(resnets|upsamplers)\.(\d+)\.", up, new)
        made[new] = tensor
    return renamed(made, _WAN_VAE)


def ltx_vae(state: State) -> State:
    """The video VAEs of LTX: everything of a half in one numbered list."""
    made: State = {}
    places = _flat_places(state)
    for name, tensor in state.items():
        new = name
        for place in sorted(places, key=len, reverse=True):
            if name.startswith(place + "."):
                new = places[place] + name[len(place) :]
                break
        if new == "latents_mean":
            new = "per_channel_statistics.mean-of-means"
        elif new == "latents_std":
            new = "per_channel_statistics.std-of-means"
        new = new.replace(".resnets.", ".res_blocks.")
        new = new.replace(".conv_shortcut.conv.", ".conv_shortcut.")
        new = re.sub(r"\.norm3\.(weight|bias)$", r".norm3.norm.\1", new)
        new = re.sub(r"^decoder\.time_embedder\.", "decoder.last_time_embedder.", new)
        new = new.replace("decoder.scale_shift_table", "decoder.last_scale_shift_table")
        made[new] = tensor
    return made


def _flat_places(state: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """`encoder.down_blocks.0.downsamplers.0` -> `encoder.down_blocks.1`, and so on."""
    encoder: list[str] = []
    decoder = ["decoder.mid_block"]
    for index in range(8):
        start = f"encoder.down_blocks.{index}"
        encoder += [f"{start}", f"{start}.downsamplers.0", f"{start}.conv_out"]
        start = f"decoder.up_blocks.{index}"
        decoder += [f"{start}.conv_in", f"{start}.upsamplers.0", f"{start}"]
    encoder.append("encoder.mid_block")
    places: dict[str, str] = {}
    for order, flat in ((encoder, "encoder.down_blocks"), (decoder, "decoder.up_blocks")):
        there = [
            place
            for place in order
            if any(
                name.startswith(
                    f"{place}.resnets."
                    if place[-1].isdigit() and "samplers" not in place
                    else f"{place}."
                )
                for name in state
            )
        ]
        places |= {place: f"{flat}.{index}" for index, place in enumerate(there)}
    return places


def ltx_2_audio(state: State) -> State:
    """The audio VAE of LTX-2."""
    rules: Rules = (
        (r"^latents_mean$", "per_channel_statistics.mean-of-means"),
        (r"^latents_std$", "per_channel_statistics.std-of-means"),
    )
    return renamed(state, rules)


def z_image(state: State) -> State:
    """Z-Image."""
    return tiny.original_keys(state)


def ldm_vae(state: State) -> State:
    """The VAEs of Stable Diffusion, FLUX.1 and FLUX.2."""
    levels = {name.split(".")[2] for name in state if name.startswith("encoder.down_blocks.")}
    return tiny.ldm_keys(state, blocks=len(levels))


ORIGINAL: Final[dict[str, Callable[[State], State]]] = {
    "ZImageTransformer2DModel": z_image,
    "Krea2Transformer2DModel": krea_2,
    "FluxTransformer2DModel": flux_1,
    "ChromaTransformer2DModel": flux_1,
    "Flux2Transformer2DModel": flux_2,
    "QwenImage21Transformer2DModel": qwen_image_2_1,
    "WanTransformer3DModel": wan,
    "WanVACETransformer3DModel": wan,
    "WanAnimateTransformer3DModel": wan_animate,
    "LTXVideoTransformer3DModel": ltx_video,
    "LTX2VideoTransformer3DModel": ltx_2,
    "HunyuanVideoTransformer3DModel": hunyuan_video,
    "MiniMaxH3Transformer3DModel": minimax_h3,
    "SD3Transformer2DModel": sd3,
    "Lumina2Transformer2DModel": lumina_2,
    "UNet2DConditionModel": stable_diffusion,
    "AutoencoderKL": ldm_vae,
    "AutoencoderKLFlux2": ldm_vae,
    "AutoencoderKLWan": wan_vae,
    "AutoencoderKLLTXVideo": ltx_vae,
    "AutoencoderKLLTX2Video": ltx_vae,
    "AutoencoderKLLTX2Audio": ltx_2_audio,
}


def converted(class_name: str, state: State, config: Mapping[str, Any]) -> State:
    """What diffusers makes of tensors in the original layout."""
    given = dict(state)
    if class_name == "UNet2DConditionModel":
        given = {f"model.diffusion_model.{name}": tensor for name, tensor in given.items()}
    if class_name == "AutoencoderKLLTXVideo":
        given = {f"vae.{name}": tensor for name, tensor in given.items()}
    if class_name == "AutoencoderKLFlux2":  # it has no converter of its own: `bn.*` stays
        extra = {name: tensor for name, tensor in given.items() if name.startswith("bn.")}
        return dict(single_file.convert_ldm_vae_checkpoint(given, config)) | extra
    function = SINGLE_FILE_LOADABLE_CLASSES[class_name]["checkpoint_mapping_fn"]
    return dict(function(checkpoint=given, config=config))


def ace_step(state: State) -> State:
    """The diffusion model below `decoder.`, as in the release of ACE-Step 1.5."""
    rules: Rules = (
        (r"\.to_([qkv])\.", r".\1_proj."),
        (r"\.to_out\.0\.", ".o_proj."),
        (r"\.norm_([qk])\.", r".\1_norm."),
        (r"^proj_in_conv\.", "proj_in.1."),
        (r"^proj_out_conv\.", "proj_out.1."),
        (r"^", "decoder."),
    )
    return renamed(state, rules)


def oobleck(state: State, stages: int) -> State:
    """The VAE of Stable Audio as stable-audio-tools has it: lists of layers, flat snakes."""
    unit = {"snake1": 0, "conv1": 1, "snake2": 2, "conv2": 3}
    units: Rules = tuple(
        (rf"\.block\.(\d+)\.res_unit(\d)\.{part}\.", rf".block.\1.unit\2.layers.{place}.")
        for part, place in unit.items()
    )
    encoder: Rules = (
        *((rf"^(encoder.*)\.unit{i + 1}\.", rf"\1.layers.{i}.") for i in range(3)),
        (r"^(encoder\.block\.\d+)\.snake1\.", r"\1.layers.3."),
        (r"^(encoder\.block\.\d+)\.conv1\.", r"\1.layers.4."),
    )
    decoder: Rules = (
        *((rf"^(decoder.*)\.unit{i + 1}\.", rf"\1.layers.{i + 2}.") for i in range(3)),
        (r"^(decoder\.block\.\d+)\.snake1\.", r"\1.layers.0."),
        (r"^(decoder\.block\.\d+)\.conv_t1\.", r"\1.layers.1."),
    )
    outer: Rules = (
        *((rf"^(..coder)\.block\.{i}\.", rf"\1.layers.{i + 1}.") for i in range(stages)),
        (r"^(..coder)\.conv1\.", r"\1.layers.0."),
        (r"^(..coder)\.snake1\.", rf"\1.layers.{stages + 1}."),
        (r"^(..coder)\.conv2\.", rf"\1.layers.{stages + 2}."),
    )
    made = renamed(state, (*units, *encoder, *decoder, *outer))
    flat = (".alpha", ".beta")
    return {key: value.flatten() if key.endswith(flat) else value for key, value in made.items()}


def controlnet(state: State) -> State:
    """ControlNets of SD1.5 and SDXL."""
    hint = "controlnet_cond_embedding"
    rules: Rules = (
        (r"^controlnet_down_blocks\.(\d+)\.", r"zero_convs.\1.0."),
        (r"^controlnet_mid_block\.", "middle_block_out.0."),
        (rf"^{hint}\.conv_in\.", "input_hint_block.0."),
        *((rf"^{hint}\.blocks\.{i}\.", f"input_hint_block.{2 * i + 2}.") for i in range(6)),
        (rf"^{hint}\.conv_out\.", "input_hint_block.14."),
    )
    return renamed(stable_diffusion(state), rules)
