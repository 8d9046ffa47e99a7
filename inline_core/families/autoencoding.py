"""Pictures and videos to latents and back: which VAE runtime, where, in tiles or whole.

Lives on the device's threads; the modules with torch code are imported when first needed.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from inline_core.devices.placement import BYTES_PER_VALUE, Dtype
from inline_core.devices.policy import DevicePolicy
from inline_core.errors import NotFinite
from inline_core.families.demand import Opened, OpenedFiles, decoder_channels
from inline_core.families.registry import AUTOENCODERS, family_decoding, space_with
from inline_core.loading.component import ComponentRef
from inline_core.loading.pool import ComponentPool, Lease
from inline_core.loading.stream import LoadPlan
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
        opened: OpenedFiles,
        pool: ComponentPool,
        policy: DevicePolicy,
        learn: Callable[[ComponentRef, Tensor, NDArray[np.uint8]], None],
    ) -> None:
        """`learn` is told each picture with its normalised latents, for previews."""
        self._opened = opened
        self._pool = pool
        self._policy = policy
        self._learn = learn

    def lease(self, vae: ComponentRef, check: Check, dtype: Dtype | None = None) -> Lease[Any]:
        """The leased VAE runtime, in another precision than the policy's if `dtype` says so.

        Raises: ModelFileInvalid, ModelFileMissing, OutOfMemory.
        """
        opened = self._opened.open(vae)
        space = family_decoding(vae, channels=_channels(opened)).space
        placement = self._policy.place_vae(opened.weights)
        if dtype is not None:
            placement = replace(placement, dtype=dtype)
        plan = LoadPlan(opened.files, opened.identity, placement, vae.name, check)
        runtime = importlib.import_module(AUTOENCODERS[vae.family])
        size = self._policy.size_of(placement, opened.weights)
        key = (vae.path, vae.part, vae.stamp, placement.key)
        return self._pool.lease(key, vae.name, size, lambda: runtime.load_vae(plan, space))

    def decode(
        self, vae: ComponentRef, latent: Latent, samples: Tensor, check: Check, *, tiled: bool
    ) -> tuple[NDArray[np.uint8], tuple[str, ...]]:
        """Pixels of one of a latent's `samples` (1, c, ...), and what was special about it.

        (height, width, 3), of a video (frames, height, width, 3).  What would not fit whole is done
        in tiles (`tiled`, which may also be asked for); what gave NaN is done once more in float32
        (`float32`).  Raises: NotFinite, ModelFileInvalid for latents of another space.
        """
        tiled = tiled or self._must_tile(vae, latent.width, latent.height, latent.frames)
        special = ("tiled",) if tiled else ()
        try:
            pixels = self._decode_once(vae, latent, samples, check, tiled=tiled, dtype=None)
        except NotFinite:
            if self._policy.place_vae(self._opened.open(vae).weights).dtype == "float32":
                raise
            pixels = self._decode_once(vae, latent, samples, check, tiled=tiled, dtype="float32")
            special = (*special, "float32")
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
        special = ("tiled",) if tiled else ()
        try:
            sound, rate = self._sound_once(vae, samples, check, tiled=tiled, dtype=None)
        except NotFinite:
            if self._policy.place_vae(self._opened.open(vae).weights).dtype == "float32":
                raise
            sound, rate = self._sound_once(vae, samples, check, tiled=tiled, dtype="float32")
            special = (*special, "float32")
        return sound, rate, special

    def _sound_once(
        self, vae: ComponentRef, samples: Tensor, check: Check, *, tiled: bool, dtype: Dtype | None
    ) -> tuple[NDArray[np.float32], int]:
        with self.lease(vae, check, dtype) as runtime, runtime.interruption.asking(check):
            return runtime.decode_sound(samples, tiled=tiled), runtime.sample_rate_hz

    def _must_tile_sound(self, vae: ComponentRef, frames: int) -> bool:
        opened = self._opened.open(vae)
        each = math.prod(opened.identity.config.get("downsampling_ratios") or (1,))
        return self._is_too_large(
            opened, sound_decode_values(frames * each, decoder_channels(opened))
        )

    def _decode_once(
        self,
        vae: ComponentRef,
        latent: Latent,
        samples: Tensor,
        check: Check,
        *,
        tiled: bool,
        dtype: Dtype | None,
    ) -> NDArray[np.uint8]:
        space = family_decoding(vae, latent.space).space
        with self.lease(vae, check, dtype) as runtime, runtime.interruption.asking(check):
            named = runtime.in_space(space if latent.normalised else None)
            pixels: NDArray[np.uint8] = named.decode(samples, tiled=tiled)
        return pixels

    def encode(
        self, vae: ComponentRef, pixels: NDArray[Any], check: Check, *, tiled: bool
    ) -> EncodedPixels:
        """Latents of a picture (height, width, 3) or of frames (n, height, width, 3).

        uint8, or float32 in 0..1; in tiles when it would not fit whole.
        """
        height, width = pixels.shape[-3:-1]
        frames = pixels.shape[0] if pixels.ndim > _PICTURE else 1
        with self.lease(vae, check) as runtime:
            # An encoder takes less than its decoder, so that one's figure is on the safe side.
            tiled = tiled or self._must_tile(vae, width, height, frames)
            scale = runtime.scale
            named = runtime if scale is not None else runtime.in_space(None)
            with runtime.interruption.asking(check):
                samples = named.encode(pixels, tiled=tiled)
        if scale is None:
            return EncodedPixels(samples, vae.family, normalised=False)
        channels = _channels(self._opened.open(vae))
        return EncodedPixels(samples, space_with(vae, scale, channels), normalised=True)

    def _must_tile(self, vae: ComponentRef, width: int, height: int, frames: int) -> bool:
        opened = self._opened.open(vae)
        values = decode_values(width, height, decoder_channels(opened), frames)
        small = self._policy.profile == "lowvram" and width * height > LOWVRAM_PIXELS
        return small or self._is_too_large(opened, values)

    def _is_too_large(self, opened: Opened, values: int) -> bool:
        """Say whether so many values beside a VAE are more than there is room for."""
        placement = self._policy.place_vae(opened.weights)
        room = self._policy.room(self._pool.held())
        on_host = placement.device == "cpu" or self._policy.machine.kind != "cuda"
        free = room.host_bytes if on_host else room.device_bytes
        return values * BYTES_PER_VALUE[placement.dtype] > free


def _channels(opened: Opened) -> int | None:
    """Latent channels of a VAE's file, which tell kin apart."""
    return opened.identity.geometry.get("latent_channels")
