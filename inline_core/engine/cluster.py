"""The sampler of a server whose jobs go to a Ray cluster."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Final

from inline_core.errors import InvalidRequest, RuntimeMissing
from inline_core.settings import Settings

if TYPE_CHECKING:
    from inline_core.sampling.backends.ray_cluster import RaySampler

INSTALL_LINE: Final = 'pip install "inline-core[cluster]"'
DRIVER_MODULE: Final = "inline_core.engine.cluster_driver"
# Releases that decide what a worker computes; xDiT is for groups.
_SAME: Final = ("inline-core", "torch", "diffusers", "transformers")


def with_cluster(settings: Settings) -> RaySampler:
    """The sampler for `settings.ray_address`; the cluster is joined with the first job.

    Raises: RuntimeMissing without Ray.
    """
    missing = [name for name in ("ray", "msgpack") if importlib.util.find_spec(name) is None]
    if missing:
        message = f"INLINE_RAY_ADDRESS needs {' and '.join(missing)}: {INSTALL_LINE}"
        raise RuntimeMissing(message, details={"missing": missing})
    from inline_core.sampling.backends.ray_cluster import RaySampler

    return RaySampler(settings, same_releases(), DRIVER_MODULE)


def same_releases() -> dict[str, str]:
    """Releases that every worker must have as the server has them."""
    # Not above: it needs msgpack, which a server without a cluster does without.
    from inline_core.engine.ranks.link import versions

    return {name: version for name, version in versions().items() if name in _SAME}


def check_cluster(settings: Settings) -> None:
    """Refuse a cluster together with a split over GPUs.  Raises: InvalidRequest."""
    split = settings.parallel.strip().lower() not in {"", "off"}
    if settings.ray_address and (split or settings.multi_gpu):
        other = "INLINE_PARALLEL" if split else "INLINE_MULTI_GPU"
        message = (
            f"INLINE_RAY_ADDRESS sends whole jobs to a cluster and {other} splits each over GPUs "
            "here: unset one of the two"
        )
        raise InvalidRequest(message)
