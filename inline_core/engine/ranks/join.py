"""Another host of a group: `inline-core join` starts its ranks whenever there is a group."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection
from typing import Any, Final, NoReturn

from inline_core.engine.ranks.link import versions
from inline_core.errors import InlineError, InvalidRequest
from inline_core.sampling.backends.parallel.channel import Channel
from inline_core.sampling.backends.parallel.door import knock
from inline_core.sampling.backends.parallel.files import differing
from inline_core.sampling.backends.parallel.processes import (
    Meeting,
    Told,
    card_of,
    kill_all,
    start_agent,
    torchrun_command,
)

_AGAIN_S: Final = 0.5
_FULL_AGAIN_S: Final = 10.0
_LOOK_S: Final = 0.1

Say = Callable[[str], None]


def join(address: str, key: str | None, say: Say) -> NoReturn:
    """Take part in each group of the server at `address` (HOST:PORT), until Ctrl-C.

    `say` tells the user what is going on.  Main thread only, as it lives as long as the groups.
    Raises: InvalidRequest for an address or a key that is wrong, or other releases than there.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        message = f"give HOST:PORT as in INLINE_PARALLEL_ADDRESS of the server, not {address!r}"
        raise InvalidRequest(message)
    if not key:
        message = "INLINE_PARALLEL_KEY is not set: it must be the secret that the server has"
        raise InvalidRequest(message)
    meeting = Meeting(host, int(port), key, 1)
    pause = threading.Event()
    told = ""
    while True:
        try:
            connection = knock(meeting.door, meeting.secret)
        except AuthenticationError as error:
            message = f"INLINE_PARALLEL_KEY is not the one of the server at {address}"
            raise InvalidRequest(message) from error
        except (OSError, EOFError) as error:
            reason = str(error) or type(error).__name__
            if reason != told:
                say(
                    f"Waiting for a group at {address} ({reason}); the server starts one with its "
                    "first picture that is split"
                )
            told = reason
            pause.wait(_AGAIN_S)
            continue
        told = ""
        pause.wait(_AGAIN_S if _take_part(connection, meeting, say) else _FULL_AGAIN_S)


def _take_part(connection: Connection, meeting: Meeting, say: Say) -> bool:
    """Be a host of one group until it ends; False if it needs none."""
    with socket.socket(fileno=os.dup(connection.fileno())) as end:
        card = card_of(end.getsockname()[0])
    channel = Channel(connection, memory="")
    try:
        channel.send(
            {
                "kind": "host",
                "remote": True,
                "host": socket.gethostname(),
                "versions": versions(),
            }
        )
        say("The server is there; waiting for all hosts")
        told = channel.receive()
        if told["kind"] == "refused":
            raise InvalidRequest(told["why"])
        if told["kind"] == "full":
            say(f"Not needed: {told['why']}")
            return False
        _work(channel, meeting, told, {**os.environ, **card}, say)
    except (OSError, EOFError, InlineError) as error:
        if isinstance(error, InvalidRequest):
            raise
        say(f"The group ended before it began ({str(error) or type(error).__name__})")
    finally:
        channel.close()
    return True


def _work(
    channel: Channel,
    meeting: Meeting,
    told: Mapping[str, Any],
    environment: Mapping[str, str],
    say: Say,
) -> None:
    meeting = Meeting(meeting.host, meeting.port, meeting.key, told["hosts"])
    reach = Told(meeting.door, meeting.secret.hex(), told["group"], remote=True, memory="")
    command = torchrun_command(told["local"], meeting, node_rank=told["node_rank"])
    ended = threading.Event()
    answering = threading.Thread(target=_answer, args=(channel, ended), name="join-answer")
    agent: subprocess.Popen[bytes] | None = None
    try:
        agent = start_agent(command, reach, environment, None)
        answering.start()
        say(f"Started {told['local']} ranks as host {told['node_rank'] + 1} of {told['hosts']}")
        while agent.poll() is None and not ended.wait(_LOOK_S):
            pass
    finally:
        # Whatever ends this, nothing is left here.
        channel.hang_up()
        left = kill_all(agent, [])
        if answering.ident is not None:
            answering.join()
    say(f"The group ended{f'; left behind: {left}' if left else ''}")


def _answer(channel: Channel, ended: threading.Event) -> None:
    """Tell the server whether the files of its jobs are the same here, until it hangs up."""
    with contextlib.suppress(OSError, EOFError, InlineError):
        while True:
            asked = channel.receive()
            if asked["kind"] == "files":
                differ = differing(asked["files"])
                channel.send({"kind": "files", "number": asked["number"], "differ": differ})
    ended.set()
