"""Step rules: how latents move from one sigma to the next.

A solver is a generator.  It yields a `Query` for each estimate of the clean latents it needs, is
sent that `Estimate`, and returns the final latents.  Its local variables are the state of one job,
so jobs with different solvers, steps and sigmas can share every forward pass.
"""

from inline_core.sampling.solvers.base import Estimate, Query, Steps, Trajectory
from inline_core.sampling.solvers.registry import SOLVERS, Solver, solver_named

__all__ = ["SOLVERS", "Estimate", "Query", "Solver", "Steps", "Trajectory", "solver_named"]
