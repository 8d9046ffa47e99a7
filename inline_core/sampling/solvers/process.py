"""The two noise processes: flow, x = (1 - sigma) x0 + sigma n, and eps, x = x0 + sigma n.

Both are x = alpha (x0 + ratio n) with ratio = sigma / alpha, so what holds for x0 + ratio n holds
for both after a division by alpha (Karras et al. 2022, arXiv 2206.00364, equation 4).  `lambda` is
-log ratio, half the logarithm of the signal-to-noise ratio (Kingma et al. 2021, arXiv 2107.00630).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.sampling.solvers.base import Estimate

# A flow starts at sigma 1, where the ratio is infinite.  There, and in the ratio only, alpha is
# taken as this.  The eighth power keeps the ratio strictly rising and leaves it as it is elsewhere:
# it changes by 2e-9 at sigma 0.999.
SMALLEST_ALPHA: Final = 1e-4
_POWER: Final = 8


class Ancestral(NamedTuple):
    """Step down to the sigma `down`, then x becomes `scale` x + `spread` n."""

    down: float
    scale: float
    spread: float


class Leg(NamedTuple):
    """One exact step of a reverse SDE while the estimate stays: keep x + pull D + spread n."""

    keep: float
    pull: float
    spread: float


def alpha(sigma: float, flow: bool) -> float:
    """The factor of the clean latents at `sigma`."""
    return 1 - sigma if flow else 1.0


def ratio(sigma: float, flow: bool) -> float:
    """The noise for one unit of clean latents, sigma / alpha; finite for a flow at sigma 1."""
    if not flow:
        return sigma
    return sigma / math.pow((1 - sigma) ** _POWER + SMALLEST_ALPHA**_POWER, 1 / _POWER)


def log_snr(sigma: float, flow: bool) -> float:
    """`lambda` of `sigma`, which is above 0; it grows as the noise falls."""
    return -math.log(ratio(sigma, flow))


def sigma_between(sigma: float, following: float, part: float, flow: bool) -> float:
    """The sigma at `part` of the way in `lambda` from `sigma` to `following`, never outside."""
    place = (1 - part) * log_snr(sigma, flow) + part * log_snr(following, flow)
    noise = math.exp(-place)
    return min(max(noise / (1 + noise) if flow else noise, following), sigma)


def ancestral(sigma: float, following: float, eta: float, flow: bool) -> Ancestral:
    """Split a step so that the added noise keeps the marginal of the process at `following`.

    For eps `eta` 1 is the posterior of the step (Ho et al. 2020, arXiv 2006.11239, equation 7;
    Song, Meng and Ermon 2021, arXiv 2010.02502, equation 16).  For a flow the step goes down by
    `eta` times the same ratio again.  The signal then shrinks by the ratio of the alphas, and the
    variances add up.
    """
    if flow:
        down = max(following * (1 + (following / sigma - 1) * eta), 0.0)
        scale = (1 - following) / (1 - down)
        return Ancestral(down, scale, math.sqrt(max(following**2 - (scale * down) ** 2, 0.0)))
    spread = min(eta * following * math.sqrt(max(1 - (following / sigma) ** 2, 0.0)), following)
    return Ancestral(math.sqrt(following**2 - spread**2), 1.0, spread)


def reverse_leg(sigma: float, following: float, eta: float, flow: bool) -> Leg:
    """Solve the reverse SDE from `sigma` to `following` for a constant estimate.

    `eta` 0 is the probability flow, 1 the SDE of Song et al. 2021 (arXiv 2011.13456); after a width
    h of `lambda` the noise has the variance sigma^2 (1 - exp(-2 eta h)) (Lu et al. 2022, arXiv
    2211.01095, for eta 1; Xue et al. 2023, arXiv 2309.05019, with tau^2 = eta).
    """
    width = max(log_snr(following, flow) - log_snr(sigma, flow), 0.0)
    keep = following / sigma * math.exp(-eta * width)
    # The marginal's mean has to come out: keep alpha(sigma) + pull = alpha(following).
    pull = alpha(following, flow) - keep * alpha(sigma, flow)
    return Leg(keep, pull, following * math.sqrt(-math.expm1(-2 * eta * width)))


def renoised(x: Tensor, estimate: Estimate, sigma: float, flow: bool) -> Tensor:
    """`x` with its noise put on the guided estimate: the noise itself is the unguided one's.

    A solver that goes on from here with the guided estimate is its CFG++ form (Chung et al. 2024,
    arXiv 2406.08070): Tweedie's estimate is the guided D, the noise is (x - alpha U) / sigma.
    """
    return x + alpha(sigma, flow) * (estimate.denoised - estimate.unguided)
