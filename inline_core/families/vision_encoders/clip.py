"""CLIP's vision tower, as the image to video models of Wan 2.1 are told their pictures.

Imports torch and transformers, so it is imported on the device thread only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transformers import CLIPImageProcessorPil, CLIPVisionConfig, CLIPVisionModel

from inline_core.families.text_encoders.loaded import load_encoder
from inline_core.loading.interruption import Interruption
from inline_core.loading.stream import LoadPlan, TensorSource

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.media.values import Image


@dataclass(frozen=True, slots=True, eq=False)
class VisionEncoder:
    """A loaded tower.  Device thread only."""

    model: Any
    device: str
    interruption: Interruption

    def states(self, pictures: Sequence[Image]) -> Tensor:
        """States before the last layer, (pictures * places, width), picture after picture.

        Pictures are scaled, cut and normalised as CLIP was trained.
        """
        size = self.model.config.image_size
        processor = CLIPImageProcessorPil(
            size={"shortest_edge": size}, crop_size={"height": size, "width": size}
        )
        shown = processor(
            images=[image.pixels[:, :, :3] for image in pictures], return_tensors="pt"
        )
        pixels = shown["pixel_values"].to(self.device, self.model.dtype)  # (pictures, 3, h, w)
        output = self.model(pixel_values=pixels, output_hidden_states=True)
        states: Tensor = output.hidden_states[-2].flatten(0, 1)
        return states


def load_vision(plan: LoadPlan) -> VisionEncoder:
    """The tower, ready to look.  Raises: ModelFileInvalid, RunCancelled."""
    told = plan.files.config
    config = dict(told) if told.get("model_type") == "clip_vision_model" else plan.identity.config
    prefix = plan.identity.prefix
    sources: dict[str, TensorSource] = {}
    others = []
    for name in plan.logical.tensors:
        bare = name.removeprefix(prefix).removeprefix("vision_model.")
        if bare == "embeddings.position_ids" or name.endswith("visual_projection.weight"):
            others.append(name)
        else:
            sources[bare] = TensorSource(name)
    loaded = load_encoder(
        plan,
        None,
        lambda: CLIPVisionModel(CLIPVisionConfig(**config)),
        lambda model: model.encoder.layers,
        sources=sources,
        ignorable=others,
    )
    return VisionEncoder(loaded.model, loaded.device, loaded.interruption)
