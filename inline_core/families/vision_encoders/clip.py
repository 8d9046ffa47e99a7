"""CLIP's vision tower, as the image to video models of Wan 2.1 are told their pictures.

Imports torch and transformers, so it is imported on the device thread only.
"""

from __future__ import annotations

from typing import Final

from transformers import CLIPImageProcessorPil, CLIPVisionConfig, CLIPVisionModel

from inline_core.families.vision_encoders.towers import VisionTower, load_tower
from inline_core.loading.stream import LoadPlan

_LAYER: Final = -2  # the states before the last layer


def load_vision(plan: LoadPlan) -> VisionTower:
    """The tower, ready to look; pictures are scaled and cut.

    Raises: ModelFileInvalid, RunCancelled.
    """
    told = plan.files.config
    config = dict(told) if told.get("model_type") == "clip_vision_model" else plan.identity.config
    return load_tower(
        plan,
        lambda: CLIPVisionModel(CLIPVisionConfig(**config)),
        lambda side: CLIPImageProcessorPil(
            size={"shortest_edge": side}, crop_size={"height": side, "width": side}
        ),
        _LAYER,
        ("visual_projection.",),
    )
