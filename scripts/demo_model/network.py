"""The demo's transformer and text encoder, and a batched forward pass equal to the library's.

The library's ZImageTransformer2DModel takes lists of images of any size. Training has one size
and captions of at most 32 tokens, so here the same weights run on plain batches: (B, 64, D) image
tokens followed by (B, 32, D) caption tokens, with fused projections.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from diffusers import ZImageTransformer2DModel
from torch import nn
from torch.nn import functional
from transformers import Qwen3Config, Qwen3Model

from .prompts import CAPTION_LENGTH

GRID: Final = 8
PATCH: Final = 2
HEAD: Final = 32
WIDTH: Final = 128
LAYERS: Final = 5
TEXT_WIDTH: Final = 128
KEY: Final = "2-1"


def build_transformer(width: int = WIDTH, layers: int = LAYERS) -> ZImageTransformer2DModel:
    """Return an untrained transformer that starts as "noise in, noise out".

    Gates start at 0, and the last layer starts as the inverse of the first, so that the very first
    velocity already holds the noise and training is spent on the picture.
    """
    model = ZImageTransformer2DModel(
        in_channels=16,
        dim=width,
        n_layers=layers,
        n_refiner_layers=1,
        n_heads=width // HEAD,
        n_kv_heads=width // HEAD,
        cap_feat_dim=TEXT_WIDTH,
        axes_dims=[8, 12, 12],
        axes_lens=[1024, 512, 512],
    )
    embed, final = model.all_x_embedder[KEY], model.all_final_layer[KEY]
    with torch.no_grad():
        for block in [*model.noise_refiner, *model.layers]:
            block.adaLN_modulation[0].weight.zero_()
            block.adaLN_modulation[0].bias.zero_()
        nn.init.orthogonal_(embed.weight)
        embed.bias.zero_()
        final.linear.weight.copy_(-embed.weight.T * (embed.in_features / width) ** 0.5)
        final.linear.bias.zero_()
        final.adaLN_modulation[1].weight.zero_()
        final.adaLN_modulation[1].bias.zero_()
        nn.init.normal_(model.cap_pad_token, std=0.02)
        nn.init.normal_(model.x_pad_token, std=0.02)
    return model


def build_text_encoder(vocabulary: int, pad: int) -> Qwen3Model:
    """Return an untrained Qwen3 of 3 layers; the pipeline reads the second one's output."""
    config = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=TEXT_WIDTH,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=HEAD,
        max_position_embeddings=4096,
        rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
        pad_token_id=pad,
        tie_word_embeddings=True,
    )
    return Qwen3Model(config)


def patchify(latents: torch.Tensor) -> torch.Tensor:
    """Turn latents (B, 16, 16, 16) into tokens (B, 64, 64) in the library's order."""
    count, channels = latents.shape[:2]
    cells = latents.view(count, channels, GRID, PATCH, GRID, PATCH)  # (B, C, 8, 2, 8, 2)
    return cells.permute(0, 2, 4, 3, 5, 1).reshape(count, GRID * GRID, -1)  # (B, 64, 4*C)


def unpatchify(tokens: torch.Tensor) -> torch.Tensor:
    """Turn tokens (B, 64, 64) back into latents (B, 16, 16, 16)."""
    cells = tokens.view(len(tokens), GRID, GRID, PATCH, PATCH, -1)  # (B, 8, 8, 2, 2, C)
    return cells.permute(0, 5, 1, 3, 2, 4).reshape(len(tokens), -1, GRID * PATCH, GRID * PATCH)


def _rms(x: torch.Tensor, norm: Any) -> torch.Tensor:
    """Return the library's RMSNorm of x (..., D), the same shape."""
    return functional.rms_norm(x, (x.shape[-1],), norm.weight, norm.eps)  # (..., D)


def _rotate(x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """Rotate neighbouring pairs of x (B, L, H, 32); turns is (L, 1, 16) complex."""
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))  # (B, L, H, 16)
    return torch.view_as_real(pairs * turns).flatten(-2)  # (B, L, H, 32)


def _attend(
    x: torch.Tensor,
    attn: Any,
    turns: torch.Tensor,
    keep: int | None = None,
) -> torch.Tensor:
    """Return self-attention of x (B, L, D) for its first `keep` tokens, (B, keep, D)."""
    weight = torch.cat((attn.to_q.weight, attn.to_k.weight, attn.to_v.weight))  # (3D, D)
    qkv = functional.linear(x, weight).view(*x.shape[:2], 3, attn.heads, HEAD)  # (B, L, 3, H, 32)
    query, key, value = qkv.unbind(2)  # (B, L, H, 32) each
    query = _rotate(_rms(query, attn.norm_q), turns).transpose(1, 2)  # (B, H, L, 32)
    key = _rotate(_rms(key, attn.norm_k), turns).transpose(1, 2)  # (B, H, L, 32)
    query, value = query[:, :, :keep], value.transpose(1, 2)  # (B, H, keep, 32), (B, H, L, 32)
    mixed = functional.scaled_dot_product_attention(query, key, value)  # (B, H, keep, 32)
    return functional.linear(mixed.transpose(1, 2).flatten(2), attn.to_out[0].weight)  # (B, L, D)


def _feed(x: torch.Tensor, layer: Any) -> torch.Tensor:
    """Return the gated feed-forward of x (B, L, D), the same shape."""
    weight = torch.cat((layer.w1.weight, layer.w3.weight))  # (2F, D)
    gate, value = functional.linear(x, weight).chunk(2, dim=-1)  # (B, L, F) each
    return functional.linear(functional.silu(gate) * value, layer.w2.weight)  # (B, L, D)


def _block(
    x: torch.Tensor,
    block: Any,
    turns: torch.Tensor,
    time: torch.Tensor | None,
    keep: int | None = None,
) -> torch.Tensor:
    """Return one transformer block's output for x (B, L, D).

    :param time: (B, D') embedded time, or None for a block without modulation.
    :param keep: how many leading tokens are wanted, all by default; the result is (B, keep, D).
    """
    if time is None:
        mixed = _attend(_rms(x, block.attention_norm1), block.attention, turns)  # (B, L, D)
        x = x + _rms(mixed, block.attention_norm2)  # (B, L, D)
        return x + _rms(_feed(_rms(x, block.ffn_norm1), block.feed_forward), block.ffn_norm2)
    parts = block.adaLN_modulation(time).unsqueeze(1).chunk(4, dim=2)  # 4 of (B, 1, D)
    scale_a, gate_a = 1.0 + parts[0], parts[1].tanh()  # (B, 1, D) each
    scale_f, gate_f = 1.0 + parts[2], parts[3].tanh()  # (B, 1, D) each
    normed = _rms(x, block.attention_norm1) * scale_a  # (B, L, D)
    mixed = _attend(normed, block.attention, turns, keep)  # (B, keep, D)
    x = x[:, :keep] + gate_a * _rms(mixed, block.attention_norm2)  # (B, keep, D)
    fed = _feed(_rms(x, block.ffn_norm1) * scale_f, block.feed_forward)  # (B, L, D)
    result: torch.Tensor = x + gate_f * _rms(fed, block.ffn_norm2)  # (B, keep, D)
    return result


def rotations(model: ZImageTransformer2DModel) -> torch.Tensor:
    """Return the turns of all 64 image and 32 caption positions, (96, 1, 16) complex."""
    image = model.create_coordinate_grid((1, GRID, GRID), (CAPTION_LENGTH + 1, 0, 0))
    caption = model.create_coordinate_grid((CAPTION_LENGTH, 1, 1), (1, 0, 0))
    ids = torch.cat((image.flatten(0, 2), caption.flatten(0, 2)))  # (96, 3)
    turns: torch.Tensor = model.rope_embedder(ids)  # (96, 16)
    return turns[:, None]  # (96, 1, 16)


def text_states(encoder: Qwen3Model, ids: torch.Tensor) -> torch.Tensor:
    """Return `hidden_states[-2]` of right-padded ids (B, 32) as (B, 32, 128).

    Attention is causal, so padding behind the caption changes none of its states.
    """
    states: torch.Tensor = encoder.embed_tokens(ids)  # (B, 32, 128)
    places = torch.arange(ids.shape[1])[None]  # (1, 32)
    turns = encoder.rotary_emb(states, places)
    for layer in encoder.layers[:-1]:
        states = layer(
            states, attention_mask=None, position_ids=places, position_embeddings=turns
        )  # (B, 32, 128)
    return states


def predict(
    model: ZImageTransformer2DModel,
    turns: torch.Tensor,
    tokens: torch.Tensor,
    time: torch.Tensor,
    states: torch.Tensor,
    mask: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the transformer's raw output for image tokens (B, 64, 64), and inner image tokens.

    The first has the tokens' shape; the second is (B, 64, D), taken before the last two layers.

    :param turns: what `rotations` returned.
    :param time: (B,) 1 - sigma, 0..1.
    :param states: (B, 32, 128) text states.
    :param mask: (B, 32) bool, true for the caption's own tokens.
    """
    count = GRID * GRID
    embedded = model.t_embedder(time * model.t_scale)  # (B, D')
    x = model.all_x_embedder[KEY](tokens)  # (B, 64, D)
    for block in model.noise_refiner:
        x = _block(x, block, turns[:count], embedded)
    norm, linear = model.cap_embedder
    caption = linear(_rms(states, norm))  # (B, 32, D)
    caption = torch.where(mask[..., None], caption, model.cap_pad_token)  # (B, 32, D)
    for block in model.context_refiner:
        caption = _block(caption, block, turns[count:], None)
    x = torch.cat((x, caption), dim=1)  # (B, 96, D)
    for block in model.layers[:-2]:
        x = _block(x, block, turns, embedded)
    inner = x[:, :count]  # (B, 64, D)
    x = _block(x, model.layers[-2], turns, embedded)
    x = _block(x, model.layers[-1], turns, embedded, keep=count)  # (B, 64, D)
    return model.all_final_layer[KEY](x, c=embedded), inner  # (B, 64, 64), (B, 64, D)
