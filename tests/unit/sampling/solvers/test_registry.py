from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from measure_solvers import run

from inline_core.errors import InvalidParam
from inline_core.sampling.solvers import SOLVERS, Solver, Trajectory, solver_named
from inline_core.sampling.solvers.registry import LIMITS

# ComfyUI's names that are not here: what they do rests on a step size of their own or on no paper.
MISSING = {"dpm_fast", "dpm_adaptive", "cfgpp_ud10_ab"}
COMFYUI = [
    "euler",
    "euler_cfg_pp",
    "euler_ancestral",
    "euler_ancestral_cfg_pp",
    "heun",
    "heunpp2",
    "exp_heun_2_x0",
    "exp_heun_2_x0_sde",
    "dpm_2",
    "dpm_2_ancestral",
    "lms",
    "dpm_fast",
    "dpm_adaptive",
    "dpmpp_2s_ancestral",
    "dpmpp_2s_ancestral_cfg_pp",
    "dpmpp_sde",
    "dpmpp_sde_gpu",
    "dpmpp_2m",
    "dpmpp_2m_cfg_pp",
    "dpmpp_2m_sde",
    "dpmpp_2m_sde_gpu",
    "dpmpp_2m_sde_heun",
    "dpmpp_2m_sde_heun_gpu",
    "dpmpp_3m_sde",
    "dpmpp_3m_sde_gpu",
    "ddpm",
    "lcm",
    "ipndm",
    "ipndm_v",
    "deis",
    "cfgpp_ud10_ab",
    "res_multistep",
    "res_multistep_cfg_pp",
    "res_multistep_ancestral",
    "res_multistep_ancestral_cfg_pp",
    "gradient_estimation",
    "gradient_estimation_cfg_pp",
    "er_sde",
    "seeds_2",
    "seeds_3",
    "sa_solver",
    "sa_solver_pece",
    "ddim",
    "uni_pc",
    "uni_pc_bh2",
]


def test_comfyui_names_are_known() -> None:
    assert len(COMFYUI) == 45
    for name in COMFYUI:
        if name in MISSING:
            with pytest.raises(InvalidParam):
                solver_named(name)
        else:
            assert solver_named(name).name in SOLVERS


def test_other_names_for_the_same_rule() -> None:
    assert solver_named("euler_ancestral") is SOLVERS["euler_a"]
    assert solver_named("euler_a_cfg_pp") is SOLVERS["euler_ancestral_cfg_pp"]
    assert solver_named("dpmpp_2m_sde_gpu") is SOLVERS["dpmpp_2m_sde"]
    assert solver_named("ddim").function is SOLVERS["euler"].function


@pytest.mark.parametrize("name", ["nope", "", "EULER", "euler_gpu"])
def test_an_unknown_name_lists_the_known(name: str) -> None:
    with pytest.raises(InvalidParam, match="euler, euler_cfg_pp, euler_a, ") as caught:
        solver_named(name)
    assert caught.value.param == "sampler"
    assert all(known in str(caught.value) for known in SOLVERS)


def test_what_callers_read_about_a_solver() -> None:
    assert all(name == solver.name for name, solver in SOLVERS.items())
    assert len({solver.label for solver in SOLVERS.values()}) == len(SOLVERS)
    dropping = {name for name, solver in SOLVERS.items() if solver.drops_penultimate}
    assert dropping == {"dpm_2", "dpm_2_ancestral", "uni_pc", "uni_pc_bh2"}
    assert SOLVERS["euler"].options == {}
    assert SOLVERS["euler_a"].options == {"eta": 1.0, "s_noise": 1.0}
    assert SOLVERS["dpmpp_2m_sde"].options["solver_type"] == "midpoint"


@pytest.mark.parametrize("name", ["er_sde", "dpmpp_2m_sde", "seeds_2", "exp_heun_2_x0"])
def test_an_unknown_solver_type_is_an_invalid_param(name: str) -> None:
    start = Trajectory(torch.zeros(1), (1.0, 0.5), lambda: torch.zeros(1), flow=True)
    with pytest.raises(InvalidParam, match="use one of") as caught:
        next(SOLVERS[name].function(start, solver_type="nope"))
    assert caught.value.param == "solver_type"


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("euler", {"eta": 1.0}),
        ("euler_a", {"eta": -0.1}),
        ("euler_a", {"eta": float("nan")}),
        ("euler_a", {"eta": "much"}),
        ("dpmpp_sde", {"r": 0.0}),
        ("ipndm", {"max_order": 5}),
        ("lms", {"order": 0}),
    ],
)
def test_options_are_checked(name: str, options: dict[str, float | int | str | bool]) -> None:
    with pytest.raises(InvalidParam) as caught:
        SOLVERS[name].check(options)
    assert caught.value.param == next(iter(options))


@pytest.mark.parametrize("solver", list(SOLVERS.values()), ids=list(SOLVERS))
def test_defaults_and_limits_of_options_work(solver: Solver) -> None:
    solver.check(solver.options)
    for option, default in solver.options.items():
        if isinstance(default, str):
            continue
        for value in LIMITS[option]:
            solver.check({option: value})
            start = Trajectory(
                torch.zeros(1), (1.0, 0.8, 0.5, 0.3, 0.2), lambda: torch.ones(1), flow=True
            )
            end, _ = run(solver.function(start, **{option: value}), lambda x, *_: x / 2, flow=True)
            assert end.isfinite().all(), (option, value)


def test_the_names_are_there_without_torch() -> None:
    code = "import inline_core.sampling.solvers, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
