"""Pictures to pictures."""

from __future__ import annotations

from typing import Annotated

from inline_core.errors import InvalidParam
from inline_core.graph.ports import PortKind
from inline_core.media.values import Image, ImageBatch
from inline_core.nodes.base import Param, Port, node


@node(
    "image/from-batch",
    title="Pick from Batch",
    category="Image",
    icon="image",
    outputs=[Port(PortKind.IMAGE)],
    output_kind="image",
    selects=True,
)
def from_batch(
    image: Image | ImageBatch,
    *,
    index: Annotated[int, Param(min=-16384, max=16384, step=1)] = 0,
    length: Annotated[int, Param(min=1, max=4096, step=1)] = 1,
    clip: Annotated[bool, Param(label="Take what there is", advanced=True)] = False,
) -> Image | ImageBatch:
    """Take `length` pictures of a batch, from number `index` on (0 is the first, -1 the last).

    The others are no takes, unless something else uses them.  With `clip` a number behind the last
    is the last one, and fewer are taken where there are fewer.
    Raises: InvalidParam if the batch is shorter.
    """
    images = image.images if isinstance(image, ImageBatch) else (image,)
    first = index + len(images) if index < 0 else index
    if clip:
        first = min(max(first, 0), len(images) - 1)
        length = min(length, len(images) - first)
    if first < 0 or first + length > len(images):
        message = (
            f"the batch has {len(images)} pictures; {length} from number {index} on "
            "are not there (the first is number 0)"
        )
        raise InvalidParam(message, param="index")
    picked = images[first : first + length]
    return picked[0] if length == 1 else ImageBatch(picked)
