"""Muon for the hidden matrices: momentum steps whose singular values are made about equal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import nn

COEFFICIENTS: Final = (3.4445, -4.7750, 2.0315)
ITERATIONS: Final = 4
MOMENTUM: Final = 0.95


def orthogonalise(stack: torch.Tensor) -> torch.Tensor:
    """Return matrices (N, R, C) with about the same singular vectors and values near 1.

    torch.optim.Muon iterates in bfloat16, which a CPU without such units does 30 times slower.
    """
    tall = stack.shape[1] > stack.shape[2]
    x = stack.transpose(1, 2) if tall else stack  # (N, r, c) with r <= c
    x = x / (x.flatten(1).norm(dim=1)[:, None, None] + 1e-7)  # (N, r, c)
    first, second, third = COEFFICIENTS
    for _ in range(ITERATIONS):
        gram = x @ x.transpose(1, 2)  # (N, r, r)
        x = first * x + (second * gram + third * gram @ gram) @ x  # (N, r, c)
    result: torch.Tensor = x.transpose(1, 2) if tall else x  # (N, R, C)
    return result


class Muon(torch.optim.Optimizer):
    """Steps matrices of the same shape together.

    :param params: two-dimensional parameters only.
    :param lr: learning rate; 0.02 is usual.
    :param rank: this worker's number; each of the `workers` does its part of the matrices.
    """

    def __init__(
        self, params: Iterable[nn.Parameter], lr: float, rank: int = 0, workers: int = 1
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": MOMENTUM})
        self._rank, self._workers = rank, workers

    def _directions(self, stack: torch.Tensor) -> torch.Tensor:
        """Return `orthogonalise` of (N, R, C), made by all workers together."""
        if self._workers == 1:
            return orthogonalise(stack)
        result = torch.zeros_like(stack)  # (N, R, C)
        mine = slice(self._rank, None, self._workers)
        if len(stack[mine]):
            result[mine] = orthogonalise(stack[mine])
        dist.all_reduce(result)
        return result

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # noqa: ARG002
        """Make one step; `closure` is not used."""
        for group in self.param_groups:
            shapes: dict[torch.Size, list[nn.Parameter]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    shapes[parameter.shape].append(parameter)
            for shape, parameters in shapes.items():
                self._step_together(parameters, shape, group["lr"], group["momentum"])

    def _step_together(
        self, parameters: list[nn.Parameter], shape: torch.Size, rate: float, keep: float
    ) -> None:
        """Step parameters of one shape (R, C)."""
        updates = []
        for parameter in parameters:
            gradient = parameter.grad
            if gradient is None:
                raise ValueError("a parameter has no gradient")
            state = self.state[parameter]
            if "momentum" not in state:
                state["momentum"] = torch.zeros_like(parameter)  # (R, C)
            state["momentum"].lerp_(gradient, 1.0 - keep)
            updates.append(gradient.lerp(state["momentum"], keep))  # (R, C)
        scale = -rate * max(1.0, shape[0] / shape[1]) ** 0.5
        directions = self._directions(torch.stack(updates))  # (N, R, C)
        torch._foreach_add_([*parameters], list(directions.unbind(0)), alpha=scale)
