"""Batches of pictures: join, repeat, reverse."""

from __future__ import annotations

from typing import Annotated

from inline_core.errors import InvalidParam
from inline_core.graph.ports import PortKind
from inline_core.media.values import Image, ImageBatch
from inline_core.nodes.base import NodeContext, Param, Port, node
from inline_core.nodes.image_size import Fit, Method
from inline_core.nodes.pixels.batches import as_batch, changed, pictures_of
from inline_core.nodes.pixels.sizes import fitted

MAX_PICTURES = 4096


@node(
    "image/join",
    title="Join Images",
    category="Image",
    icon="list",
    outputs=[Port(PortKind.IMAGE)],
    output_kind="image",
)
def join(
    ctx: NodeContext,
    images: Annotated[list[Image], Port(PortKind.IMAGES)],
    *,
    resize: Annotated[bool, Param(label="Resize to the first")] = False,
    fit: Fit = "crop",
    method: Method = "bilinear",
) -> Image | ImageBatch:
    """Make one batch of all wired pictures and batches, in order.

    They must be of one size; with `resize` the others are brought to the size of the first.
    Raises: InvalidParam naming the sizes.
    """
    _check_count(len(images), "images")
    size = (images[0].width, images[0].height)
    joined = [images[0]]
    for number, image in enumerate(images[1:], 2):
        ctx.check_cancelled()
        own = (image.width, image.height)
        if own != size and not resize:
            message = (
                f"picture {number} is {own[0]}x{own[1]}, the first is {size[0]}x{size[1]}: resize "
                "it before, or turn on resize"
            )
            raise InvalidParam(message, port="images")
        pixels = fitted(image.pixels, size, _ONE_SIZE.get(fit, fit), method, (0, 0, 0, 255))
        joined.append(image if own == size else changed(image, pixels))
    return as_batch(joined)


# Pictures that only fit inside would differ in size again.
_ONE_SIZE = {"inside": "pad"}


@node(
    "image/repeat",
    title="Repeat Images",
    category="Image",
    icon="list",
    outputs=[Port(PortKind.IMAGE)],
    output_kind="image",
    selects=True,
)
def repeat(
    image: Image | ImageBatch,
    *,
    amount: Annotated[int, Param(min=1, max=MAX_PICTURES, step=1)] = 2,
) -> Image | ImageBatch:
    """Give a picture, or a whole batch, several times in a row.

    Raises: InvalidParam for more than 4096 pictures.
    """
    pictures = pictures_of(image)
    _check_count(len(pictures) * amount, "amount")
    return as_batch(pictures * amount)


@node(
    "image/reverse",
    title="Reverse Images",
    category="Image",
    icon="list",
    outputs=[Port(PortKind.IMAGE)],
    output_kind="image",
    selects=True,
)
def reverse(image: Image | ImageBatch) -> Image | ImageBatch:
    """Give a batch from its last picture to its first."""
    return as_batch(reversed(pictures_of(image)))


def _check_count(count: int, place: str) -> None:
    if count > MAX_PICTURES:
        message = f"{count} pictures are too many for a batch: at most {MAX_PICTURES}"
        raise InvalidParam(message, param=place)
