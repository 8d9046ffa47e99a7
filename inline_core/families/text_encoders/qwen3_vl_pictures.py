"""Qwen3-VL with its vision tower, for families that show it pictures beside the words.

Imports torch and transformers, so it is imported on the device thread only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from transformers import Qwen2VLImageProcessorPil, Qwen3VLConfig, Qwen3VLModel

from inline_core.families.text_encoders.loaded import TextEncoder, load_with_tower, told_config
from inline_core.families.text_encoders.qwen3 import load_tokenizer
from inline_core.families.text_encoders.qwen3_vl import text_config
from inline_core.loading.stream import LoadPlan

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["PAD", "PUBLISHED_PIXELS", "load_text_encoder", "load_tokenizer", "with_pictures"]

PAD: Final = "<|image_pad|>"
# Of the published preprocessor_config.json.
PUBLISHED_PIXELS: Final = MappingProxyType({"shortest_edge": 65536, "longest_edge": 16777216})
_HALF: Final = [0.5, 0.5, 0.5]


def load_text_encoder(plan: LoadPlan, tokenizer: Any) -> TextEncoder:
    """The model with its tower and its tokenizer.  Raises: ModelFileInvalid, RunCancelled."""
    config = _config(plan, tokenizer)
    return load_with_tower(plan, tokenizer, lambda: Qwen3VLModel(config), "Qwen3-VL")


def _config(plan: LoadPlan, tokenizer: Any) -> Qwen3VLConfig:
    """The config from shapes; what a config.json beside the file says wins."""
    told = told_config(plan, "qwen3_vl")
    if told is not None:
        config = Qwen3VLConfig.from_dict(dict(told))
    else:
        config = Qwen3VLConfig(
            text_config=text_config(plan).to_dict(),
            vision_config=dict(plan.identity.config["vision_config"]),
        )
    config.image_token_id = tokenizer.convert_tokens_to_ids(PAD)
    return config


def with_pictures(
    encoder: TextEncoder,
    ids: Sequence[int],
    pictures: Sequence[NDArray[np.uint8]],
    pixels: Mapping[str, int] = PUBLISHED_PIXELS,
) -> tuple[list[int], dict[str, Any]]:
    """Token ids with as many places as each picture has patches, and the tower's inputs.

    `pixels` are the fewest and the most that a picture is scaled to.
    """
    if not pictures:
        return list(ids), {}
    vision = encoder.model.config.vision_config
    processor = Qwen2VLImageProcessorPil(
        size=dict(pixels),
        patch_size=vision.patch_size,
        temporal_patch_size=vision.temporal_patch_size,
        merge_size=vision.spatial_merge_size,
        image_mean=_HALF,
        image_std=_HALF,
    )
    shown = processor(images=list(pictures), return_tensors="pt")
    grids = shown["image_grid_thw"]  # (pictures, 3)
    counts = iter((grids.prod(-1) // vision.spatial_merge_size**2).tolist())
    pad = encoder.model.config.image_token_id
    placed = [one for token in ids for one in ([pad] * next(counts) if token == pad else [token])]
    return placed, {
        "pixel_values": shown["pixel_values"].to(encoder.device, encoder.model.dtype),
        "image_grid_thw": grids.to(encoder.device),
    }
