"""One-click nodes for the page's tests: one that is slow with real previews, one that fails."""

from __future__ import annotations

import io
import threading
from collections.abc import Mapping
from functools import partial
from typing import Annotated

import numpy as np
from PIL import Image as Pillow

from inline_core.errors import OutOfMemory
from inline_core.graph.ports import PortKind
from inline_core.graph.spec import NodeSpec
from inline_core.media.values import Image
from inline_core.nodes.base import NodeContext, Param, Port, node, spec_of
from inline_core.nodes.registry import node_specs

STEP_S = 0.02


def _picture(side: int, step: int) -> np.ndarray:
    """A soft gradient that moves with the step."""
    rows, columns = np.mgrid[0:side, 0:side] / side
    red, green, blue = rows * 200 + step % 50, columns * 200, (1 - rows) * columns * 255
    return np.stack([red, green, blue], axis=-1).astype(np.uint8)


def _preview(step: int) -> bytes:
    buffer = io.BytesIO()
    Pillow.fromarray(_picture(64, step)).save(buffer, "JPEG")
    return buffer.getvalue()


@node(
    "test/slow",
    title="Slow painter",
    category="Generate",
    outputs=[Port(PortKind.IMAGE)],
    output_kind="image",
    needs=["nothing"],
)
def slow(
    ctx: NodeContext,
    prompt: str,
    image: Annotated[Image | None, Port(PortKind.IMAGE)] = None,
    *,
    steps: Annotated[int, Param(min=1, max=1000)] = 10,
    side: Annotated[int, Param(min=16, max=512, step=16, label="Side")] = 96,
    mood: Annotated[str, Param(options=[("calm", "Calm"), ("wild", "Wild")])] = "calm",
    mirror: bool = False,
    note: Annotated[str, Param(widget="textarea", advanced=True)] = "",
    seed: Annotated[int, Param(widget="seed")] = -1,
) -> Image:
    """Paint a gradient in many steps, with previews."""
    ctx.progress("encode", 0.05)
    pause = threading.Event()
    for step in range(1, steps + 1):
        pause.wait(STEP_S)
        ctx.check_cancelled()
        left_ms = round((steps - step) * STEP_S * 1000)
        status = f"Step {step}/{steps}"
        ctx.progress("sample", step / steps, status, step=step, step_count=steps, eta_ms=left_ms)
        ctx.preview(partial(_preview, step))
    ctx.describe(prompt=prompt, started_from_image=image is not None)
    return Image(_picture(side, seed), {"seed": seed, "mood": mood, "mirror": mirror, "note": note})


@node(
    "test/fails",
    title="Failing painter",
    category="Generate",
    outputs=[Port(PortKind.IMAGE)],
    output_kind="image",
)
def fails(ctx: NodeContext, prompt: str, *, side: int = 8) -> Image:
    """Always run out of memory, in words that try to be markup."""
    message = (
        "8.1 GiB are needed and 5.9 GiB are free. Choose a smaller picture than "
        f"{side} px, <b>or</b> close other programs."
    )
    raise OutOfMemory(message, details={"neededMb": 8294, "freeMb": 6041})


def specs_for_the_page() -> Mapping[str, NodeSpec]:
    """The real node types and the ones above."""
    extra = [spec_of(function) for function in (slow, fails)]
    return {**node_specs(), **{spec.type: spec for spec in extra}}
