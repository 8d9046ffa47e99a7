"""The solvers by name.  Names are ComfyUI's; `euler_ancestral` is called `euler_a` here."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from inline_core.errors import InvalidParam
from inline_core.sampling.solvers import (
    adams,
    cfg_pp,
    dpmpp,
    er_sde,
    euler,
    runge_kutta,
    sa_solver,
    sde,
    seeds,
    unipc,
)
from inline_core.sampling.solvers.base import Steps

Option = float | int | str | bool
# Smallest and largest values of the number options.
LIMITS: Final[Mapping[str, tuple[float, float]]] = MappingProxyType(
    {
        "eta": (0.0, 100.0),
        "s_noise": (0.0, 100.0),
        "r": (0.01, 1.0),
        "r_1": (0.01, 0.99),
        "r_2": (0.01, 1.0),
        "ge_gamma": (-5.0, 5.0),
        "noise_from": (0.0, 1.0),
        "noise_to": (0.0, 1.0),
        "order": (1, 4),
        "max_order": (1, 4),
        "max_stage": (1, 3),
        "predictor_order": (1, 4),
        "corrector_order": (0, 4),
    }
)


@dataclass(frozen=True, slots=True)
class Solver:
    """One solver and what a caller has to know about it.

    `noisy`: it draws noise after the start.  `needs_unguided`: the negative prompt's estimate is
    needed even at cfg 1.  `drops_penultimate`: ComfyUI's KSampler asks for one sigma more and
    leaves out the next-to-last.  `options` are the defaults of the keyword options.
    """

    name: str
    label: str
    function: Callable[..., Steps]
    noisy: bool = False
    needs_unguided: bool = False
    drops_penultimate: bool = False
    options: Mapping[str, Option] = field(init=False)

    def __post_init__(self) -> None:
        """Read the options from the signature."""
        parameters = inspect.signature(self.function).parameters.values()
        options = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
        object.__setattr__(self, "options", MappingProxyType(options))

    def check(self, options: Mapping[str, Option]) -> None:
        """Raises: InvalidParam for an option it does not have or a number out of its limits."""
        for option, value in options.items():
            if option not in self.options:
                known = ", ".join(self.options) or "none"
                message = f"{self.name} has no option {option!r}; it has: {known}"
                raise InvalidParam(message, param=option)
            if option in LIMITS and not (
                isinstance(value, float | int) and LIMITS[option][0] <= value <= LIMITS[option][1]
            ):
                low, high = LIMITS[option]
                message = f"{option} is {value}: it has to be from {low:g} to {high:g}"
                raise InvalidParam(message, param=option)


_ALL: Final = (
    Solver("euler", "Euler", euler.euler),
    Solver("euler_cfg_pp", "Euler CFG++", cfg_pp.euler_cfg_pp, needs_unguided=True),
    Solver("euler_a", "Euler ancestral", euler.euler_a, noisy=True),
    Solver(
        "euler_ancestral_cfg_pp",
        "Euler ancestral CFG++",
        cfg_pp.euler_ancestral_cfg_pp,
        noisy=True,
        needs_unguided=True,
    ),
    Solver("heun", "Heun", runge_kutta.heun),
    Solver("heunpp2", "Heun++ 2", runge_kutta.heunpp2),
    Solver("exp_heun_2_x0", "Exponential Heun", seeds.exp_heun_2_x0),
    Solver("exp_heun_2_x0_sde", "Exponential Heun SDE", seeds.exp_heun_2_x0_sde, noisy=True),
    Solver("dpm_2", "DPM 2", runge_kutta.dpm_2, drops_penultimate=True),
    Solver(
        "dpm_2_ancestral",
        "DPM 2 ancestral",
        runge_kutta.dpm_2_ancestral,
        noisy=True,
        drops_penultimate=True,
    ),
    Solver("lms", "LMS", adams.lms),
    Solver("dpmpp_2s_ancestral", "DPM++ 2S ancestral", dpmpp.dpmpp_2s_ancestral, noisy=True),
    Solver(
        "dpmpp_2s_ancestral_cfg_pp",
        "DPM++ 2S ancestral CFG++",
        cfg_pp.dpmpp_2s_ancestral_cfg_pp,
        noisy=True,
        needs_unguided=True,
    ),
    Solver("dpmpp_sde", "DPM++ SDE", sde.dpmpp_sde, noisy=True),
    Solver("dpmpp_2m", "DPM++ 2M", dpmpp.dpmpp_2m),
    Solver("dpmpp_2m_cfg_pp", "DPM++ 2M CFG++", cfg_pp.dpmpp_2m_cfg_pp, needs_unguided=True),
    Solver("dpmpp_2m_sde", "DPM++ 2M SDE", sde.dpmpp_2m_sde, noisy=True),
    Solver("dpmpp_2m_sde_heun", "DPM++ 2M SDE Heun", sde.dpmpp_2m_sde_heun, noisy=True),
    Solver("dpmpp_3m_sde", "DPM++ 3M SDE", sde.dpmpp_3m_sde, noisy=True),
    Solver("ddim", "DDIM", euler.euler),
    Solver("ddpm", "DDPM", euler.ddpm, noisy=True),
    Solver("lcm", "LCM", euler.lcm, noisy=True),
    Solver("ipndm", "iPNDM", adams.ipndm),
    Solver("ipndm_v", "iPNDM, uneven steps", adams.ipndm_v),
    Solver("deis", "DEIS", adams.deis),
    Solver("res_multistep", "RES multistep", dpmpp.res_multistep),
    Solver(
        "res_multistep_cfg_pp",
        "RES multistep CFG++",
        cfg_pp.res_multistep_cfg_pp,
        needs_unguided=True,
    ),
    Solver(
        "res_multistep_ancestral",
        "RES multistep ancestral",
        dpmpp.res_multistep_ancestral,
        noisy=True,
    ),
    Solver(
        "res_multistep_ancestral_cfg_pp",
        "RES multistep ancestral CFG++",
        cfg_pp.res_multistep_ancestral_cfg_pp,
        noisy=True,
        needs_unguided=True,
    ),
    Solver("gradient_estimation", "Gradient estimation", adams.gradient_estimation),
    Solver(
        "gradient_estimation_cfg_pp",
        "Gradient estimation CFG++",
        cfg_pp.gradient_estimation_cfg_pp,
        needs_unguided=True,
    ),
    Solver("er_sde", "ER-SDE", er_sde.er_sde, noisy=True),
    Solver("seeds_2", "SEEDS 2", seeds.seeds_2, noisy=True),
    Solver("seeds_3", "SEEDS 3", seeds.seeds_3, noisy=True),
    Solver("sa_solver", "SA-Solver", sa_solver.sa_solver, noisy=True),
    Solver("sa_solver_pece", "SA-Solver PECE", sa_solver.sa_solver_pece, noisy=True),
    Solver("uni_pc", "UniPC", unipc.uni_pc, drops_penultimate=True),
    Solver("uni_pc_bh2", "UniPC bh2", unipc.uni_pc_bh2, drops_penultimate=True),
)
SOLVERS: Final[Mapping[str, Solver]] = MappingProxyType({solver.name: solver for solver in _ALL})
# Other names for the same rules; ComfyUI's *_gpu forms differ in where the noise is drawn only.
ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {"euler_ancestral": "euler_a", "euler_a_cfg_pp": "euler_ancestral_cfg_pp"}
    | {f"{name}_gpu": name for name in SOLVERS if "sde" in name}
)


def solver_named(name: str) -> Solver:
    """The solver `name`.  Raises: InvalidParam, listing the valid names."""
    solver = SOLVERS.get(ALIASES.get(name, name))
    if solver is None:
        message = f"unknown sampler {name!r}: use one of {', '.join(SOLVERS)}"
        raise InvalidParam(message, param="sampler")
    return solver
