"""What is done with prompts after they were written: combined, joined, placed, emptied."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from inline_core.graph.ports import PortKind
from inline_core.media.values import Mask
from inline_core.nodes.base import NodeContext, Param, Port, node
from inline_core.sampling.values import Conditioning, Mix, Region

First = Annotated[Conditioning, Port(PortKind.CONDITIONING, "First")]
Second = Annotated[Conditioning, Port(PortKind.CONDITIONING, "Second")]
Strength = Annotated[float, Param(min=0.0, max=10.0, step=0.01)]
Percent = Annotated[float, Param(min=0.0, max=1.0, step=0.001)]
Pixels = Annotated[int, Param(min=0, max=16384, step=8)]
Share = Annotated[float, Param(min=0.0, max=1.0, step=0.01)]
Side = Annotated[int, Param(min=0, max=16384, step=1)]

_OUTPUT = (Port(PortKind.CONDITIONING),)


@node(
    "conditioning/zero",
    title="Zero Out",
    category="Conditioning",
    icon="type",
    outputs=_OUTPUT,
)
def zero(conditioning: Conditioning) -> Conditioning:
    """Put zeros in place of what a prompt says; as the negative of models that never had one."""
    return replace(conditioning, mixes=(*conditioning.mixes, Mix("zero")))


@node(
    "conditioning/combine",
    title="Combine Prompts",
    category="Conditioning",
    icon="type",
    outputs=_OUTPUT,
)
def combine(first: First, second: Second) -> Conditioning:
    """Let two prompts count at once: the model is asked for both, and the estimates are averaged.

    Each counts with its strength, where and when it was set to.
    """
    return replace(first, beside=(*first.beside, *second.every))


@node(
    "conditioning/concat",
    title="Join Prompts",
    category="Conditioning",
    icon="type",
    outputs=_OUTPUT,
)
def concat(first: First, second: Second) -> Conditioning:
    """Put the tokens of the second prompt behind those of the first; they are read apart."""
    return replace(first, mixes=(*first.mixes, Mix("join", replace(second, beside=()))))


@node(
    "conditioning/average",
    title="Average Prompts",
    category="Conditioning",
    icon="type",
    outputs=_OUTPUT,
)
def average(first: First, second: Second, *, strength: Share = 1.0) -> Conditioning:
    """Mix two prompts token by token: `strength` of the first, the rest of the second."""
    return replace(
        first, mixes=(*first.mixes, Mix("average", replace(second, beside=()), strength))
    )


@node(
    "conditioning/span",
    title="Prompt in a Span",
    category="Conditioning",
    icon="type",
    outputs=_OUTPUT,
)
def span(conditioning: Conditioning, *, start: Percent = 0.0, end: Percent = 1.0) -> Conditioning:
    """Let a prompt count only from `start` to `end`: 0 is pure noise, 1 the end."""
    return _placed(conditioning, start_percent=start, end_percent=end)


@node(
    "conditioning/strength",
    title="Strength of Prompt",
    category="Conditioning",
    icon="type",
    outputs=_OUTPUT,
)
def strength(conditioning: Conditioning, *, strength: Strength = 1.0) -> Conditioning:
    """Say how much a prompt counts beside those that it is combined with."""
    return _placed(conditioning, strength=strength)


@node(
    "conditioning/area",
    title="Prompt in an Area",
    category="Conditioning",
    icon="square",
    outputs=_OUTPUT,
)
def area(
    conditioning: Conditioning,
    *,
    by: Annotated[str, Param(options=[("pixels", "Pixels"), ("share", "Share of the picture")])] = (
        "pixels"
    ),
    width: Pixels = 64,
    height: Pixels = 64,
    x: Pixels = 0,
    y: Pixels = 0,
    width_share: Share = 1.0,
    height_share: Share = 1.0,
    x_share: Share = 0.0,
    y_share: Share = 0.0,
    strength: Strength = 1.0,
) -> Conditioning:
    """Let a prompt count only in a rectangle, which the model makes as a picture of its own.

    Combine it with others.
    """
    shares = by == "share"
    box = (x_share, y_share, width_share, height_share) if shares else (x, y, width, height)
    return _placed(conditioning, area=box, shares=shares, strength=strength)


@node(
    "conditioning/mask",
    title="Prompt in a Mask",
    category="Conditioning",
    icon="square",
    outputs=_OUTPUT,
)
def mask(conditioning: Conditioning, mask: Mask, *, strength: Strength = 1.0) -> Conditioning:
    """Let a prompt count only where the mask is white; the model still makes the whole picture.

    Combine it with others.
    """
    return _placed(conditioning, mask=mask.values, strength=strength)


@node(
    "conditioning/song",
    title="Lyrics",
    category="Conditioning",
    icon="music",
    outputs=_OUTPUT,
)
def song(
    conditioning: Conditioning,
    *,
    lyrics: Annotated[str, Param(widget="textarea")] = "",
    bpm: Annotated[int, Param(label="Beats per minute (0 = free)", min=0, max=300, step=1)] = 0,
    key: Annotated[str, Param(label="Key, such as C major (empty = free)")] = "",
    time_signature: str = "auto",
    language: Annotated[str, Param(advanced=True)] = "en",
) -> Conditioning:
    """Say what is sung, and how fast and in which key, beside what the prompt describes."""
    told = {
        "lyrics": lyrics,
        "bpm": bpm,
        "key": key,
        "time_signature": time_signature,
        "language": language,
    }
    return _with_options(conditioning, told)


@node(
    "conditioning/sdxl-size",
    title="SDXL Sizes",
    category="Conditioning",
    icon="square",
    outputs=_OUTPUT,
)
def sdxl_size(
    ctx: NodeContext,
    conditioning: Conditioning,
    *,
    original_width: Side = 0,
    original_height: Side = 0,
    crop_x: Side = 0,
    crop_y: Side = 0,
    target_width: Side = 0,
    target_height: Side = 0,
) -> Conditioning:
    """Tell SDXL the size of the picture it imagines, and what of it is cut away (0: as made).

    A smaller original size gives softer pictures.
    """
    del ctx
    told = {
        "original_width": original_width,
        "original_height": original_height,
        "crop_x": crop_x,
        "crop_y": crop_y,
        "target_width": target_width,
        "target_height": target_height,
    }
    return _with_options(conditioning, told)


def _with_options(conditioning: Conditioning, told: dict[str, Any]) -> Conditioning:
    options = tuple(sorted({**dict(conditioning.options), **told}.items()))
    return replace(conditioning, options=options)


def _placed(conditioning: Conditioning, **changes: Any) -> Conditioning:
    """Each of the prompts with its region changed."""

    def change(one: Conditioning) -> Conditioning:
        return replace(one, region=replace(one.region or Region(), **changes))

    first = change(conditioning)
    return replace(first, beside=tuple(change(other) for other in conditioning.beside))
