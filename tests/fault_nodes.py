"""Node types with injected faults, for tests only."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping
from typing import Annotated

import numpy as np

from inline_core.errors import InvalidParam
from inline_core.graph.ports import PortKind
from inline_core.graph.spec import NodeSpec
from inline_core.media.values import Image
from inline_core.nodes.base import NodeContext, Param, Port, node, spec_of
from inline_core.nodes.registry import node_specs


class Gate:
    """Lets a test hold nodes back and see that they have begun."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.open = threading.Event()

    def reset(self) -> None:
        self.open.clear()
        while self.begun.acquire(blocking=False):
            pass


GATE = Gate()


@node(
    "test/paint",
    title="Paint",
    category="Test",
    outputs=[Port(PortKind.IMAGE)],
    output_kind="image",
)
def paint(
    ctx: NodeContext,
    text: str = "",
    *,
    shade: Annotated[int, Param(min=0, max=255)] = 0,
    seed: Annotated[int, Param(widget="seed")] = -1,
    size: Annotated[int, Param(min=1, max=512)] = 8,
    noisy: bool = False,
) -> Image:
    """A flat picture, made at once."""
    ctx.progress("sample", 0.5, "Step 1/2", step=1, step_count=2, eta_ms=10)
    rng = np.random.default_rng(seed)
    pixels = np.full((size, size, 3), shade, np.uint8)
    pixels[0, 0] = rng.integers(0, 255, 3, dtype=np.uint8)
    if noisy:
        pixels = rng.integers(0, 255, pixels.shape, dtype=np.uint8)
    ctx.describe(prompt=text)
    return Image(pixels, {"seed": seed})


@node(
    "test/wait",
    title="Wait",
    category="Test",
    outputs=[Port(PortKind.IMAGE)],
    output_kind="image",
    needs=["nothing"],
)
def wait(ctx: NodeContext, *, shade: int = 0) -> Image:
    """Holds until the test opens the gate, or the run is cancelled."""
    ctx.progress("sample", 0.1, "Waiting", step=1, step_count=10)
    GATE.begun.release()
    while not GATE.open.wait(0.01):
        ctx.check_cancelled()
    return Image(np.full((8, 8, 3), shade, np.uint8))


@node(
    "test/boom", title="Boom", category="Test", outputs=[Port(PortKind.IMAGE)], output_kind="image"
)
def boom(
    ctx: NodeContext,
    *,
    kind: Annotated[
        str, Param(options=[(k, k) for k in ("raise", "refuse", "memory", "kill")])
    ] = "raise",
) -> Image:
    """Fails in the way that was asked for."""
    if kind == "refuse":
        message = "This value is refused."
        raise InvalidParam(message, param="kind")
    if kind == "memory":
        raise MemoryError
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    message = "secret detail"
    raise RuntimeError(message)


@node(
    "test/steps",
    title="Steps",
    category="Test",
    outputs=[Port(PortKind.IMAGE)],
    output_kind="image",
    needs=["nothing"],
)
def steps(
    ctx: NodeContext,
    image: Annotated[Image | None, Port(PortKind.IMAGE)] = None,
    *,
    count: Annotated[int, Param(min=1, max=10_000)] = 10,
    pause_ms: Annotated[int, Param(min=0, max=10_000)] = 5,
    shade: int = 0,
) -> Image:
    """Many small steps with progress, like denoising."""
    pause = threading.Event()
    for step in range(1, count + 1):
        pause.wait(pause_ms / 1000)
        ctx.check_cancelled()
        ctx.progress("sample", step / count, f"Step {step}/{count}", step=step, step_count=count)
        ctx.preview(lambda: b"\xff\xd8jpeg")
    return Image(np.full((8, 8, 3), shade, np.uint8))


@node("test/concat", title="Concat", category="Test", outputs=[Port(PortKind.TEXT)])
def concat(ctx: NodeContext, first: str = "", *, add: str = "x") -> str:
    """A cheap node for long chains."""
    return (first + add)[-16:]


def specs_with_faults() -> Mapping[str, NodeSpec]:
    """The real node types and the faulty ones."""
    extra = [spec_of(function) for function in (paint, wait, boom, steps, concat)]
    return {**node_specs(), **{spec.type: spec for spec in extra}}
