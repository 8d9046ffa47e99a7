"""Sigmas of a model: schedules laid over its noise levels."""

from __future__ import annotations

from typing import Annotated

from inline_core.families.registry import family_of, table_for
from inline_core.graph.ports import PortKind
from inline_core.nodes.base import Param, Port, node
from inline_core.nodes.sample import SCHEDULERS, Model
from inline_core.sampling.family import ScheduleFor
from inline_core.sampling.sigmas.published import sd_turbo
from inline_core.sampling.sigmas.schedules import beta as beta_schedule
from inline_core.sampling.sigmas.schedules import sigmas_for, steps_laid_out
from inline_core.sampling.sigmas.values import Sigmas


@node(
    "sigmas/schedule",
    title="Schedule",
    category="Sigmas",
    icon="list",
    outputs=[Port(PortKind.SIGMAS)],
)
def schedule(
    model: Model,
    *,
    scheduler: Annotated[str, Param(options=SCHEDULERS)] = "simple",
    steps: Annotated[int, Param(min=1, max=1000, step=1)] = 20,
    denoise: Annotated[float, Param(min=0.0, max=1.0, step=0.01)] = 1.0,
    width: Annotated[int, Param(min=16, max=16384, step=1, advanced=True)] = 1024,
    height: Annotated[int, Param(min=16, max=16384, step=1, advanced=True)] = 1024,
) -> Sigmas:
    """Lay the sigmas of a schedule over a model's noise levels, with the shift that it has.

    Size and steps change the shift of models whose shift depends on them (FLUX.2).
    Raises: InvalidParam, ModelFileInvalid.
    """
    wanted = ScheduleFor(model.variant, width, height, steps_laid_out(steps, denoise))
    table = table_for(model, family_of(model), wanted)
    return Sigmas(sigmas_for(scheduler, steps, table, denoise))


@node(
    "sigmas/turbo",
    title="SD-Turbo Sigmas",
    category="Sigmas",
    icon="list",
    outputs=[Port(PortKind.SIGMAS)],
)
def turbo(
    model: Model,
    *,
    steps: Annotated[int, Param(min=1, max=10, step=1)] = 1,
    denoise: Annotated[float, Param(min=0.0, max=1.0, step=0.01)] = 1.0,
) -> Sigmas:
    """The sigmas of SD-Turbo and SDXL-Turbo: timesteps 999, 899, 799, ... of the model."""
    table = table_for(model, family_of(model), ScheduleFor(model.variant))
    return Sigmas(sd_turbo(table, steps, denoise))


@node(
    "sigmas/beta",
    title="Beta Sigmas",
    category="Sigmas",
    icon="list",
    outputs=[Port(PortKind.SIGMAS)],
)
def beta(
    model: Model,
    *,
    steps: Annotated[int, Param(min=1, max=1000, step=1)] = 20,
    alpha: Annotated[float, Param(min=0.0, max=50.0, step=0.01)] = 0.6,
    beta: Annotated[float, Param(min=0.0, max=50.0, step=0.01)] = 0.6,
) -> Sigmas:
    """Quantiles of a Beta distribution over a model's noise levels (Lee et al. 2024).

    Raises: InvalidParam unless `alpha` and `beta` are above 0.
    """
    table = table_for(model, family_of(model), ScheduleFor(model.variant, steps=steps))
    return Sigmas((*beta_schedule(steps, table, alpha, beta), 0.0))
