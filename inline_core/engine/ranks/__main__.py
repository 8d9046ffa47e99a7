"""The entry point of a rank: `torchrun -m inline_core.engine.ranks`."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import traceback

from inline_core.engine.ranks.link import Link, RankPlace
from inline_core.sampling.backends.parallel.processes import GROUP_VARIABLE, tie_to_parent


def main() -> int:
    """Tie this process to torchrun and to the server, then work for it; gives the exit code."""
    tie_to_parent()
    place = RankPlace.of(os.environ)
    # The server asks a rank that stands still where it is.
    faulthandler.register(signal.SIGUSR1)
    try:
        link = Link.open(place, os.environ)
    except (OSError, EOFError) as error:
        sys.stderr.write(f"rank {place.rank}: the server cannot be reached: {error}\n")
        return 1
    # The key of the connection is nobody else's business, whatever this process starts.
    os.environ.pop(GROUP_VARIABLE, None)
    told = link.receive()
    try:
        # torch is imported here, after the server knows of this process.
        from inline_core.engine.ranks.work import work

        work(place, link, told)
    except Exception as error:  # noqa: BLE001 - the border of the process
        traceback.print_exc()
        link.fail(error, "its work")
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Without the destructors of libraries, which may wait for ranks that are gone already.
    os._exit(code)
