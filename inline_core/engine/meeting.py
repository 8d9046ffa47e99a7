"""Where the ranks of several hosts meet.  Needs nothing of the extra `parallel`."""

from __future__ import annotations

from inline_core.errors import InvalidRequest
from inline_core.sampling.backends.parallel.processes import Meeting
from inline_core.settings import Settings


def meeting_of(settings: Settings) -> Meeting | None:
    """Where the ranks of several hosts meet, by the settings.

    Raises: InvalidRequest if the address or the key is missing or cannot be read.
    """
    if settings.parallel_hosts == 1:
        return None
    host, _, port = settings.parallel_address.rpartition(":")
    if not host or not port.isdigit():
        message = (
            f"INLINE_PARALLEL_HOSTS is {settings.parallel_hosts}, so INLINE_PARALLEL_ADDRESS must "
            f"be HOST:PORT, reachable by all of them, not {settings.parallel_address!r}"
        )
        raise InvalidRequest(message)
    if not settings.parallel_key:
        message = "ranks of other hosts need INLINE_PARALLEL_KEY, the same secret on all hosts"
        raise InvalidRequest(message)
    return Meeting(host, int(port), settings.parallel_key, settings.parallel_hosts)
