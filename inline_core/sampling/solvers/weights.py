"""Weights of past estimates: integrals of the polynomials through them, by Gauss quadrature."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

# Points and weights of the five-point Gauss-Legendre rule on -1..1.
_GAUSS: Final = (
    (0.0, 0.5688888888888889),
    (0.5384693101056831, 0.47862867049936647),
    (-0.5384693101056831, 0.47862867049936647),
    (0.906179845938664, 0.23692688505618908),
    (-0.906179845938664, 0.23692688505618908),
)


def integral(
    function: Callable[[float], float], start: float, end: float, panels: int = 8
) -> float:
    """Integrate a smooth function; exact for polynomials up to degree 9, in one panel too."""
    half = (end - start) / (2 * panels)
    total = 0.0
    for panel in range(panels):
        middle = start + (2 * panel + 1) * half
        total += sum(weight * function(middle + half * point) for point, weight in _GAUSS)
    return total * half


def polynomial_weights(
    nodes: Sequence[float],
    start: float,
    end: float,
    density: Callable[[float], float] | None = None,
    panels: int = 1,
) -> list[float]:
    """Weights w with sum(w f(node)) = the integral of density times the polynomial through f."""

    def weight(index: int) -> float:
        own = nodes[index]
        others = [node for place, node in enumerate(nodes) if place != index]

        def weighted(at: float) -> float:
            basis = math.prod((at - other) / (own - other) for other in others)
            return basis if density is None else density(at) * basis

        return integral(weighted, start, end, panels)

    return [weight(index) for index in range(len(nodes))]


def exponential_weights(
    nodes: Sequence[float], start: float, end: float, rate: float = 1.0
) -> list[float]:
    """Weights of an exponential Adams step in `lambda`; their sum is 1 - exp(-rate (end - start)).

    The density is rate exp(-rate (end - u)) (Hochbruck and Ostermann 2010).
    """
    panels = 1 + int(rate * (end - start))
    return polynomial_weights(
        nodes, start, end, lambda u: rate * math.exp(-rate * (end - u)), panels
    )
