"""What pictures, masks, videos and sounds say of themselves: sizes, counts, rates, lengths."""

from __future__ import annotations

from typing import Final

from inline_core.errors import InvalidAsset
from inline_core.graph.ports import PortKind
from inline_core.media.reading import clip_of, rate_of, waveform_of
from inline_core.media.values import Image, ImageBatch, Mask, MediaFile
from inline_core.nodes.audio import Sound
from inline_core.nodes.base import NodeContext, Port, node
from inline_core.nodes.pixels.batches import pictures_of
from inline_core.nodes.video import Video


def _numbers(*names: str) -> list[Port]:
    return [Port(PortKind.NUMBER, id=name) for name in names]


_SIZE: Final = ("width", "height")


@node(
    "image/size",
    title="Size of Image",
    category="Image",
    icon="maximize",
    outputs=_numbers(*_SIZE, "count"),
)
def image_size(image: Image | ImageBatch) -> tuple[int, int, int]:
    """Give width and height of a picture in pixels (of the first of a batch), and how many."""
    pictures = pictures_of(image)
    return pictures[0].width, pictures[0].height, len(pictures)


@node(
    "mask/size",
    title="Size of Mask",
    category="Mask",
    icon="maximize",
    outputs=_numbers(*_SIZE),
)
def mask_size(mask: Mask) -> tuple[int, int]:
    """Give width and height of a mask in pixels."""
    height, width = mask.values.shape
    return width, height


@node(
    "video/info",
    title="About a Video",
    category="Video",
    icon="maximize",
    outputs=_numbers("fps", "duration", *_SIZE),
)
def video_info(video: Video) -> tuple[float, float, int, int]:
    """Give frames per second, length in seconds, width and height of a video.

    Of a file, what it says of itself: it is not read.  Raises: InvalidAsset if it says nothing.
    """
    if not isinstance(video, MediaFile):
        clip = clip_of(video)
        return clip.fps, clip.duration_s, clip.width, clip.height
    rate = float(rate_of(video))
    if not (video.duration_s and video.width and video.height):
        message = f"The video {video.path.name!r} does not say how long or how large it is."
        raise InvalidAsset(message)
    return rate, video.duration_s, video.width, video.height


@node(
    "audio/info",
    title="About a Sound",
    category="Audio",
    icon="maximize",
    outputs=_numbers("duration", "sample_rate", "channels"),
)
def audio_info(ctx: NodeContext, audio: Sound) -> tuple[float, int, int]:
    """Give length in seconds, samples per second and number of channels of a sound.

    Raises: InvalidAsset.
    """
    if isinstance(audio, MediaFile):
        told = audio.duration_s, audio.sample_rate_hz, audio.channels
        if told[0] and told[1] and told[2]:
            return told[0], told[1], told[2]
    sound = waveform_of(audio, check=ctx.check_cancelled)
    return sound.duration_s, sound.sample_rate_hz, sound.channels
