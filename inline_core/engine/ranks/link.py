"""What ties a rank to the server: it says hello, beats, and ends when the server or torchrun does.

Nothing here imports torch: a rank is tied before that takes its seconds.
"""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Final, NoReturn

from inline_core.errors import InlineError
from inline_core.sampling.backends.parallel.channel import Channel
from inline_core.sampling.backends.parallel.door import knock
from inline_core.sampling.backends.parallel.processes import EXIT_ORPHAN, Told
from inline_core.version import __version__

BEAT_S: Final = 0.25
EXIT_FAILED: Final = 4
# How an exchange fails whose other end is gone, in gloo, NCCL and the store of torch.
_OTHERS_GONE: Final = re.compile(
    r"closed by peer|reset by peer|broken pipe|gloo|nccl|remote process exited|DistNetworkError",
    re.IGNORECASE,
)
_PACKAGES: Final = ("torch", "diffusers", "transformers", "xfuser")


@dataclass(frozen=True, slots=True)
class RankPlace:
    """Which rank this process is, as torchrun says."""

    rank: int
    local_rank: int
    world: int

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> RankPlace:
        """From the variables that torchrun sets."""
        return cls(*(int(environment[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")))

    @property
    def leads(self) -> bool:
        """Whether this is the rank that takes jobs: the last, where PipeFusion ends."""
        return self.rank == self.world - 1


def versions() -> dict[str, str]:
    """Releases that have to be the same in the server and in all ranks."""
    found = {"inline-core": __version__}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


class Link:
    """The connection of a rank to the server."""

    def __init__(self, channel: Channel, place: RankPlace) -> None:
        self._channel = channel
        self.place = place
        self._parent = os.getppid()
        self._passes = 0
        self._ended = threading.Event()

    @classmethod
    def open(cls, place: RankPlace, environment: Mapping[str, str]) -> Link:
        """Connect and say hello.  Raises: OSError, AuthenticationError."""
        told = Told.of(environment)
        connection = knock(told.address, bytes.fromhex(told.key))
        link = cls(Channel(connection, memory=told.memory), place)
        link.send(
            kind="hello",
            rank=place.rank,
            pid=os.getpid(),
            group=told.group,
            host=socket.gethostname(),
            remote=told.remote,
            versions=versions(),
        )
        return link

    def send(self, **message: Any) -> None:
        """Send a message; when the server is gone, so is this process."""
        try:
            self._channel.send(message)
        except OSError:
            self._leave()

    def receive(self) -> dict[str, Any]:
        """The next message; when the server is gone, so is this process."""
        try:
            return self._channel.receive()
        except (EOFError, OSError):
            self._leave()

    def watch(self, handle: Callable[[dict[str, Any]], None]) -> None:
        """Handle messages and send beats on threads of their own, for as long as the process is."""

        def listen() -> None:
            while True:
                handle(self.receive())

        threading.Thread(target=listen, name="rank-listen", daemon=True).start()
        threading.Thread(target=self._beat, name="rank-beat", daemon=True).start()

    def passed(self) -> None:
        """Count a finished forward pass: the server sees who stands still."""
        self._passes += 1

    def fail(self, error: BaseException, doing: str) -> NoReturn:
        """Say why this rank cannot go on, and end it: the others wait for it in vain."""
        inline = error if isinstance(error, InlineError) else None
        text = inline.message if inline else f"{type(error).__name__}: {error}".strip()
        self.send(
            kind="failed",
            code=inline.code if inline else "worker_lost",
            message=text,
            doing=doing,
            # The cause is another rank's then.
            echo=inline is None and bool(_OTHERS_GONE.search(text)),
        )
        self._ended.set()
        os._exit(EXIT_FAILED)

    def finish(self) -> None:
        """The group is dissolved: from now on the end of the connection is no fault."""
        self._ended.set()

    def _beat(self) -> None:
        while not self._ended.wait(BEAT_S):
            if os.getppid() != self._parent:
                # torchrun is gone: nobody would end this process with the others.  (On Linux the
                # kernel has ended it already, see `tie_to_parent`.)
                os._exit(EXIT_ORPHAN)
            self.send(kind="beat", passes=self._passes)

    def _leave(self) -> NoReturn:
        os._exit(0 if self._ended.is_set() else EXIT_ORPHAN)
