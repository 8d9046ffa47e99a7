"""SigLIP's vision tower, as the image to video models of HunyuanVideo 1.5 are told their picture.

Imports torch and transformers, so it is imported on the device thread only.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from transformers import SiglipImageProcessorPil, SiglipVisionConfig, SiglipVisionModel

from inline_core.families.vision_encoders.towers import VisionTower, load_tower
from inline_core.loading.stream import LoadPlan

# By what the shapes tell: patches of 14 do not divide the 384 pixels of the published model.
_SIZES: Final = MappingProxyType({378: 384})
_LAYER: Final = -1


def load_vision(plan: LoadPlan) -> VisionTower:
    """The tower, ready to look, without its pooling head; pictures are scaled to a square.

    Raises: ModelFileInvalid, RunCancelled.
    """
    told = plan.files.config
    config = dict(plan.identity.config)
    config["image_size"] = _SIZES.get(config["image_size"], config["image_size"])
    if told.get("model_type") == "siglip_vision_model":
        config = dict(told)
    config["vision_use_head"] = False
    return load_tower(
        plan,
        lambda: SiglipVisionModel(SiglipVisionConfig(**config)),
        lambda side: SiglipImageProcessorPil(size={"height": side, "width": side}),
        _LAYER,
        ("head.",),
    )
