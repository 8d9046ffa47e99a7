"""Latents of a video with its sound, as ComfyUI takes them apart and puts them together.

Here both are one latent.  What ComfyUI's nodes do to a part (a picture as the first frame, a sound
of a length) is noted, and done where the latent is sampled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from inline_core.importers.comfyui.mapping.step import Step, Unsupported
from inline_core.importers.comfyui.mapping.values import Constant, Several, Value, Wire


@dataclass(frozen=True, slots=True)
class Frame:
    """A picture that a frame of the video shall be; frame 0 is the first, -1 the last."""

    image: Value
    vae: Value
    index: int = 0
    strength: Value | float = 1.0


@dataclass(frozen=True, slots=True)
class VideoPart:
    """The video's part: an empty latent or one that was `made` (with its sound)."""

    base: Wire
    made: bool = False
    frames: tuple[Frame, ...] = ()
    same_sound: frozenset[Wire] = frozenset()
    """Latents that it was made of, with the same sound."""

    def showing(
        self, image: Value, vae: Value, index: int = 0, strength: Value | float = 1.0
    ) -> VideoPart:
        """With one picture more."""
        return replace(self, frames=(*self.frames, Frame(image, vae, index, strength)))


@dataclass(frozen=True, slots=True)
class SoundPart:
    """The sound's part: an empty one, or that of a latent which was `made` by `model`."""

    made: Wire | None = None
    model: Wire | None = None


@dataclass(frozen=True, slots=True)
class BothParts:
    """Video and sound together."""

    video: VideoPart
    audio: SoundPart


def as_wire(value: Value | None) -> Wire:
    """A value that is known to be an edge."""
    assert isinstance(value, Wire)
    return value


def size_of(latent: Value) -> Value:
    """The latent of a video, where only its size counts."""
    part = latent.value if isinstance(latent, Constant) else None
    if isinstance(part, BothParts):
        part = part.video
    return part.base if isinstance(part, VideoPart) else latent


def latent_wire(step: Step, video: VideoPart) -> Wire:
    """The latent, where only what is in it counts.  Raises: Unsupported for given frames."""
    if video.frames:
        message = "the pictures in this latent count only where it is sampled"
        raise Unsupported(message)
    del step
    return video.base


def framed(
    step: Step, conditioning: Value, latent: Value, ends: Mapping[str, Any], **more: Any
) -> Wire:
    """A conditioning with the frames that a video begins and ends with."""
    suffix = more.pop("suffix", "")
    inputs = {"conditioning": conditioning, "latent": latent, **ends, **more}
    added = step.add("conditioning/frames", inputs, suffix=suffix)
    return as_wire(added.out("conditioning"))


def with_rate(conditioning: Value, rate: Value) -> Value:
    """A conditioning that carries a frame rate to its sampler."""
    if isinstance(conditioning, Several):
        return Several({**conditioning.parts, "fps": rate})
    return Several({"conditioning": conditioning, "fps": rate})


def sampled(step: Step, inputs: Mapping[str, Any]) -> tuple[Mapping[str, Any], BothParts | None]:
    """The inputs of a sampling node with what conditionings and latents carry to it settled.

    Beside them, video and sound if the latent is one of both.
    """
    settled = dict(inputs)
    rate: Value | None = None
    for name in ("positive", "negative", "second"):
        value = settled.get(name)
        if isinstance(value, Several):
            rate = value.parts.get("fps", rate)
            settled[name] = value.parts["conditioning"]
    latent = settled["latent"]
    both: BothParts | None = None
    if isinstance(latent, Constant):
        both = latent.value if isinstance(latent.value, BothParts) else None
        video = both.video if both is not None else latent.value
        if not isinstance(video, VideoPart):
            message = "its latent is nothing that can be sampled here"
            raise Unsupported(message)
        settled["latent"] = video.base
    if rate is not None:
        told = {"latent": settled["latent"], "fps": rate}
        settled["latent"] = step.add("latent/frame-rate", told, suffix="rate").out("latent")
    if isinstance(latent, Constant):
        frames = (both.video if both is not None else latent.value).frames
        _show(step, settled, frames)
    return settled, both


def _show(step: Step, settled: dict[str, Any], frames: Sequence[Any]) -> None:
    """Put the given frames on the conditionings."""
    if not frames:
        return
    ends: dict[str, Any] = {}
    for frame in frames:
        name = "first" if frame.index == 0 else "last"
        ends[name] = frame.image
        ends["vae"] = frame.vae
        if ends.get("strength", frame.strength) != frame.strength:
            step.warn("the first and the last frame are held with one strength here, the last's")
        ends["strength"] = frame.strength
    if "last" in ends:
        _hold_ends(step, settled, ends)
        return
    for name in ("positive", "negative"):
        if settled.get(name) is not None:
            suffix = f"frames-{name}"
            settled[name] = framed(
                step, settled[name], settled["latent"], ends, rest="nothing", suffix=suffix
            )


def _hold_ends(step: Step, settled: dict[str, Any], ends: Mapping[str, Any]) -> None:
    """Put a last frame, and maybe a first one, on the conditionings."""
    for name in ("positive", "negative"):
        if settled.get(name) is not None:
            inputs = {"conditioning": settled[name], "latent": settled["latent"], **ends}
            added = step.add("conditioning/keyframes", inputs, suffix=f"frames-{name}")
            settled[name] = added.out("conditioning")


def made_of(both: BothParts | None, wire: Value, model: Value) -> Value:
    """What a sampling node gives: its latent, or video and sound."""
    if both is None or not isinstance(wire, Wire) or not isinstance(model, Wire):
        return wire
    return Constant(BothParts(VideoPart(wire, made=True), SoundPart(wire, model)))
