"""What a one-click node starts from: pictures that are wired, sizes that are asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from inline_core.errors import InvalidParam
from inline_core.loading.component import Role
from inline_core.media.values import Image, ImageBatch, Mask
from inline_core.nodes.base import NodeContext
from inline_core.nodes.conditioning import control_of
from inline_core.nodes.fitting import fitted, fitted_mask
from inline_core.nodes.frames import cut_to, frames, keyframes
from inline_core.nodes.latent import noise_mask, single_image, sound_latent
from inline_core.nodes.one_click import Parts, snapped
from inline_core.sampling.family import ModelFamily, SoundSpace
from inline_core.sampling.offer import Offer
from inline_core.sampling.values import Conditioning, Latent


@dataclass(frozen=True, slots=True)
class Start:
    """What a run starts from: pictures that are wired, sizes that are asked for."""

    ctx: NodeContext
    family: ModelFamily
    offer: Offer
    parts: Parts
    usual: Mapping[str, Any]
    inputs: Mapping[str, Any]
    params: Mapping[str, Any]

    def looking_at(self, conditioning: Conditioning) -> Conditioning:
        """The conditioning with the reference images that are wired."""
        offer = self.offer
        images: Sequence[Image] = self.inputs.get(offer.references_port) or ()
        if "references" not in offer.takes or not images:
            return conditioning
        if len(images) > offer.references:
            message = (
                f"{len(images)} reference images are wired; {offer.title} looks at "
                f"{offer.references} at most"
            )
            raise InvalidParam(message, port=offer.references_port)
        vae = self.parts[1]
        latents = [
            self.ctx.render.encode_image(vae, offer.reference(image), self.ctx) for image in images
        ]
        shown = () if offer.picture is None else tuple(offer.picture(image) for image in images)
        return replace(conditioning, references=tuple(latents), pictures=shown)

    def controlled(self, conditioning: Conditioning) -> Conditioning:
        """The conditioning with the ControlNet that is picked, and the picture for it."""
        if "control" not in self.offer.takes:
            return conditioning
        image, params = self.inputs.get("control_image"), self.params
        name = str(params["controlnet"] or "")
        if image is None:
            if name:
                message = f"{name} needs a picture to look at: wire 'control_image'"
                raise InvalidParam(message, port="control_image")
            return conditioning
        family = self.family.name
        network = self.ctx.components.find(Role.CONTROLNET, name, family=family)
        span = float(params["control_start"]), float(params["control_end"])
        strength = float(params[self.offer.control_key])
        control = control_of(self.ctx, network, image, strength, span, self.parts[1])
        return replace(conditioning, controls=(*conditioning.controls, control))

    def framed(self, conditioning: Conditioning, latent: Latent) -> Conditioning:
        """The conditioning with the frames that are wired."""
        takes, given = self.offer.takes, self.inputs.get("image")
        if not any("frame" in take for take in takes):
            return conditioning  # what is wired may be a picture to start from, or several
        first = None if given is None else self.offer.first_frame(single_image(self.ctx, given))
        if "first_keyframe" in takes:
            last = self.inputs.get("last_image") if "last_keyframe" in takes else None
            ends = (self._end(given, latent), self._end(last, latent))
            held: Conditioning = keyframes(self.ctx, conditioning, self.parts[1], latent, *ends)
            return held
        if first is None:
            return conditioning  # it need not be given
        last = self.inputs.get("last_image") if "last_frame" in takes else None
        rest, vae = self.offer.between, self.parts[1]
        framed: Conditioning = frames(self.ctx, conditioning, vae, latent, first, last, rest=rest)
        return framed

    def _end(self, image: Image | ImageBatch | None, latent: Latent) -> Image | None:
        """A picture at an end of a video; where `keyframes` are cut, in its size already."""
        if image is None:
            return None
        shown = self.offer.first_frame(single_image(self.ctx, image))
        if self.offer.keyframes == "stretched":
            return shown
        return cut_to(self.ctx, shown, latent.width, latent.height)

    def latent(self, positive: Conditioning) -> Latent:
        """The latent to be sampled: empty, or the picture that is wired."""
        image: Image | ImageBatch | None = self.inputs.get("image")
        mask: Mask | None = self.inputs.get("mask") if "mask" in self.offer.takes else None
        if mask is not None and image is None:
            message = "a mask needs a picture to keep: wire 'image' too, or unwire 'mask'"
            raise InvalidParam(message, port="mask")
        if "image" not in self.offer.takes or image is None:
            return self._empty(positive)
        first = single_image(self.ctx, image)
        latent = self.ctx.render.encode_image(self.parts[1], self.picture(first), self.ctx)
        if mask is not None:
            fitting = fitted_mask(mask, first, self.family.size_multiple)
            latent = noise_mask(self.ctx, latent, fitting)
        return latent

    def picture(self, image: Image | ImageBatch) -> Image:
        """A wired picture whose sides the model can have."""
        first = single_image(self.ctx, image)
        return fitted(self.ctx, first, self.family.size_multiple)

    def _empty(self, positive: Conditioning) -> Latent:
        space = self.family.space
        if isinstance(space, SoundSpace):
            seconds = float(self.params["seconds"]) or float(self.usual["seconds"])
            return sound_latent(seconds, space.rate_hz)
        width, height = self._size(positive)
        frames = 1
        if self.offer.output.startswith("video"):
            frames = self._frame_count()
        fps = float(self.params.get("fps") or self.offer.fps)
        return Latent(width, height, frames=frames, fps=fps)

    def _frame_count(self) -> int:
        """How many frames the video gets: what was asked for, or what is near."""
        if self.offer.duration is not None:
            return self.family.frames_above(round(float(self.params["duration"]) * self.offer.fps))
        wanted = int(self.params["frames"]) or int(self.usual["frames"])
        frames = self.family.frames_below(wanted)
        if frames != wanted:
            words = self.family.frames_in_words
            self.ctx.warn(f"frames {wanted} is not {words}; {frames} was used.")
        return frames

    def _size(self, positive: Conditioning) -> tuple[int, int]:
        multiple = self.family.size_multiple
        sides = []
        if "inpaint" in self.offer.takes:
            picture = self.picture(self.inputs["image"])
            return picture.width, picture.height
        for name in ("width", "height"):
            value = int(self.params[name])
            if not value and positive.references and self.offer.sized_by_reference:
                value = int(getattr(positive.references[0], name))
            value = value or int(self.usual[name])
            sides.append(snapped(self.ctx, name, value, multiple))
        return sides[0], sides[1]
