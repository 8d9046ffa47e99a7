"""Videos: out of pictures, into pictures, and parts of them."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated

import numpy as np

from inline_core.errors import InvalidParam
from inline_core.graph.ports import PortKind
from inline_core.media.rates import frame_rate
from inline_core.media.reading import (
    clip_of,
    rate_of,
    read_clip,
    read_frames,
    waveform_of,
)
from inline_core.media.values import Clip, Image, ImageBatch, MediaFile, Waveform
from inline_core.nodes.audio import cut
from inline_core.nodes.base import NodeContext, Param, Port, node
from inline_core.nodes.spans import LONGEST_S, Duration, Start

if TYPE_CHECKING:
    from numpy.typing import NDArray

Video = Annotated[Clip | MediaFile, Port(PortKind.VIDEO)]

_MAX_FRAMES = 10_000_000
_LAST_FRAMES = 100
_EDGE = 1e-6
"""A time that is a frame's own, but for rounding, is that frame's."""

_COLOURS = 3


@node(
    "video/make",
    title="Make Video",
    category="Video",
    icon="film",
    outputs=[Port(PortKind.VIDEO)],
    output_kind="video",
)
def make(
    ctx: NodeContext,
    images: Annotated[list[Image], Port(PortKind.IMAGES, required=True)],
    audio: Annotated[Waveform | MediaFile | None, Port(PortKind.AUDIO)] = None,
    *,
    fps: Annotated[float, Param(label="Frames per second", min=0.1, max=240, step=0.001)] = 24.0,
) -> Clip:
    """Make a video of pictures, one a frame, in the order they are wired; a batch counts whole.

    All must have the same size; transparency is dropped.  A sound starts with the first frame; in
    the mp4 it is cut where the pictures end, or goes on in silence.
    Raises: InvalidParam (no pictures, sizes that differ), InvalidAsset.
    """
    if not images:
        message = "a video needs at least one picture; wire some to images"
        raise InvalidParam(message, param="images")
    first = images[0]
    frames = np.empty((len(images), first.height, first.width, _COLOURS), np.uint8)
    for index, image in enumerate(images):
        ctx.check_cancelled()
        if (image.width, image.height) != (first.width, first.height):
            message = (
                f"picture {index} is {image.width}x{image.height} and the first one "
                f"{first.width}x{first.height}; resize them to one size before"
            )
            raise InvalidParam(message, param="images")
        frames[index] = image.pixels[:, :, :_COLOURS]
    sound = None if audio is None else waveform_of(audio, check=ctx.check_cancelled)
    return Clip(frames, float(frame_rate(fps)), sound, dict(first.provenance))


@node(
    "video/components",
    title="Split Video",
    category="Video",
    icon="film",
    outputs=[Port(PortKind.IMAGE, id="images", label="Images"), Port(PortKind.AUDIO)],
)
def components(ctx: NodeContext, video: Video) -> tuple[ImageBatch, Waveform | None]:
    """Take a video apart: all its frames as a batch of pictures, and its sound.

    A video without sound gives none, which video/make takes as well.
    Raises: InvalidAsset (damaged, or too long to hold its frames at once).
    """
    clip = clip_of(video, check=ctx.check_cancelled)
    images = tuple(Image(frame, dict(clip.provenance)) for frame in clip.frames)
    return ImageBatch(images), clip.sound


@node(
    "video/slice",
    title="Cut Video",
    category="Video",
    icon="scissors",
    outputs=[Port(PortKind.VIDEO)],
    output_kind="video",
)
def part(
    ctx: NodeContext,
    video: Video,
    *,
    start: Start = 0.0,
    duration: Duration = 0.0,
) -> Clip:
    """Take the part of a video from `start` on, `duration` seconds long, with its sound.

    Both are rounded to whole frames; a file is read only where it is needed.  Of a video that ends
    earlier, what there is.
    Raises: InvalidParam if it ends before `start`; InvalidAsset.
    """
    source = video if isinstance(video, MediaFile) else clip_of(video)
    rate = _rate(source)
    first = round(start * rate)
    count = max(1, round(duration * rate)) if duration else None
    if isinstance(source, MediaFile):
        return read_clip(
            source, start_s=float(first / rate), max_frames=count, check=ctx.check_cancelled
        )
    clip = source
    if first >= clip.frame_count:
        message = f"the video ends before {start:g} s (it lasts {clip.duration_s:.3f} s)"
        raise InvalidParam(message, param="start")
    frames = clip.frames[first : None if count is None else first + count]
    sound = clip.sound
    if sound is not None:
        sound = cut(sound, float(first / rate), float(len(frames) / rate))
    return replace(clip, frames=frames, sound=sound)


@node(
    "video/frame",
    title="Frame of Video",
    category="Video",
    icon="image",
    outputs=[Port(PortKind.IMAGE)],
    output_kind="image",
)
def frame(
    ctx: NodeContext,
    video: Video,
    *,
    by: Annotated[str, Param(options=[("index", "Number"), ("time", "Time")])] = "index",
    index: Annotated[
        int,
        Param(
            label="Number",
            min=-_LAST_FRAMES,
            max=_MAX_FRAMES,
            step=1,
            on_face=True,
            doc="0 is the first frame, -1 the last.",
        ),
    ] = 0,
    time: Annotated[float, Param(label="Time (s)", min=0, max=LONGEST_S, step=0.01)] = 0.0,
) -> Image:
    """Take one frame of a video as a picture: by its number, or the one to be seen at a time.

    Raises: InvalidParam if there is no such frame; InvalidAsset.
    """
    source = video if isinstance(video, MediaFile) else clip_of(video)
    rate = _rate(source)
    wanted = math.floor(time * rate + _EDGE) if by == "time" else index
    if isinstance(source, MediaFile):
        found = _frame_of_file(ctx, source, wanted, rate)
    else:
        there = -source.frame_count <= wanted < source.frame_count
        found = source.frames[wanted] if there else None
    if found is None:
        message = f"the video has no frame {wanted}" + (f" (at {time:g} s)" if by == "time" else "")
        raise InvalidParam(message, param=by)
    return Image(np.ascontiguousarray(found), dict(source.provenance))


def _rate(source: Clip | MediaFile) -> Fraction:
    return rate_of(source) if isinstance(source, MediaFile) else frame_rate(source.fps)


def _frame_of_file(
    ctx: NodeContext, file: MediaFile, wanted: int, rate: Fraction
) -> NDArray[np.uint8] | None:
    if wanted >= 0:
        start_s = float(wanted / rate)
        frames = read_frames(file, start_s=start_s, max_frames=1, check=ctx.check_cancelled)
        return next(frames, None)
    last = deque(read_frames(file, check=ctx.check_cancelled), maxlen=-wanted)
    return last[0] if len(last) == -wanted else None
