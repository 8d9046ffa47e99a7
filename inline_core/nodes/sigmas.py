"""Sigmas by hand: lists of noise levels, made without a model, and what is done with them."""

from __future__ import annotations

from typing import Annotated

from inline_core.graph.ports import PortKind
from inline_core.nodes.base import Param, Port, node
from inline_core.sampling.sigmas import lists, logit_normal, published
from inline_core.sampling.sigmas.values import Sigmas
from inline_core.sampling.values import Latent

Steps = Annotated[int, Param(min=1, max=200, step=1)]
Size = Annotated[int, Param(min=16, max=16384, step=1)]
Largest = Annotated[float, Param(label="Sigma max", min=0.0, max=5000.0, step=0.01)]
Smallest = Annotated[float, Param(label="Sigma min", min=0.0, max=5000.0, step=0.01)]
Share = Annotated[float, Param(min=0.0, max=1.0, step=0.01)]

_MODEL_TYPES = (
    ("SD1", "Stable Diffusion 1.5"),
    ("SDXL", "SDXL"),
    ("SVD", "Stable Video Diffusion"),
)
# Pixels and frames that a latent of LTX-Video stands for.
_LTX_SIDE, _LTX_FRAMES = 32, 8
_HIGH_AND_LOW = (
    Port(PortKind.SIGMAS, "High", id="high"),
    Port(PortKind.SIGMAS, "Low", id="low"),
)


@node(
    "sigmas/manual",
    title="Manual Sigmas",
    category="Sigmas",
    icon="list",
    outputs=[Port(PortKind.SIGMAS)],
)
def manual(
    *,
    sigmas: Annotated[str, Param(widget="textarea")] = "1, 0.5, 0",
) -> Sigmas:
    """Write the sigmas down: falling numbers with commas, spaces or new lines between them.

    Raises: InvalidParam for what is no number, or where they do not fall.
    """
    return Sigmas(lists.manual(sigmas))


@node(
    "sigmas/align-your-steps",
    title="Align Your Steps",
    category="Sigmas",
    icon="list",
    outputs=[Port(PortKind.SIGMAS)],
)
def align_your_steps(
    *,
    model_type: Annotated[str, Param(options=_MODEL_TYPES)] = "SD1",
    steps: Steps = 10,
    denoise: Share = 1.0,
) -> Sigmas:
    """The sigmas of the paper "Align Your Steps": good pictures in few steps.

    `denoise` below 1 runs only the last part of the steps.
    """
    return Sigmas(published.align_your_steps(model_type, steps, denoise))


@node(
    "sigmas/flux2",
    title="FLUX.2 Sigmas",
    category="Sigmas",
    icon="list",
    outputs=[Port(PortKind.SIGMAS)],
)
def flux2(
    *,
    steps: Steps = 20,
    width: Size = 1024,
    height: Size = 1024,
) -> Sigmas:
    """The sigmas of FLUX.2 for a picture of this size."""
    return Sigmas(published.flux2(steps, width, height))


@node(
    "sigmas/ideogram4",
    title="Ideogram 4 Sigmas",
    category="Sigmas",
    icon="list",
    outputs=[Port(PortKind.SIGMAS)],
)
def ideogram4(
    *,
    steps: Steps = 20,
    width: Size = 1024,
    height: Size = 1024,
    mu: Annotated[float, Param(min=-10.0, max=10.0, step=0.05)] = 0.0,
    std: Annotated[float, Param(min=0.1, max=5.0, step=0.05)] = 1.75,
) -> Sigmas:
    """The sigmas of Ideogram 4 for a picture of this size.

    Their logit is normal over the steps: `mu` moves all of them, `std` spreads them.  Published are
    48 steps with 1.5, 20 with 1.75, and 12 with a mu of 0.5.
    """
    return Sigmas(logit_normal.ideogram4(steps, width, height, mu, std))


@node(
    "sigmas/ltxv",
    title="LTX-Video Sigmas",
    category="Sigmas",
    icon="list",
    outputs=[Port(PortKind.SIGMAS)],
)
def ltxv(
    latent: Latent | None = None,
    *,
    steps: Steps = 20,
    tokens: Annotated[int, Param(min=1, max=10_000_000, step=1)] = 4096,
    max_shift: Annotated[float, Param(min=0.0, max=100.0, step=0.01)] = 2.05,
    base_shift: Annotated[float, Param(min=0.0, max=100.0, step=0.01)] = 0.95,
    stretch: Annotated[bool, Param(advanced=True)] = True,
    terminal: Annotated[float, Param(min=0.0, max=0.99, step=0.01, advanced=True)] = 0.1,
) -> Sigmas:
    """The sigmas of LTX-Video; `tokens` is frames x height x width of the latent.

    A wired latent says how many tokens it has.  `stretch` scales the sigmas so that the last one
    before 0 is `terminal`.
    """
    if latent is not None:
        frames = (latent.frames - 1) // _LTX_FRAMES + 1
        tokens = frames * (latent.height // _LTX_SIDE) * (latent.width // _LTX_SIDE)
    return Sigmas(published.ltxv(steps, tokens, max_shift, base_shift, stretch, terminal))


@node(
    "sigmas/karras",
    title="Karras Sigmas",
    category="Sigmas",
    icon="list",
    outputs=[Port(PortKind.SIGMAS)],
)
def karras(
    *,
    steps: Steps = 20,
    sigma_max: Largest = 14.614642,
    sigma_min: Smallest = 0.0291675,
    rho: Annotated[float, Param(min=0.01, max=100.0, step=0.01, advanced=True)] = 7.0,
) -> Sigmas:
    """The sigmas of Karras et al. 2022 between two given ones, and 0.

    Raises: InvalidParam unless sigma_max is above sigma_min and that above 0.
    """
    return Sigmas(published.karras(steps, sigma_max, sigma_min, rho))


@node(
    "sigmas/exponential",
    title="Exponential Sigmas",
    category="Sigmas",
    icon="list",
    outputs=[Port(PortKind.SIGMAS)],
)
def exponential(
    *,
    steps: Steps = 20,
    sigma_max: Largest = 14.614642,
    sigma_min: Smallest = 0.0291675,
) -> Sigmas:
    """Sigmas that fall by the same factor each step between two given ones, and 0.

    Raises: InvalidParam unless sigma_max is above sigma_min and that above 0.
    """
    return Sigmas(published.exponential(steps, sigma_max, sigma_min))


@node(
    "sigmas/split",
    title="Split Sigmas",
    category="Sigmas",
    icon="scissors",
    outputs=_HIGH_AND_LOW,
)
def split(
    sigmas: Sigmas,
    *,
    step: Annotated[int, Param(min=0, max=10_000, step=1)] = 0,
) -> tuple[Sigmas, Sigmas]:
    """Cut the sigmas after `step` steps: high ones first, low ones after."""
    high, low = lists.split(sigmas.values, step)
    return Sigmas(high), Sigmas(low)


@node(
    "sigmas/split-denoise",
    title="Split Sigmas by Denoise",
    category="Sigmas",
    icon="scissors",
    outputs=_HIGH_AND_LOW,
)
def split_denoise(
    sigmas: Sigmas,
    *,
    denoise: Share = 1.0,
) -> tuple[Sigmas, Sigmas]:
    """Cut the sigmas so that the low ones make up `denoise` of all steps."""
    high, low = lists.split_denoise(sigmas.values, denoise)
    return Sigmas(high), Sigmas(low)


@node(
    "sigmas/flip",
    title="Flip Sigmas",
    category="Sigmas",
    icon="arrow-up-down",
    outputs=[Port(PortKind.SIGMAS)],
)
def flip(
    sigmas: Sigmas,
) -> Sigmas:
    """Turn the sigmas round, to make noise of a picture; a 0 becomes 0.0001."""
    return Sigmas(lists.flip(sigmas.values))


@node(
    "sigmas/set-first",
    title="Set First Sigma",
    category="Sigmas",
    icon="list",
    outputs=[Port(PortKind.SIGMAS)],
)
def set_first(
    sigmas: Sigmas,
    *,
    sigma: Annotated[float, Param(min=0.0, max=20_000.0, step=0.001)] = 136.0,
) -> Sigmas:
    """Start from another sigma."""
    return Sigmas(lists.set_first(sigmas.values, sigma))
