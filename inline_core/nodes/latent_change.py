"""Latents made of latents: resized, picked, joined, cut."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Final

from inline_core.errors import InvalidParam
from inline_core.families.registry import FAMILIES
from inline_core.graph.ports import PortKind
from inline_core.loading.component import ComponentRef, Role
from inline_core.nodes.base import NodeContext, Param, Port, node
from inline_core.nodes.latent import Size
from inline_core.sampling.family import LatentSpace, SoundtrackSpace
from inline_core.sampling.values import Latent

_OUTPUT = (Port(PortKind.LATENT),)
_METHODS = (
    ("nearest-exact", "Nearest"),
    ("bilinear", "Bilinear"),
    ("bicubic", "Bicubic"),
    ("area", "Area"),
)
_SIDES = (
    ("right", "To the right"),
    ("left", "To the left"),
    ("below", "Below"),
    ("above", "Above"),
    ("after", "After its frames"),
    ("before", "Before its frames"),
)
# Axis of the samples, counted so that it holds with and without frames, and the size that grows.
_AXES: Final = {
    "right": (-1, "width"),
    "left": (-1, "width"),
    "below": (-2, "height"),
    "above": (-2, "height"),
    "after": (2, "frames"),
    "before": (2, "frames"),
}
_BYTES: Final = 4
_MOST: Final = 4096


@node(
    "latent/frame-rate",
    title="Frame Rate of Latent",
    category="Latent",
    icon="film",
    outputs=_OUTPUT,
)
def frame_rate(
    latent: Latent,
    *,
    fps: Annotated[float, Param(label="Frames a second", min=1.0, max=240.0, step=0.001)] = 25.0,
) -> Latent:
    """Say how many frames a second a video shall have; models that make its sound go by it."""
    return replace(latent, fps=fps)


@node(
    "latent/empty-like",
    title="Empty Latent of that Size",
    category="Latent",
    icon="square",
    outputs=_OUTPUT,
)
def empty_like(latent: Latent) -> Latent:
    """Give an empty latent of the size of another one."""
    return replace(latent, samples=None, space=None, size_bytes=0, mask=None, provenance={})


@node(
    "latent/resize",
    title="Resize Latent",
    category="Latent",
    icon="square",
    outputs=_OUTPUT,
    needs=["torch"],
)
def resize(
    ctx: NodeContext,
    latent: Latent,
    *,
    by: Annotated[str, Param(options=[("size", "Size"), ("factor", "Factor")])] = "size",
    width: Size = 1024,
    height: Size = 1024,
    factor: Annotated[float, Param(min=0.01, max=8.0, step=0.01)] = 1.5,
    method: Annotated[str, Param(options=_METHODS)] = "nearest-exact",
) -> Latent:
    """Scale latents, to sample them again with a denoise below 1 at a larger size.

    The size is rounded to whole latents.  Raises: InvalidParam for latents without a size.
    """
    if by == "factor":
        width, height = round(latent.width * factor), round(latent.height * factor)
    if latent.samples is None:
        return replace(latent, width=width, height=height)
    side = _space(latent).factor
    rows, columns = max(1, round(height / side)), max(1, round(width / side))
    made = ctx.render.on_latents("resized", ctx, latent.samples, rows, columns, method)
    return _with(latent, made, width=columns * side, height=rows * side)


@node(
    "latent/upscale-model",
    title="Upscale Latent with Model",
    category="Latent",
    icon="wand",
    outputs=_OUTPUT,
    needs=["torch"],
)
def upscale_model(
    ctx: NodeContext,
    latent: Latent,
    vae: Annotated[ComponentRef, Port(PortKind.VAE, "VAE")],
    *,
    file: Annotated[str, Param(label="Latent upscaler", options_from="latent_upscale_models")] = "",
) -> Latent:
    """Enlarge the latent of a video by a latent upscaler (LTX-2), to be sampled again.

    Sound that belongs to it stays as it is.
    Raises: ModelFileMissing, ModelFileInvalid, InvalidParam, OutOfMemory.
    """
    upscaler = ctx.components.find(Role.LATENT_UPSCALER, file)
    larger: Latent = ctx.render.upscale_latent(upscaler, vae, latent, ctx)
    return larger


@node(
    "latent/from-batch",
    title="Pick Latent",
    category="Latent",
    icon="square",
    outputs=_OUTPUT,
    needs=["torch"],
)
def from_batch(
    ctx: NodeContext,
    latent: Latent,
    *,
    index: Annotated[int, Param(min=0, max=_MOST, step=1)] = 0,
    length: Annotated[int, Param(min=1, max=_MOST, step=1)] = 1,
) -> Latent:
    """Take `length` pictures of a batch, from number `index` on.

    Of a batch that is shorter, what there is; the last one at least.
    """
    start = min(index, latent.batch - 1)
    count = min(length, latent.batch - start)
    if latent.samples is None:
        return replace(latent, batch=count)
    made = ctx.render.on_latents("picked", ctx, latent.samples, start, count)
    return _with(latent, made, batch=count)


@node(
    "latent/repeat",
    title="Repeat Latent",
    category="Latent",
    icon="square",
    outputs=_OUTPUT,
    needs=["torch"],
)
def repeat(
    ctx: NodeContext,
    latent: Latent,
    *,
    amount: Annotated[int, Param(min=1, max=64, step=1)] = 1,
) -> Latent:
    """Make a batch of the same latent several times."""
    if latent.samples is None:
        return replace(latent, batch=latent.batch * amount)
    made = ctx.render.on_latents("repeated", ctx, latent.samples, amount)
    return _with(latent, made, batch=latent.batch * amount)


@node(
    "latent/join",
    title="Join Latents",
    category="Latent",
    icon="square",
    outputs=_OUTPUT,
    needs=["torch"],
)
def join(
    ctx: NodeContext,
    first: Annotated[Latent, Port(PortKind.LATENT, "First")],
    second: Annotated[Latent, Port(PortKind.LATENT, "Second")],
) -> Latent:
    """Make one batch of two.  Raises: InvalidParam if their sizes or models differ."""
    same = ("width", "height", "frames", "space", "normalised")
    if any(getattr(first, name) != getattr(second, name) for name in same):
        message = (
            f"latents of {first.width}x{first.height} ({first.space}) and {second.width}x"
            f"{second.height} ({second.space}) make no batch: bring them to one size before"
        )
        raise InvalidParam(message, port="second")
    batch = first.batch + second.batch
    if first.samples is None or second.samples is None:
        if first.samples is not second.samples:
            message = "an empty latent and one that is not make no batch"
            raise InvalidParam(message, port="second")
        return replace(first, batch=batch)
    made = ctx.render.on_latents("joined", ctx, [first.samples, second.samples])
    return _with(first, made, batch=batch)


@node(
    "latent/flip",
    title="Flip Latent",
    category="Latent",
    icon="square",
    outputs=_OUTPUT,
    needs=["torch"],
)
def flip(
    ctx: NodeContext,
    latent: Latent,
    *,
    axis: Annotated[
        str, Param(options=[("vertical", "Upside down"), ("horizontal", "Left to right")])
    ] = "horizontal",
) -> Latent:
    """Mirror latents.  Raises: InvalidParam for latents without a size."""
    if latent.samples is None:
        return latent
    _space(latent)
    made = ctx.render.on_latents("flipped", ctx, latent.samples, -2 if axis == "vertical" else -1)
    return _with(latent, made)


@node(
    "latent/trim-video",
    title="Trim Video Latent",
    category="Latent",
    icon="scissors",
    outputs=_OUTPUT,
    needs=["torch"],
)
def trim_video(
    ctx: NodeContext,
    latent: Latent,
    *,
    amount: Annotated[int, Param(label="Latent frames", min=0, max=_MOST, step=1)] = 0,
) -> Latent:
    """Leave the first latent frames of a video out.

    Raises: InvalidParam if none is left, or for latents without frames.
    """
    if not amount:
        return latent
    count = _latent_frames(latent)
    return _cut_frames(ctx, latent, min(amount, count), count - amount)


@node(
    "latent/cut",
    title="Cut Latent",
    category="Latent",
    icon="scissors",
    outputs=_OUTPUT,
    needs=["torch"],
)
def cut(
    ctx: NodeContext,
    latent: Latent,
    *,
    axis: Annotated[str, Param(options=[("x", "Columns"), ("y", "Rows"), ("t", "Frames")])] = "x",
    index: Annotated[int, Param(min=-_MOST, max=_MOST, step=1)] = 0,
    amount: Annotated[int, Param(min=1, max=_MOST, step=1)] = 1,
) -> Latent:
    """Take a part of latents, counted in latents; a negative `index` counts from the end.

    Raises: InvalidParam if it is empty, or for latents without that axis.
    """
    if axis == "t":
        count = _latent_frames(latent)
        start = _start(index, count)
        return _cut_frames(ctx, latent, start, min(amount, count - start))
    space = _space(latent)
    size = (latent.width if axis == "x" else latent.height) // space.factor
    start = _start(index, size)
    count = min(amount, size - start)
    sides: dict[str, Any] = {"width" if axis == "x" else "height": count * space.factor}
    if latent.samples is None:
        return replace(latent, **sides)
    along = -1 if axis == "x" else -2
    made = ctx.render.on_latents("cut", ctx, latent.samples, along, start, count)
    return _with(latent, made, **sides)


@node(
    "latent/concat",
    title="Put Latents Together",
    category="Latent",
    icon="square",
    outputs=_OUTPUT,
    needs=["torch"],
)
def concat(
    ctx: NodeContext,
    first: Annotated[Latent, Port(PortKind.LATENT, "First")],
    second: Annotated[Latent, Port(PortKind.LATENT, "Second")],
    *,
    side: Annotated[str, Param(options=_SIDES)] = "right",
) -> Latent:
    """Put the second latent at a side of the first, or its frames before or after them.

    Raises: InvalidParam if the other sizes differ, or for empty latents.
    """
    axis, field = _AXES[side]
    same = {"width", "height", "frames", "batch", "space", "normalised"} - {field}
    if any(getattr(first, name) != getattr(second, name) for name in same):
        message = f"they differ in more than their {field}: bring them to one size before"
        raise InvalidParam(message, port="second")
    if first.samples is None or second.samples is None:
        message = "an empty latent has nothing to put there: encode or sample it before"
        raise InvalidParam(message, port="first" if first.samples is None else "second")
    space = _space(first)
    parts = [first.samples, second.samples]
    if side in {"left", "above", "before"}:
        parts.reverse()
    made = ctx.render.on_latents("put_together", ctx, parts, axis)
    if field == "frames":
        count = _latent_frames(first) + _latent_frames(second)
        return _with(first, made, frames=(count - 1) * space.frame_factor + 1)
    sides: dict[str, Any] = {field: getattr(first, field) + getattr(second, field)}
    return _with(first, made, **sides)


@node(
    "latent/to-batch",
    title="Cut Latent to Batch",
    category="Latent",
    icon="scissors",
    outputs=_OUTPUT,
    needs=["torch"],
)
def to_batch(
    ctx: NodeContext,
    latent: Latent,
    *,
    axis: Annotated[str, Param(options=[("t", "Frames"), ("x", "Columns"), ("y", "Rows")])] = "t",
    size: Annotated[int, Param(label="Latents of a slice", min=1, max=_MOST, step=1)] = 1,
) -> Latent:
    """Cut a latent into slices of equal size that become a batch; what is left over is dropped.

    Raises: InvalidParam for an empty latent, one without that axis, or one that is smaller.
    """
    if latent.samples is None:
        message = "an empty latent has nothing to cut: encode or sample it before"
        raise InvalidParam(message, port="latent")
    space = _space(latent)
    field = {"t": "frames", "x": "width", "y": "height"}[axis]
    whole = _latent_frames(latent) if axis == "t" else getattr(latent, field) // space.factor
    count = whole // size
    if not count:
        message = f"a slice of {size} is larger than the latent, which has {whole}"
        raise InvalidParam(message, param="size")
    along = {"t": 2, "x": -1, "y": -2}[axis]
    made = ctx.render.on_latents("slices", ctx, latent.samples, along, size, count)
    length = (size - 1) * space.frame_factor + 1 if axis == "t" else size * space.factor
    changes: dict[str, Any] = {field: length, "batch": latent.batch * count}
    return _with(latent, made, **changes)


@node(
    "latent/replace-frames",
    title="Replace Latent Frames",
    category="Latent",
    icon="film",
    outputs=_OUTPUT,
    needs=["torch"],
)
def replace_frames(
    ctx: NodeContext,
    latent: Latent,
    source: Annotated[Latent | None, Port(PortKind.LATENT, "Source")] = None,
    *,
    index: Annotated[int, Param(min=-_MOST, max=_MOST, step=1)] = 0,
) -> Latent:
    """Put the latent frames of a source in place of those from `index` on (below 0: from the end).

    Raises: InvalidParam if they do not fit, or for empty latents.
    """
    if source is None:
        return latent
    if latent.samples is None or source.samples is None:
        message = "an empty latent has no frames: encode or sample it before"
        raise InvalidParam(message, port="latent" if latent.samples is None else "source")
    whole, count = _latent_frames(latent), _latent_frames(source)
    start = index + whole if index < 0 else index
    same = ("width", "height", "batch", "space", "normalised")
    if any(getattr(latent, name) != getattr(source, name) for name in same):
        message = "the source is of another size or model: bring both to one before"
        raise InvalidParam(message, port="source")
    if start < 0 or start + count > whole:
        message = f"{count} latent frames from {index} on do not fit into {whole}"
        raise InvalidParam(message, param="index")
    made = ctx.render.on_latents("replaced", ctx, latent.samples, source.samples, start)
    return _with(latent, made)


def _start(index: int, size: int) -> int:
    start = index + size if index < 0 else index
    return max(0, min(start, size - 1))


def _cut_frames(ctx: NodeContext, latent: Latent, start: int, count: int) -> Latent:
    if count < 1:
        message = f"no latent frame is left of {_latent_frames(latent)}"
        raise InvalidParam(message, param="amount")
    frames = (count - 1) * _space(latent).frame_factor + 1
    if latent.samples is None:
        return replace(latent, frames=frames)
    made = ctx.render.on_latents("cut", ctx, latent.samples, 2, start, count)
    return _with(latent, made, frames=frames)


def _latent_frames(latent: Latent) -> int:
    space = _space(latent)
    if not space.frame_factor:
        message = "these latents have no frames"
        raise InvalidParam(message, port="latent")
    return (latent.frames - 1) // space.frame_factor + 1


def _space(latent: Latent) -> LatentSpace:
    """The space of latents that have a size.  Raises: InvalidParam."""
    for family in FAMILIES.values():
        if latent.space in {family.space.name, family.rules.vae_family}:
            if family.space.is_sound or isinstance(family.space, SoundtrackSpace):
                break
            return family.space
    message = (
        "these latents have no width and height that is known: sample or encode them before, and "
        "leave sounds out"
    )
    raise InvalidParam(message, port="latent")


def _with(latent: Latent, samples: Any, **changes: Any) -> Latent:
    """A latent with other samples."""
    size = samples.numel() * _BYTES
    return replace(latent, samples=samples, size_bytes=size, **changes)
