"""Latents of videos, larger: by a network of their own, between two samplings.

Lives on the device's threads; the module with torch code is imported when first needed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from inline_core.errors import InvalidParam
from inline_core.families.autoencoding import Autoencoders
from inline_core.families.leasing import Leasing
from inline_core.families.registry import family_decoding
from inline_core.loading.component import ComponentRef
from inline_core.sampling.family import LatentSpace, SoundtrackSpace
from inline_core.sampling.values import Latent

if TYPE_CHECKING:
    from torch import Tensor

_RUNTIME: Final = "inline_core.families.upscalers.latents"
_BYTES: Final = 4

Check = Callable[[], None]


class LatentUpscalers:
    """Enlarges latents; an upscaler goes where a VAE of its size would."""

    def __init__(self, leasing: Leasing, autoencoders: Autoencoders) -> None:
        self._leasing = leasing
        self._autoencoders = autoencoders

    def upscale(
        self, upscaler: ComponentRef, vae: ComponentRef, latent: Latent, check: Check
    ) -> Latent:
        """The latent of a video, larger in width and height, its sound as it is.

        The network knows latents as the VAE decodes them, so that its statistics go off and on
        again (as in LTX2LatentUpsamplePipeline of diffusers).
        Raises: InvalidParam, ModelFileInvalid/Missing, OutOfMemory, RunCancelled.
        """
        space = _space(vae, latent)
        samples, sound = latent.samples, None
        if isinstance(space, SoundtrackSpace):
            samples, sound = space.split(samples, latent)  # (n, c, t, h, w), (n, c, frames)
        with self._autoencoders.lease(vae, check) as codec:
            raw = codec.raw(samples)  # (n, c, t, h, w)
        weights = self._leasing.opened.open(upscaler).weights
        plan = self._leasing.plan(upscaler, self._leasing.policy.place_vae(weights), check)
        runtime = importlib.import_module(_RUNTIME)
        lease = self._leasing.lease(upscaler, plan, runtime.load_latent_upscaler)
        with lease as loaded, loaded.interruption.asking(check):
            larger = loaded.upscale(raw)  # (n, c, t, H, W)
        with self._autoencoders.lease(vae, check) as codec:
            made: Tensor = codec.normalised(larger).cpu()  # (n, c, t, H, W)
        height, width = (side * space.factor for side in made.shape[-2:])
        if isinstance(space, SoundtrackSpace) and sound is not None:
            made = space.joined(made, sound)  # (n, values)
        return replace(
            latent, width=width, height=height, samples=made, size_bytes=made.numel() * _BYTES
        )


def _space(vae: ComponentRef, latent: Latent) -> LatentSpace:
    """The space of a latent that can be enlarged.  Raises: InvalidParam, ModelFileInvalid."""
    if latent.samples is None:
        message = "an empty latent cannot be enlarged: sample it first"
        raise InvalidParam(message, port="latent")
    space = family_decoding(vae, latent.space).space
    if not space.frame_factor or not latent.normalised:
        message = "only latents of videos can be enlarged by a latent upscaler"
        raise InvalidParam(message, port="latent")
    return space
