"""One picture or several: apply the same to each, and bring two batches together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from inline_core.errors import InvalidParam
from inline_core.media.values import Image, ImageBatch
from inline_core.nodes.base import NodeContext
from inline_core.nodes.pixels.resample import Pixels

Pictures = Image | ImageBatch


def pictures_of(image: Pictures) -> tuple[Image, ...]:
    """All pictures, in order."""
    return image.images if isinstance(image, ImageBatch) else (image,)


def as_batch(images: Iterable[Image]) -> Pictures:
    """One picture as itself, several as a batch."""
    images = tuple(images)
    return images[0] if len(images) == 1 else ImageBatch(images)


def changed(image: Image, pixels: Pixels) -> Image:
    """Other pixels with the provenance of a picture."""
    return Image(pixels, dict(image.provenance))


def each(ctx: NodeContext, image: Pictures, change: Callable[[Pixels], Pixels]) -> Pictures:
    """Every picture with its pixels changed; what made it is kept.  Raises: RunCancelled."""
    results = []
    for one in pictures_of(image):
        ctx.check_cancelled()
        results.append(changed(one, change(one.pixels)))
    return as_batch(results)


def paired(
    ctx: NodeContext, first: Pictures, second: Pictures, port: str
) -> Iterator[tuple[Image, Image]]:
    """Pictures of two batches of one length; a single picture goes with each of the other side.

    Raises: InvalidParam naming `port`, the one of `second`; RunCancelled.
    """
    ours, theirs = pictures_of(first), pictures_of(second)
    count = max(len(ours), len(theirs))
    if {len(ours), len(theirs)} - {1, count}:
        message = (
            f"{len(theirs)} pictures do not go with {len(ours)}: wire as many, or a single one"
        )
        raise InvalidParam(message, port=port)
    for index in range(count):
        ctx.check_cancelled()
        yield ours[index if len(ours) > 1 else 0], theirs[index if len(theirs) > 1 else 0]


def one_size(image: Pictures, port: str) -> tuple[int, int]:
    """Width and height that all pictures share.  Raises: InvalidParam naming two sizes."""
    sizes = [(one.width, one.height) for one in pictures_of(image)]
    other = next((size for size in sizes if size != sizes[0]), None)
    if other is not None:
        (width, height), (odd_width, odd_height) = sizes[0], other
        message = (
            f"the pictures differ in size ({width}x{height} and {odd_width}x{odd_height}): "
            "resize them to one size first"
        )
        raise InvalidParam(message, port=port)
    return sizes[0]
