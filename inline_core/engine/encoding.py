"""From pictures to latents: one by one, in a batch, or as the frames of a video.

Never imports numpy itself: a server without the libraries of the runtime starts too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from inline_core.engine.decoding import OnDevice
from inline_core.errors import InvalidParam
from inline_core.families.registry import family_decoding
from inline_core.loading.catalog import Catalog
from inline_core.loading.component import ComponentRef
from inline_core.media.values import Image
from inline_core.nodes.base import NodeContext
from inline_core.sampling.family import LatentSpace
from inline_core.sampling.values import Latent

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_PICTURE: Final = 3  # axes of a picture's array; a video has one more
_BYTES: Final = 4


class Encoder:
    """Encodes for nodes; any thread.  `ready` gives the `ModuleSource`, made when first needed."""

    def __init__(self, ready: Callable[[], Any], on_device: OnDevice, catalog: Catalog) -> None:
        self._ready = ready
        self._on_device = on_device
        self._catalog = catalog

    def pixels(self, vae: ComponentRef, pixels: NDArray[Any], ctx: NodeContext) -> Latent:
        """Turn (height, width, 3) or frames (n, height, width, 3) into latents.

        uint8, or float32 in 0..1.  An alpha counts for VAEs that know one, and is left out else.
        Raises: InvalidParam for a size that is no multiple of the VAE's factor,
        ModelFileInvalid/Missing, OutOfMemory.
        """
        modules = self._ready()
        space = self._space(vae)
        height, width = pixels.shape[-3:-1]
        if width % space.factor or height % space.factor:
            message = (
                f"the picture is {width}x{height}: width and height must be multiples of "
                f"{space.factor}"
            )
            raise InvalidParam(message, port="image")
        ctx.progress("encode", 0.05, "Encoding image")
        work = functools.partial(modules.autoencoders.encode, vae, pixels)
        found = self._on_device(
            functools.partial(work, tiled=False), ctx, again=functools.partial(work, tiled=True)
        )  # its samples (1, c, h, w)
        return Latent(
            width,
            height,
            1,
            frames=pixels.shape[0] if pixels.ndim > _PICTURE else 1,
            samples=found.samples,
            space=found.space,
            normalised=found.normalised,
            size_bytes=found.samples.numel() * _BYTES,
            provenance={"vae": modules.named(vae)},
        )

    def all(self, vae: ComponentRef, images: Sequence[Image], ctx: NodeContext) -> Latent:
        """Turn pictures into a batch of latents, or, with a VAE of videos, into one video.

        Sides are cut around the middle to a multiple of the VAE's factor, frames that make no whole
        latent frame at the end.  Raises: as `pixels`.
        """
        self._ready()
        import numpy as np

        space = self._space(vae)
        cut = [_cut(image, space.factor) for image in images]
        sizes = dict.fromkeys(picture.shape[:2] for picture in cut)
        if len(sizes) > 1:
            shown = ", ".join(f"{shape[1]}x{shape[0]}" for shape in sizes)
            message = f"the pictures have different sizes ({shown}): bring them to one before"
            raise InvalidParam(message, port="image")
        if len(cut) == 1:
            return self.pixels(vae, cut[0], ctx)
        if space.frame_factor:
            count = (len(cut) - 1) // space.frame_factor * space.frame_factor + 1
            frames = np.stack([picture[..., :_PICTURE] for picture in cut[:count]])
            return self.pixels(vae, frames, ctx)
        latents = [self.pixels(vae, picture, ctx) for picture in cut]
        joined = self.on_latents("joined", ctx, [latent.samples for latent in latents])
        size = joined.numel() * _BYTES
        return replace(latents[0], batch=len(latents), samples=joined, size_bytes=size)

    def on_latents(self, change: str, ctx: NodeContext, *values: Any) -> Any:
        """Run a function of `sampling.latent_tensors`, by name, on the device's thread."""
        self._ready()

        def work(_: Callable[[], None]) -> Any:
            from inline_core.sampling import latent_tensors

            return getattr(latent_tensors, change)(*values)

        return self._on_device(work, ctx, again=None)

    def _space(self, vae: ComponentRef) -> LatentSpace:
        channels = self._catalog.identity(vae).geometry.get("latent_channels")
        return family_decoding(vae, channels=channels).space


def _cut(image: Image, factor: int) -> NDArray[np.uint8]:
    """The pixels (height, width, 3 or 4) around the middle, sides multiples of `factor`.

    Raises: InvalidParam for a picture that is smaller.
    """
    width, height = image.width // factor * factor, image.height // factor * factor
    if not width or not height:
        message = (
            f"the picture is {image.width}x{image.height}: it must be {factor}x{factor} or more"
        )
        raise InvalidParam(message, port="image")
    left, top = (image.width - width) // 2, (image.height - height) // 2
    cut = image.pixels[top : top + height, left : left + width]
    return cut.copy()
