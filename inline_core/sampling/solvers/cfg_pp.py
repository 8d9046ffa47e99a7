"""CFG++ forms (Chung et al. 2024, arXiv 2406.08070): the noise is the unguided estimate's.

Each is its plain form, going on from latents whose noise is put on the guided estimate (see
`renoised`); without guidance it equals the plain form.  As in the paper the guidance works once a
step, so that the result depends on the number of steps and there is no limit to converge to.
"""

from __future__ import annotations

from inline_core.sampling.solvers.adams import gradient_estimation
from inline_core.sampling.solvers.base import Steps, Trajectory
from inline_core.sampling.solvers.dpmpp import (
    dpmpp_2m,
    dpmpp_2s_ancestral,
    res_multistep,
    res_multistep_ancestral,
)
from inline_core.sampling.solvers.euler import euler, euler_a


def euler_cfg_pp(start: Trajectory) -> Steps:
    """DDIM with CFG++ (Chung et al. 2024)."""
    return euler(start, pp=True)


def euler_ancestral_cfg_pp(start: Trajectory, *, eta: float = 1.0, s_noise: float = 1.0) -> Steps:
    """`euler_a` with CFG++."""
    return euler_a(start, pp=True, eta=eta, s_noise=s_noise)


def dpmpp_2s_ancestral_cfg_pp(
    start: Trajectory, *, eta: float = 1.0, s_noise: float = 1.0
) -> Steps:
    """`dpmpp_2s_ancestral` with CFG++; both stages keep the first noise of the step."""
    return dpmpp_2s_ancestral(start, pp=True, eta=eta, s_noise=s_noise)


def dpmpp_2m_cfg_pp(start: Trajectory) -> Steps:
    """`dpmpp_2m` with CFG++."""
    return dpmpp_2m(start, pp=True)


def res_multistep_cfg_pp(start: Trajectory) -> Steps:
    """`res_multistep` with CFG++."""
    return res_multistep(start, pp=True)


def res_multistep_ancestral_cfg_pp(
    start: Trajectory, *, eta: float = 1.0, s_noise: float = 1.0
) -> Steps:
    """`res_multistep_ancestral` with CFG++."""
    return res_multistep_ancestral(start, pp=True, eta=eta, s_noise=s_noise)


def gradient_estimation_cfg_pp(start: Trajectory, *, ge_gamma: float = 2.0) -> Steps:
    """`gradient_estimation` with CFG++."""
    return gradient_estimation(start, pp=True, ge_gamma=ge_gamma)
