"""Qwen2.5-VL as a text encoder that can look at pictures.

Imports torch and transformers, so it is imported on the device thread only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import torch
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLModel, Qwen2VLImageProcessorPil

from inline_core.families.text_encoders.loaded import (
    TextEncoder,
    load_with_tower,
    told_config,
)
from inline_core.families.text_encoders.qwen3 import load_tokenizer
from inline_core.loading.stream import LoadPlan

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.media.values import Image

__all__ = [
    "load_text_encoder",
    "load_tokenizer",
    "states_of",
    "states_of_tokens",
    "with_pictures",
]

# In no shape; from the published config of the 7B model.
_ROPE: Final = {"rope_type": "default", "rope_theta": 1_000_000.0}
_SECTIONS: Final = (16, 24, 24)  # of a head of 128: half of it, for time, height and width
_EPS: Final = 1e-6
_PAD: Final = "<|image_pad|>"
# Of the published preprocessor_config.json.
_PIXELS: Final = {"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 16384}


def load_text_encoder(plan: LoadPlan, tokenizer: Any) -> TextEncoder:
    """The model with its tower and its tokenizer.  Raises: ModelFileInvalid, RunCancelled."""
    config = vision_language_config(plan, tokenizer)
    return load_with_tower(plan, tokenizer, lambda: Qwen2_5_VLModel(config), "Qwen2.5-VL")


def vision_language_config(plan: LoadPlan, tokenizer: Any) -> Qwen2_5_VLConfig:
    """The config from shapes; what a config.json beside the file says wins."""
    told = told_config(plan, "qwen2_5_vl")
    if told is not None:
        config = Qwen2_5_VLConfig.from_dict(dict(told))
    else:
        text = dict(plan.identity.config["text_config"])
        half = text["hidden_size"] // text["num_attention_heads"] // 2
        side = half * _SECTIONS[1] // sum(_SECTIONS)
        rope = {**_ROPE, "mrope_section": [half - 2 * side, side, side]}
        text |= {"rope_parameters": rope, "rms_norm_eps": _EPS}
        config = Qwen2_5_VLConfig(
            text_config=text, vision_config=dict(plan.identity.config["vision_config"])
        )
    config.image_token_id = tokenizer.convert_tokens_to_ids(_PAD)
    return config


def states_of(
    encoder: TextEncoder, text: str, pictures: Sequence[Image], most: int | None
) -> tuple[Tensor, int]:
    """The last layer's states (tokens, width) of a text, and how many of its tokens were cut.

    Each `<|image_pad|>` in the text is the place of one picture, which gets as many tokens as it
    has patches.  Their positions are those that the model was trained with (time, row, column);
    the pipelines of diffusers leave them out with transformers 5, which shifts what is seen.
    """
    ids, inputs = with_pictures(encoder, encoder.tokenizer(text).input_ids, pictures)
    cut = 0 if most is None else max(len(ids) - most, 0)
    return states_of_tokens(encoder, ids[:most], inputs), cut


def with_pictures(
    encoder: TextEncoder, ids: Sequence[int], pictures: Sequence[Image]
) -> tuple[list[int], dict[str, Any]]:
    """Token ids with as many places as each picture has patches, and the tower's inputs."""
    if not pictures:
        return list(ids), {}
    pad = encoder.model.config.image_token_id
    vision = encoder.model.config.vision_config
    processor = Qwen2VLImageProcessorPil(
        size=_PIXELS,
        patch_size=vision.patch_size,
        temporal_patch_size=vision.temporal_patch_size,
        merge_size=vision.spatial_merge_size,
    )
    shown = processor(images=[image.pixels[:, :, :3] for image in pictures], return_tensors="pt")
    grids = shown["image_grid_thw"]  # (pictures, 3)
    counts = iter((grids.prod(-1) // vision.spatial_merge_size**2).tolist())
    placed = [one for token in ids for one in ([pad] * next(counts) if token == pad else [token])]
    return placed, {
        "pixel_values": shown["pixel_values"].to(encoder.device, encoder.model.dtype),
        "image_grid_thw": grids.to(encoder.device),
    }


def states_of_tokens(
    encoder: TextEncoder,
    ids: Sequence[int],
    inputs: Mapping[str, Any],
    mask: Sequence[bool] | None = None,
) -> Tensor:
    """The last layer's states (tokens, width); `inputs` are those of pictures (`with_pictures`).

    `mask` is False for tokens that the others do not see (None: they see all).
    """
    tokens = torch.tensor([list(ids)], device=encoder.device)  # (1, tokens)
    seen = torch.ones_like(tokens)  # (1, tokens)
    if mask is not None:
        seen = torch.tensor([list(mask)], device=encoder.device).int()
    more = dict(inputs)
    if more:
        pad = encoder.model.config.image_token_id
        more["mm_token_type_ids"] = (tokens == pad).int()  # (1, tokens)
    output = encoder.model(input_ids=tokens, attention_mask=seen, use_cache=False, **more)
    # What is kept from an earlier picture would shift the next prompt.
    encoder.model.rope_deltas = None
    states: Tensor = output.last_hidden_state[0]  # (tokens, width)
    return states
