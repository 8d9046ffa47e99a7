"""SigLIP's vision tower, as the image to video models of HunyuanVideo 1.5 are told their picture.

Imports torch and transformers, so it is imported on the device thread only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from transformers import SiglipImageProcessorPil, SiglipVisionConfig, SiglipVisionModel

from inline_core.families.text_encoders.loaded import load_encoder
from inline_core.loading.interruption import Interruption
from inline_core.loading.stream import LoadPlan, TensorSource

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.media.values import Image

# By what the shapes tell: patches of 14 do not divide the 384 pixels of the published model.
_SIZES: Final = MappingProxyType({378: 384})


@dataclass(frozen=True, slots=True, eq=False)
class SiglipTower:
    """A loaded tower.  Device thread only."""

    model: Any
    device: str
    interruption: Interruption

    def states(self, pictures: Sequence[Image]) -> Tensor:
        """The last states, (pictures * places, width), picture after picture.

        Pictures are scaled to a square and normalised as SigLIP was trained.
        """
        size = self.model.config.image_size
        processor = SiglipImageProcessorPil(size={"height": size, "width": size})
        shown = processor(
            images=[image.pixels[:, :, :3] for image in pictures], return_tensors="pt"
        )
        pixels = shown["pixel_values"].to(self.device, self.model.dtype)  # (pictures, 3, h, w)
        states: Tensor = self.model(pixel_values=pixels).last_hidden_state.flatten(0, 1)
        return states


def load_vision(plan: LoadPlan) -> SiglipTower:
    """The tower, ready to look; its pooling head is left out.

    Raises: ModelFileInvalid, RunCancelled.
    """
    told = plan.files.config
    config = dict(plan.identity.config)
    config["image_size"] = _SIZES.get(config["image_size"], config["image_size"])
    if told.get("model_type") == "siglip_vision_model":
        config = dict(told)
    config["vision_use_head"] = False
    prefix = plan.identity.prefix
    sources: dict[str, TensorSource] = {}
    others = []
    for name in plan.logical.tensors:
        bare = name.removeprefix(prefix).removeprefix("vision_model.")
        if bare.startswith("head.") or bare == "embeddings.position_ids":
            others.append(name)
        else:
            sources[bare] = TensorSource(name)
    loaded = load_encoder(
        plan,
        None,
        lambda: SiglipVisionModel(SiglipVisionConfig(**config)),
        lambda model: model.encoder.layers,
        sources=sources,
        ignorable=others,
    )
    return SiglipTower(loaded.model, loaded.device, loaded.interruption)
