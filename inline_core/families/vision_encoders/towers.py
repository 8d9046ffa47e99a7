"""What vision towers share: how one is built from shapes, and how it is shown pictures.

Imports torch and transformers, so it is imported on the device thread only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from inline_core.families.text_encoders.loaded import load_encoder
from inline_core.loading.interruption import Interruption
from inline_core.loading.stream import LoadPlan, TensorSource

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.media.values import Image


@dataclass(frozen=True, slots=True, eq=False)
class VisionTower:
    """A loaded tower.  Device thread only.

    `processor` scales and normalises pictures as it was trained; of its states those of `layer`
    are taken, counted from the end (-1: the last ones, with what comes behind all layers).
    """

    model: Any
    processor: Any
    layer: int
    device: str
    interruption: Interruption

    def states(self, pictures: Sequence[Image]) -> Tensor:
        """What it sees, (pictures * places, width), picture after picture."""
        shown = self.processor(
            images=[image.pixels[:, :, :3] for image in pictures], return_tensors="pt"
        )
        pixels = shown["pixel_values"].to(self.device, self.model.dtype)  # (pictures, 3, h, w)
        if self.layer == -1:
            states: Tensor = self.model(pixel_values=pixels).last_hidden_state
        else:
            output = self.model(pixel_values=pixels, output_hidden_states=True)
            states = output.hidden_states[self.layer]
        return states.flatten(0, 1)  # (pictures * places, width)


def load_tower(
    plan: LoadPlan,
    build: Callable[[], Any],
    processor: Callable[[int], Any],
    layer: int,
    left_out: tuple[str, ...],
) -> VisionTower:
    """A tower, ready to look.

    `processor` is made for a side in pixels; names that begin with one of `left_out` (behind the
    prefix) stay on the disk.  Raises: ModelFileInvalid, RunCancelled.
    """
    sources: dict[str, TensorSource] = {}
    others = []
    for name in plan.logical.tensors:
        bare = name.removeprefix(plan.identity.prefix).removeprefix("vision_model.")
        if bare.startswith(("embeddings.position_ids", *left_out)):
            others.append(name)
        else:
            sources[bare] = TensorSource(name)
    loaded = load_encoder(
        plan, None, build, lambda model: model.encoder.layers, sources=sources, ignorable=others
    )
    shown = processor(loaded.model.config.image_size)
    return VisionTower(loaded.model, shown, layer, loaded.device, loaded.interruption)
