"""What a way to divide networks has to offer, and a network that is divided call by call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from inline_core.devices.split import Split

# Arguments that only a whole network can use: residuals of ControlNets have places in the picture,
# kept keys and values belong to one rank, masks are not looked at by divided attention.
_WHOLE_ONLY: Final = (
    "controlnet_block_samples",
    "controlnet_single_block_samples",
    "control_hidden_states",
    "kv_cache_mode",
    "subject",
    "cameras",
)


class ParallelBackend(Protocol):
    """Divides networks over the ranks of this process's group.  Device thread of a rank only."""

    split: Split

    def join(self) -> None:
        """Make the process groups.  Every rank calls it once, at the same time."""

    def leave(self) -> None:
        """Take the process groups apart, so that a backend of another split can join.

        Every rank calls it at the same time; nothing that this backend divided is used any more.
        """

    @property
    def stage(self) -> tuple[int, int]:
        """Which part of the blocks this rank holds, of how many; (0, 1) for all of them."""

    def divide(self, network: Any) -> Any:
        """A loaded network as one that all ranks compute together (see `DividedNetwork`).

        Raises: InvalidParam for a network that this backend does not know.
        """


class DividedNetwork:
    """Stands in for a network: each call is divided, or whole on each rank where it cannot be.

    All ranks make the same calls with the same arguments, so they decide the same.  `use` switches
    the network, `misfit` says why a call cannot be divided ("": it can), `adapt` changes the
    arguments of divided calls.  `note` is why the last call was whole ("": it was divided).
    """

    def __init__(
        self,
        network: Any,
        use: Callable[[bool], None],
        misfit: Callable[[Sequence[Any], Mapping[str, Any]], str],
        adapt: Callable[[dict[str, Any]], dict[str, Any]] = dict,
    ) -> None:
        self.network = network
        self.note = ""
        self._use = use
        self._misfit = misfit
        self._adapt = adapt
        self._divided: bool | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the network; what it gives is whole on every rank."""
        reason = _whole_only(kwargs) or self._misfit(args, kwargs)
        self.note = f"Not split over GPUs: {reason}" if reason else ""
        if self._divided is not (not reason):
            self._divided = not reason
            self._use(self._divided)
        if self._divided:
            kwargs = {key: value for key, value in kwargs.items() if key not in _WHOLE_ONLY}
            kwargs = self._adapt(kwargs)
        return self.network(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """Everything else is the network's own."""
        return getattr(self.network, name)


def _whole_only(kwargs: Mapping[str, Any]) -> str:
    for name in _WHOLE_ONLY:
        if kwargs.get(name) is not None:
            return f"the model is given {name}, which only a whole pass can use"
    return ""


def indivisible(counts: Mapping[str, int], degree: int) -> str:
    """Why counts of tokens cannot be divided, or an empty text."""
    for what, count in counts.items():
        if count % degree:
            return f"{count} tokens of the {what} cannot be divided by {degree}"
    return ""
