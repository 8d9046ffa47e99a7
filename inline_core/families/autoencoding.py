"""Pictures and videos to latents and back: which VAE runtime, where, in tiles or whole.

Lives on the device's threads; the modules with torch code are imported when first needed.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from inline_core.devices.placement import Dtype, Placement
from inline_core.errors import ModelFileMissing, NotFinite
from inline_core.families.demand import Opened, decoder_channels
from inline_core.families.leasing import Leasing
from inline_core.families.registry import AUTOENCODERS, family_decoding, space_with
from inline_core.loading.architectures.architecture import ALL_FRAMES
from inline_core.loading.component import ComponentRef, Role
from inline_core.loading.pool import Lease
from inline_core.sampling.family import ModelFamily
from inline_core.sampling.footprint import decode_values, sound_decode_values

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from inline_core.sampling.values import Latent

# With little memory a picture larger than this is decoded in tiles.
LOWVRAM_PIXELS: Final = 768 * 768
_PICTURE: Final = 3  # axes of a picture's array; a video has one more

Check = Callable[[], None]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class EncodedPixels:
    """Latents of a picture or a video, (1, channels, ...) float32 on the CPU; see `Latent`."""

    samples: Tensor
    space: str | None
    normalised: bool


class Autoencoders:
    """Decodes and encodes with leased VAEs."""

    def __init__(
        self,
        leasing: Leasing,
        learn: Callable[[ComponentRef, Tensor, NDArray[np.uint8]], None],
    ) -> None:
        """`learn` is told each picture with its normalised latents, for previews."""
        self._leasing = leasing
        self._learn = learn

    def lease(self, vae: ComponentRef, check: Check, dtype: Dtype | None = None) -> Lease[Any]:
        """The leased VAE runtime, in another precision than the policy's if `dtype` says so.

        Raises: ModelFileInvalid, ModelFileMissing, OutOfMemory.
        """
        opened = self._leasing.opened.open(vae)
        space = family_decoding(vae, channels=_channels(opened)).space
        placement = self._placement(vae)
        if dtype is not None:
            placement = replace(placement, dtype=dtype)
        plan = self._leasing.plan(vae, placement, check)
        runtime = importlib.import_module(AUTOENCODERS[vae.family])
        return self._leasing.lease(vae, plan, lambda plan: runtime.load_vae(plan, space))

    def decode(
        self, vae: ComponentRef, latent: Latent, samples: Tensor, check: Check, *, tiled: bool
    ) -> tuple[NDArray[np.uint8], tuple[str, ...]]:
        """Pixels of one of a latent's `samples` (1, c, ...), and what was special about it.

        (height, width, 3), of a video (frames, height, width, 3).  A video decoder that the
        family has instead of the VAE's own decodes in its place.  What would not fit whole is done
        in tiles (`tiled`, which may also be asked for); what gave NaN is done once more in float32
        (`float32`).  Raises: NotFinite, ModelFileInvalid for latents of another space,
        ModelFileMissing without that video decoder.
        """
        family = family_decoding(vae, latent.space)
        space, vae = family.space, _decoder_of(vae, family)
        tiled = tiled or self._must_tile(vae, latent.width, latent.height, latent.frames)

        def decode(runtime: Any) -> NDArray[np.uint8]:
            named = runtime.in_space(space if latent.normalised else None)
            pixels: NDArray[np.uint8] = named.decode(samples, tiled=tiled)
            return pixels

        pixels, special = self._decoded(vae, check, decode, tiled=tiled)
        if pixels.ndim == _PICTURE and latent.normalised:
            self._learn(vae, samples, pixels)
        return pixels, special

    def decode_sound(
        self, vae: ComponentRef, latent: Latent, samples: Tensor, check: Check, *, tiled: bool
    ) -> tuple[NDArray[np.float32], int, tuple[str, ...]]:
        """Samples (channels, n) of one of a latent's `samples` (1, c, frames), and their rate.

        In tiles or in float32 as `decode` does; what was special stands last.
        Raises: NotFinite, ModelFileInvalid for latents of another space.
        """
        tiled = tiled or self._must_tile_sound(vae, latent.frames)

        def decode(runtime: Any) -> tuple[NDArray[np.float32], int]:
            return runtime.decode_sound(samples, tiled=tiled), runtime.sample_rate_hz

        (sound, rate), special = self._decoded(vae, check, decode, tiled=tiled)
        return sound, rate, special

    def _decoded(
        self, vae: ComponentRef, check: Check, decode: Callable[[Any], T], *, tiled: bool
    ) -> tuple[T, tuple[str, ...]]:
        """What `decode` makes with the leased VAE; what gave NaN is done once more in float32."""
        special = ("tiled",) if tiled else ()
        try:
            return self._once(vae, check, decode, None), special
        except NotFinite:
            if self._placement(vae).dtype == "float32":
                raise
        return self._once(vae, check, decode, "float32"), (*special, "float32")

    def _placement(self, vae: ComponentRef) -> Placement:
        return self._leasing.policy.place_vae(self._leasing.opened.open(vae).weights)

    def _once(
        self, vae: ComponentRef, check: Check, decode: Callable[[Any], T], dtype: Dtype | None
    ) -> T:
        with self.lease(vae, check, dtype) as runtime, runtime.interruption.asking(check):
            return decode(runtime)

    def _must_tile_sound(self, vae: ComponentRef, frames: int) -> bool:
        opened = self._leasing.opened.open(vae)
        each = math.prod(opened.identity.config.get("downsampling_ratios") or (1,))
        values = sound_decode_values(frames * each, decoder_channels(opened))
        return self._leasing.lacks_room(self._placement(vae), values)

    def encode(
        self, vae: ComponentRef, pixels: NDArray[Any], check: Check, *, tiled: bool
    ) -> EncodedPixels:
        """Latents of a picture (height, width, 3) or of frames (n, height, width, 3).

        uint8, or float32 in 0..1; in tiles when it would not fit whole.  A fourth channel, alpha,
        is for VAEs whose runtime `knows_alpha`.
        """
        height, width = pixels.shape[-3:-1]
        frames = pixels.shape[0] if pixels.ndim > _PICTURE else 1
        with self.lease(vae, check) as runtime:
            # An encoder takes less than its decoder, so that one's figure is on the safe side.
            tiled = tiled or self._must_tile(vae, width, height, frames)
            scale = runtime.scale
            if not getattr(runtime, "knows_alpha", False):
                pixels = pixels[..., :_PICTURE]
            named = runtime if scale is not None else runtime.in_space(None)
            with runtime.interruption.asking(check):
                samples = named.encode(pixels, tiled=tiled)
        if scale is None:
            return EncodedPixels(samples, vae.family, normalised=False)
        channels = _channels(self._leasing.opened.open(vae))
        return EncodedPixels(samples, space_with(vae, scale, channels), normalised=True)

    def _must_tile(self, vae: ComponentRef, width: int, height: int, frames: int) -> bool:
        opened = self._leasing.opened.open(vae)
        channels, whole = decoder_channels(opened), opened.identity.geometry.get(ALL_FRAMES, 0)
        values = decode_values(width, height, channels, frames, all_at_once=bool(whole))
        small = self._leasing.policy.profile == "lowvram" and width * height > LOWVRAM_PIXELS
        return small or self._leasing.lacks_room(self._placement(vae), values)


def _decoder_of(vae: ComponentRef, family: ModelFamily) -> ComponentRef:
    """What decodes latents of a family: the VAE, or the video decoder that goes along with it."""
    role = Role.VIDEO_DECODER
    if role not in family.rules.parts:
        return vae
    found = next((part for part in vae.others if part.role is role), None)
    if found is None:
        message = (
            f"{vae.name} comes without the video decoder of {family.rules.label} here: put it into "
            "models/vae"
        )
        raise ModelFileMissing(message)
    return found


def _channels(opened: Opened) -> int | None:
    """Latent channels of a VAE's file, which tell kin apart."""
    return opened.identity.geometry.get("latent_channels")
