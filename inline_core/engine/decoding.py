"""From latents to pictures, videos and sounds, one by one, with their provenance."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from inline_core.errors import InvalidParam
from inline_core.families.registry import family_decoding
from inline_core.loading.component import ComponentRef
from inline_core.media.values import Clip, Image, Waveform
from inline_core.nodes.base import NodeContext
from inline_core.sampling.family import SoundtrackSpace
from inline_core.sampling.values import Latent

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T")
Check = Callable[[], None]

DECODE_AT: Final = 0.95
USUAL_FPS: Final = 24.0
_PICTURE: Final = 3  # axes of a picture's array; a video has one more


class OnDevice(Protocol):
    """Runs work on the device's thread while its caller waits; `again` after memory ran out."""

    def __call__(
        self, work: Callable[[Check], T], ctx: NodeContext, again: Callable[[Check], T] | None
    ) -> T:
        """What the work gave.  Raises: RunCancelled, OutOfMemory, whatever the work raises."""


class Decoder:
    """Decodes for nodes; any thread.  `ready` gives the `ModuleSource`, made when first needed."""

    def __init__(self, ready: Callable[[], Any], on_device: OnDevice) -> None:
        self._ready = ready
        self._on_device = on_device

    def pictures(self, vae: ComponentRef, latent: Latent, ctx: NodeContext) -> tuple[Image, ...]:
        """Turn latents into pictures.

        Raises: InvalidParam for an empty latent, ModelFileInvalid/Missing, NotFinite, OutOfMemory.
        """
        modules = self._start(vae, latent, ctx, sound=False)
        if latent.frames > 1:
            message = "these are latents of a video: decode them with Decode Video"
            raise InvalidParam(message, port="latent")
        return tuple(Image(*found) for found in self._decoded(modules, vae, latent, ctx))

    def clips(self, vae: ComponentRef, latent: Latent, ctx: NodeContext) -> tuple[Clip, ...]:
        """Turn latents of videos into videos without sound.  Raises: as `pictures`."""
        modules = self._start(vae, latent, ctx, sound=False)
        space = family_decoding(vae, latent.space).space
        if isinstance(space, SoundtrackSpace):
            latent = replace(latent, samples=space.split(latent.samples, latent)[0])
        clips = []
        for pixels, provenance in self._decoded(modules, vae, latent, ctx):
            frames = pixels if pixels.ndim > _PICTURE else pixels[None]
            clips.append(Clip(frames, latent.fps or USUAL_FPS, None, provenance))
        return tuple(clips)

    def sounds(self, vae: ComponentRef, latent: Latent, ctx: NodeContext) -> tuple[Waveform, ...]:
        """Turn latents of sounds into sounds.  Raises: as `pictures`."""
        modules = self._start(vae, latent, ctx, sound=True)
        space = family_decoding(vae, latent.space).space
        if isinstance(space, SoundtrackSpace):
            return tuple(self._soundtracks(modules, vae, latent, space, ctx))
        sounds = []
        for index in range(latent.samples.shape[0]):
            one = latent.samples[index : index + 1]  # (1, c, frames)
            work = functools.partial(modules.autoencoders.decode_sound, vae, latent, one)
            samples, rate_hz, special = self._once(work, ctx)
            provenance = self._told(modules, vae, latent, index, special, ctx)
            sounds.append(Waveform(samples, rate_hz, provenance))
        return tuple(sounds)

    def _soundtracks(
        self,
        modules: Any,
        vae: ComponentRef,
        latent: Latent,
        space: SoundtrackSpace,
        ctx: NodeContext,
    ) -> Iterator[Waveform]:
        """The sounds of videos, as long as these are; what the model made beyond is cut."""
        sounds = space.split(latent.samples, latent)[1]  # (n, c, frames)
        seconds = latent.frames / (latent.fps or space.fps)
        for index in range(len(sounds)):
            one = sounds[index : index + 1]  # (1, c, frames)
            work = functools.partial(modules.soundtracks.decode, vae, one)
            samples, rate_hz = self._on_device(work, ctx, again=None)
            provenance = self._told(modules, vae, latent, index, (), ctx)
            yield Waveform(samples[:, : round(seconds * rate_hz)], rate_hz, provenance)

    def _start(self, vae: ComponentRef, latent: Latent, ctx: NodeContext, *, sound: bool) -> Any:
        if latent.samples is None:
            message = "an empty latent cannot be decoded: sample it first"
            raise InvalidParam(message, port="latent")
        space = family_decoding(vae, latent.space).space
        if not isinstance(space, SoundtrackSpace) and space.is_sound is not sound:
            kind, other = ("pictures", "VAE Decode") if sound else ("a sound", "Decode Audio")
            message = f"these are latents of {kind}: decode them with {other}"
            raise InvalidParam(message, port="latent")
        modules = self._ready()
        ctx.progress("decode", DECODE_AT, "Decoding")
        return modules

    def _decoded(
        self, modules: Any, vae: ComponentRef, latent: Latent, ctx: NodeContext
    ) -> Iterator[tuple[NDArray[np.uint8], dict[str, Any]]]:
        """Pixels and provenance of each picture or video of a latent."""
        for index in range(latent.samples.shape[0]):
            one = latent.samples[index : index + 1]  # (1, c, ...)
            work = functools.partial(modules.autoencoders.decode, vae, latent, one)
            pixels, special = self._once(work, ctx)
            yield pixels, self._told(modules, vae, latent, index, special, ctx)

    def _once(self, work: Callable[..., T], ctx: NodeContext) -> T:
        whole, tiled = functools.partial(work, tiled=False), functools.partial(work, tiled=True)
        return self._on_device(whole, ctx, again=tiled)

    def _told(
        self,
        modules: Any,
        vae: ComponentRef,
        latent: Latent,
        index: int,
        special: tuple[str, ...],
        ctx: NodeContext,
    ) -> dict[str, Any]:
        """The provenance of one result; what was special about it is said to the run."""
        provenance = _provenance(latent, modules.named(vae), index)
        if special:
            provenance["decode"] = " ".join(special)
        if "tiled" in special:
            ctx.warn("Decoded in tiles, as the whole picture at once needs too much memory")
        if "float32" in special:
            ctx.warn(f"{vae.name} gave NaN in its own precision; decoded in float32 instead")
        return provenance


def _provenance(latent: Latent, vae: dict[str, str], index: int) -> dict[str, Any]:
    """The provenance of result `index` of a batch: its own seed in place of the list."""
    provenance = dict(latent.provenance)
    seeds = provenance.pop("seeds", None)
    if seeds:
        provenance["seed"] = seeds[index]
    provenance["vae"] = vae
    return provenance
