"""Source nodes: what the client brings into a graph."""

from __future__ import annotations

from typing import Annotated, Any

from inline_core.graph.ports import PortKind
from inline_core.media.values import Image, Mask, MediaFile
from inline_core.nodes.base import NodeContext, Param, Port, node

Asset = Annotated[Any, Param(label="File", widget="asset", kind="file")]


@node(
    "input/text",
    title="Prompt",
    category="Input",
    icon="type",
    outputs=[Port(PortKind.TEXT)],
    hidden=True,
    cacheable=False,
)
def text(*, text: Annotated[str, Param(widget="textarea")] = "") -> str:
    """Give a text (a prompt) to other nodes."""
    return text


@node(
    "input/image",
    title="Image",
    category="Input",
    icon="image",
    outputs=[Port(PortKind.IMAGE)],
    hidden=True,
)
def image(ctx: NodeContext, *, asset: Asset = None) -> Image:
    """Give a picture: an upload, a take, or a file below an allowed folder.

    Raises: InvalidAsset.
    """
    return ctx.media.image(asset)


@node(
    "input/video",
    title="Video",
    category="Input",
    icon="film",
    outputs=[Port(PortKind.VIDEO)],
    hidden=True,
)
def video(ctx: NodeContext, *, asset: Asset = None) -> MediaFile:
    """Give a video: an upload, a take, or a file below an allowed folder.

    Raises: InvalidAsset.
    """
    return ctx.media.file(asset, "video")


@node(
    "input/audio",
    title="Audio",
    category="Input",
    icon="audio-lines",
    outputs=[Port(PortKind.AUDIO)],
    hidden=True,
)
def audio(ctx: NodeContext, *, asset: Asset = None) -> MediaFile:
    """Give a sound: an upload, a take, or a file below an allowed folder.

    Raises: InvalidAsset.
    """
    return ctx.media.file(asset, "audio")


@node(
    "input/mask",
    title="Mask",
    category="Input",
    icon="image",
    outputs=[Port(PortKind.MASK)],
    hidden=True,
)
def mask(ctx: NodeContext, *, asset: Asset = None) -> Mask:
    """Give a mask: the alpha of a picture where it has one, else its brightness.

    Raises: InvalidAsset.
    """
    return ctx.media.mask(asset)
