"""Measure the order of every solver: `python scripts/measure_solvers.py` prints a table.

A solver without noise runs on a mixture of Gaussians, whose estimate E[x0 | x] is known, between
two sigmas above 0; its error against a fine Runge-Kutta run falls as steps^-order.  A solver with
noise runs on one Gaussian, where its result is an affine map of start and noises: each unit noise
is fed alone, which gives the exact mean and variance without chance.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from inline_core.sampling.solvers import (
    SOLVERS,
    Estimate,
    Query,
    Solver,
    Steps,
    Trajectory,
)
from inline_core.sampling.solvers.process import alpha

Denoiser = Callable[[Tensor, float, bool], Tensor]
# First and last sigma of the measurements, by process (flow or not).
ENDS: Final[Mapping[bool, tuple[float, float]]] = MappingProxyType(
    {True: (0.9, 0.1), False: (5.0, 0.3)}
)
FINE: Final = 600
COARSE: Final = (40, 80)


@dataclass(frozen=True)
class Promise:
    """What a method promises: the order for the ODE, and those of the law it draws from.

    `order` counts an exact start: multistep methods begin with tiny steps here (see `schedule`).
    `marginal` is the order of the standard deviation of all results, the starts having the exact
    law; `given` that of mean and standard deviation of the results from one start, for the SDE
    with the full noise.  None: the method is not made for that.
    """

    source: str
    order: int | None
    marginal: int | None = None
    given: int | None = None
    noiseless: Mapping[str, Any] = field(default_factory=dict)  # options that turn the noise off
    full_noise: Mapping[str, Any] = field(default_factory=dict)


_ODE: Final = MappingProxyType({"eta": 0.0})
_ER_ODE: Final = MappingProxyType({"solver_type": "ode"})
_ER_SDE: Final = MappingProxyType({"solver_type": "reverse_sde"})
_ALL_STEPS: Final = MappingProxyType({"noise_from": 0.0, "noise_to": 1.0})
PROMISES: Final[Mapping[str, Promise]] = MappingProxyType(
    {
        "euler": Promise("Karras et al. 2022, algorithm 1", 1),
        "euler_a": Promise("Ho et al. 2020, algorithm 2", 1, 1, 1, _ODE),
        "heun": Promise("Karras et al. 2022, algorithm 1", 2),
        "heunpp2": Promise("none (a rule of ComfyUI)", 1),
        "exp_heun_2_x0": Promise("Hochbruck and Ostermann 2005", 2),
        "exp_heun_2_x0_sde": Promise("Gonzalez et al. 2023", 2, 2, 2, _ODE),
        "dpm_2": Promise("Lu et al. 2022a, algorithm 1", 2),
        "dpm_2_ancestral": Promise("Lu et al. 2022a, algorithm 1", 2, 2, 1, _ODE),
        "lms": Promise("Hairer, Norsett and Wanner, III.5", 4),
        "dpmpp_2s_ancestral": Promise("Lu et al. 2022b, algorithm 1", 2, 2, 1, _ODE),
        "dpmpp_sde": Promise("Lu et al. 2022b", 2, 2, 2, _ODE),
        "dpmpp_2m": Promise("Lu et al. 2022b, algorithm 2", 2),
        "dpmpp_2m_sde": Promise("Lu et al. 2022b", 2, 2, 2, _ODE),
        "dpmpp_2m_sde_heun": Promise("Lu et al. 2022b", 2, 2, 2, _ODE),
        "dpmpp_3m_sde": Promise("Crowson 2023 (k-diffusion)", 3, 2, 2, _ODE),
        "ddim": Promise("Song, Meng and Ermon 2021", 1),
        "ddpm": Promise("Ho et al. 2020, algorithm 2", None, 1, 1),
        "lcm": Promise("Song et al. 2023, algorithm 1", None),
        "ipndm": Promise("Liu et al. 2022, Zhang and Chen 2022", 2),
        "ipndm_v": Promise("Hairer, Norsett and Wanner, III.5", 4),
        "deis": Promise("Zhang and Chen 2022", 3),
        "res_multistep": Promise("Zhang et al. 2023", 2),
        "res_multistep_ancestral": Promise("Zhang et al. 2023", 2, 1, 1, _ODE),
        "gradient_estimation": Promise("Permenter and Yuan 2024", 1),
        "er_sde": Promise("Cui et al. 2023", 2, 2, 2, _ER_ODE, _ER_SDE),
        "seeds_2": Promise("Gonzalez et al. 2023", 2, 2, 2, _ODE),
        "seeds_3": Promise("Gonzalez et al. 2023", 3, 2, 2, _ODE),
        "sa_solver": Promise("Xue et al. 2023", 4, 2, 2, _ODE, _ALL_STEPS),
        "sa_solver_pece": Promise("Xue et al. 2023", 4, 2, 2, _ODE, _ALL_STEPS),
        "uni_pc": Promise("Zhao et al. 2023", 4),
        "uni_pc_bh2": Promise("Zhao et al. 2023", 4),
    }
)


@dataclass(frozen=True)
class Mixture:
    """A mixture of Gaussians: weight, mean and standard deviation of every part."""

    parts: tuple[tuple[float, float, float], ...]

    def estimate(self, x: Tensor, sigma: float, flow: bool) -> Tensor:
        """E[x0 | x] for x = alpha x0 + sigma n, element by element."""
        scale = alpha(sigma, flow)
        logs, means = [], []
        for weight, mean, spread in self.parts:
            variance = (scale * spread) ** 2 + sigma**2
            away = x - scale * mean
            logs.append(math.log(weight) - math.log(variance) / 2 - away**2 / (2 * variance))
            means.append(mean + scale * spread**2 / variance * away)
        return (torch.softmax(torch.stack(logs), 0) * torch.stack(means)).sum(0)


MIXTURE: Final = Mixture(((0.4, -1.0, 0.6), (0.6, 0.8, 0.5)))
MEAN: Final = 0.7
SPREAD: Final = 0.6
GAUSSIAN: Final = Mixture(((1.0, MEAN, SPREAD),))


def run(steps: Steps, denoiser: Denoiser, flow: bool) -> tuple[Tensor, list[Query]]:
    """Drive a solver to its end: the result and all its queries."""
    queries: list[Query] = []
    try:
        query = next(steps)
        while True:
            queries.append(query)
            denoised = denoiser(query.latents, query.sigma, flow)
            query = steps.send(Estimate(denoised, denoised))
    except StopIteration as end:
        result: Tensor = end.value
        return result, queries


def schedule(steps: int, flow: bool, slow_start: float = 3.0) -> list[float]:
    """Sigmas even in the logarithm after u -> u^slow_start of the even places u in 0..1.

    With 3 the first steps are so small that the Euler step which starts a multistep method adds
    an error of sixth order only, and the method's own order shows.
    """
    first, last = ENDS[flow]
    return [first * (last / first) ** ((i / steps) ** slow_start) for i in range(steps + 1)]


def no_noise() -> Tensor:
    """Noise for solvers that must not draw any."""
    message = "a solver without noise drew some"
    raise AssertionError(message)


def start_points(flow: bool) -> Tensor:
    """Latents to start from, (9,)."""
    return torch.linspace(-2, 2, 9, dtype=torch.float64) * ENDS[flow][0]


def exact_end(flow: bool) -> Tensor:
    """The end of the mixture's ODE from `start_points`, by the classical Runge-Kutta method."""
    x = start_points(flow)

    def slope(x: Tensor, log_sigma: float) -> Tensor:
        return x - MIXTURE.estimate(x, math.exp(log_sigma), flow)

    places = [math.log(sigma) for sigma in schedule(FINE, flow, 1.0)]
    for place, following in pairwise(places):
        h = following - place
        k_1 = slope(x, place)
        k_2 = slope(x + h / 2 * k_1, place + h / 2)
        k_3 = slope(x + h / 2 * k_2, place + h / 2)
        x = x + h / 6 * (k_1 + 2 * k_2 + 2 * k_3 + slope(x + h * k_3, following))
    return x


def ode_errors(
    function: Callable[..., Steps],
    flow: bool,
    reference: Tensor,
    slow_start: float = 3.0,
    counts: Sequence[int] = COARSE,
    **options: Any,
) -> list[float]:
    """Largest errors of a noiseless solver for the given step counts."""
    errors = []
    for count in counts:
        start = Trajectory(start_points(flow), schedule(count, flow, slow_start), no_noise, flow)
        end, _ = run(function(start, **options), MIXTURE.estimate, flow)
        errors.append(float((end - reference).abs().max()))
    return errors


@dataclass(frozen=True)
class Law:
    """Result of a solver on a Gaussian: `gain` times the start, plus `offset`, plus noise."""

    gain: float
    offset: float
    spread: float

    def mean(self, start: float) -> float:
        """The mean of the result for the given mean of the start."""
        return self.gain * start + self.offset


def law(function: Callable[..., Steps], sigmas: Sequence[float], flow: bool, **options: Any) -> Law:
    """The exact law of a solver's result for the target `GAUSSIAN`.

    Row 0 starts at 0 and gets no noise, row 1 starts at 1, row 2 + i gets noise i as a 1.
    """
    rows = 4 * len(sigmas)
    x = torch.zeros(rows, dtype=torch.float64)
    x[1] = 1
    drawn = 1

    def noise() -> Tensor:
        nonlocal drawn
        drawn += 1
        unit = torch.zeros(rows, dtype=torch.float64)
        unit[drawn] = 1
        return unit

    end, _ = run(function(Trajectory(x, sigmas, noise, flow), **options), GAUSSIAN.estimate, flow)
    offset = float(end[0])
    return Law(float(end[1]) - offset, offset, float((end[2:] - end[0]).norm()))


def marginal(sigma: float, flow: bool) -> tuple[float, float]:
    """Mean and standard deviation of x at `sigma` for the target `GAUSSIAN`."""
    scale = alpha(sigma, flow)
    return scale * MEAN, math.hypot(scale * SPREAD, sigma)


def marginal_errors(
    function: Callable[..., Steps], flow: bool, counts: Sequence[int] = COARSE, **options: Any
) -> list[float]:
    """Errors of mean or standard deviation at the end, from the exact law at the start."""
    first, last = ENDS[flow]
    (mean, spread), (end_mean, end_spread) = marginal(first, flow), marginal(last, flow)
    errors = []
    for count in counts:
        found = law(function, schedule(count, flow, 1.0), flow, **options)
        deviation = math.hypot(found.gain * spread, found.spread)
        errors.append(max(abs(found.mean(mean) - end_mean), abs(deviation - end_spread)))
    return errors


def given_errors(
    function: Callable[..., Steps], flow: bool, counts: Sequence[int] = COARSE, **options: Any
) -> list[float]:
    """Errors of mean or standard deviation of the result from a start at 1.

    With full noise the solvers follow the reversed process, whose law given the start is known:
    y = x / alpha has the variance SPREAD^2 + ratio^2, and its noise comes in independent steps.
    """
    first, last = ENDS[flow]
    scale, end_scale = alpha(first, flow), alpha(last, flow)
    noise, end_noise = first / scale, last / end_scale
    share = (SPREAD**2 + end_noise**2) / (SPREAD**2 + noise**2)
    mean = end_scale * (MEAN + share * (1 / scale - MEAN))
    spread = end_scale * math.sqrt(share * (noise**2 - end_noise**2))
    errors = []
    for count in counts:
        found = law(function, schedule(count, flow, 1.0), flow, **options)
        errors.append(max(abs(found.mean(1.0) - mean), abs(found.spread - spread)))
    return errors


def order(errors: Sequence[float]) -> float:
    """Order of convergence from the last two errors, the step count being doubled."""
    return math.log2(errors[-2] / errors[-1])


def evaluations(solver: Solver) -> float:
    """Estimates a step asks for, on average over many steps."""
    count = 100
    start = Trajectory(
        torch.zeros(1), schedule(count, flow=False, slow_start=1.0), lambda: torch.zeros(1), False
    )
    _, queries = run(solver.function(start), GAUSSIAN.estimate, flow=False)
    return len(queries) / count


def measure(
    solver: Solver, promise: Promise, references: Mapping[bool, Tensor]
) -> list[tuple[str, list[str]]]:
    """The promised orders (ODE, marginal, from one start), each with those measured by process."""
    function = solver.function

    def ode(flow: bool) -> float:
        return order(ode_errors(function, flow, references[flow], **promise.noiseless))

    def marginals(flow: bool) -> float:
        return order(marginal_errors(function, flow))

    def given(flow: bool) -> float:
        return order(given_errors(function, flow, **promise.full_noise))

    rows = ((promise.order, ode), (promise.marginal, marginals), (promise.given, given))
    return [
        ("", ["", ""])
        if promised is None
        else (str(promised), [f"{measured(flow):.2f}" for flow in references])
        for promised, measured in rows
    ]


def table() -> str:
    """The measured orders of all solvers as a markdown table."""
    head = (
        "name", "label", "source", "estimates a step", "noise", "order", "flow", "eps",
        "marginal", "flow", "eps", "from one start", "flow", "eps",
    )  # fmt: skip
    references = {flow: exact_end(flow) for flow in (True, False)}
    lines = [head, ("---",) * len(head)]
    for name, solver in SOLVERS.items():
        calls = f"{round(evaluations(solver))}"
        cells = [f"`{name}`", solver.label, "", calls, "yes" if solver.noisy else ""]
        plain = _plain(name)
        promise = PROMISES[plain]
        if plain == name:
            cells[2] = promise.source
            for promised, measured in measure(solver, promise, references):
                cells += [promised, *measured]
        else:
            cells[2] = "Chung et al. 2024"
            cells += [f"as `{plain}`", *[""] * 8]
        lines.append(tuple(cells))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _plain(name: str) -> str:
    """The solver whose CFG++ form `name` is, or `name` itself."""
    return re.sub("_cfg_pp$", "", name).replace("euler_ancestral", "euler_a")


if __name__ == "__main__":
    print(table())
