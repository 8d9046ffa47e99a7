"""What a graph is run for: pictures, videos, sounds and texts that are wanted.

They give on what they get, unchanged, so that anything can come after them.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Final

import numpy as np

from inline_core.graph.ports import PortKind
from inline_core.media.reading import clip_of, waveform_of
from inline_core.media.values import Clip, Image, ImageBatch, Mask, MediaFile, Waveform
from inline_core.nodes.audio import Sound
from inline_core.nodes.base import NodeContext, Param, Port, node
from inline_core.nodes.video import Video

_LONGEST: Final = 100_000
Prefix = Annotated[str, Param(label="Name", doc="What clients may begin a file's name with.")]
Preview = Annotated[bool, Param(label="Only to look at", advanced=True)]


@node(
    "output/image",
    title="Save Image",
    category="Output",
    icon="image",
    outputs=[Port(PortKind.IMAGE)],
    output_kind="image",
    selects=True,
)
def image(
    image: Image | ImageBatch, *, filename_prefix: Prefix = "", preview: Preview = False
) -> Image | ImageBatch:
    """Keep pictures as takes.

    `filename_prefix` and `preview` change nothing here: they are for clients that name files and
    tell what is kept from what is only shown.
    """
    del filename_prefix, preview
    return image


@node(
    "output/video",
    title="Save Video",
    category="Output",
    icon="film",
    outputs=[Port(PortKind.VIDEO)],
    output_kind="video",
)
def video(
    ctx: NodeContext, video: Video, *, filename_prefix: Prefix = "", preview: Preview = False
) -> Clip:
    """Keep a video as a take; one that comes as a file is read and stored anew.

    `filename_prefix` and `preview` are for clients.  Raises: InvalidAsset.
    """
    del filename_prefix, preview
    return clip_of(video, check=ctx.check_cancelled)


@node(
    "output/audio",
    title="Save Audio",
    category="Output",
    icon="audio-lines",
    outputs=[Port(PortKind.AUDIO)],
    output_kind="audio",
)
def audio(
    ctx: NodeContext, audio: Sound, *, filename_prefix: Prefix = "", preview: Preview = False
) -> Waveform:
    """Keep a sound as a take; one that comes as a file is read and stored anew.

    `filename_prefix` and `preview` are for clients.  Raises: InvalidAsset.
    """
    del filename_prefix, preview
    return waveform_of(audio, check=ctx.check_cancelled)


@node(
    "output/text",
    title="Show as Text",
    category="Output",
    icon="type",
    outputs=[Port(PortKind.TEXT)],
)
def text(value: Annotated[Any, Port(PortKind.ANY)]) -> str:
    """Write any value as a text: numbers and texts as they are, of others what they are."""
    return shown(value)[:_LONGEST]


def shown(value: object) -> str:
    """A value as people read it."""
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, Image):
        return f"picture of {value.width}x{value.height}"
    if isinstance(value, ImageBatch):
        return f"{len(value.images)} pictures, the first a {shown(value.images[0])}"
    if isinstance(value, Clip):
        frames, size = value.frame_count, f"{value.width}x{value.height}"
        return f"video of {frames} frames of {size} at {value.fps:g} a second"
    return _shown_other(value)


def _shown_other(value: object) -> str:
    if isinstance(value, Mask):
        height, width = value.values.shape
        return f"mask of {width}x{height}"
    if isinstance(value, Waveform):
        return f"sound of {value.duration_s:.3f} s at {value.sample_rate_hz} Hz"
    if isinstance(value, MediaFile):
        return f"{value.kind} {value.path.name!r}"
    if value is None:
        return "nothing"
    if isinstance(value, np.generic):
        return str(value.item())
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return type(value).__name__.lower()
