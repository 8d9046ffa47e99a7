"""The ffmpeg program that comes with imageio-ffmpeg: fed piece by piece, always reaped."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Final

from inline_core.errors import DiskFull, EncodingFailed, RuntimeMissing

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

POLL_S: Final = 0.1
EXACT: Final = ("-fflags", "+bitexact", "-flags:v", "+bitexact", "-flags:a", "+bitexact")
"""Options that keep times, versions and shortcuts of one processor out of a file."""

_QUIET: Final = ("-hide_banner", "-nostdin", "-nostats", "-loglevel", "error", "-y")
_TAIL_BYTES: Final = 4096
_NO_SPACE: Final = "No space left on device"


def run_ffmpeg(
    arguments: Sequence[str],
    chunks: Iterable[ReadableBuffer],
    check: Callable[[], None],
    what: str,
) -> None:
    """Run ffmpeg with `chunks` at its standard input; `what` names the work in errors.

    `check` is asked before every chunk and while waiting; when it raises, the process is ended.
    Blocks; any thread.
    Raises: EncodingFailed with the last line of ffmpeg, DiskFull, RuntimeMissing, and whatever
    `check` or `chunks` raise.
    """
    # What it says goes to a file: a pipe that nobody empties would stop it in the middle.
    with tempfile.TemporaryFile() as said:
        process = _start([_program(), *_QUIET, *arguments], said)
        try:
            complete = _feed(process, chunks, check)
            code = _wait(process, check)
        finally:
            _end(process)
        if code == 0 and complete:
            return
        check()
        raise _failure(what, _last_line(said), code)


def _program() -> str:
    try:
        from imageio_ffmpeg import get_ffmpeg_exe  # type: ignore[import-untyped]

        return str(get_ffmpeg_exe())
    except (ImportError, RuntimeError) as error:
        message = (
            "Videos and sounds are written with ffmpeg, which is not here. Install it: "
            "pip install imageio-ffmpeg"
        )
        raise RuntimeMissing(message) from error


def _start(command: Sequence[str], said: IO[bytes]) -> subprocess.Popen[bytes]:
    try:
        # Of its own session: Ctrl-C is for the server, which then decides about its runs.
        return subprocess.Popen(  # noqa: S603 - no shell; the arguments are built here
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=said,
            start_new_session=True,
        )
    except OSError as error:
        message = f"ffmpeg could not be started: {error.strerror}."
        raise EncodingFailed(message) from error


def _feed(
    process: subprocess.Popen[bytes],
    chunks: Iterable[ReadableBuffer],
    check: Callable[[], None],
) -> bool:
    """Write everything; False if ffmpeg stopped reading."""
    pipe = process.stdin
    if pipe is None:
        return False
    try:
        for chunk in chunks:
            check()
            pipe.write(chunk)
        pipe.close()
    except (BrokenPipeError, ConnectionResetError):
        return False
    return True


def _wait(process: subprocess.Popen[bytes], check: Callable[[], None]) -> int:
    while True:
        try:
            return process.wait(POLL_S)
        except subprocess.TimeoutExpired:
            check()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Whatever happened: the process is gone and reaped."""
    if process.poll() is None:
        process.kill()
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
    process.wait()


def _last_line(said: IO[bytes]) -> str:
    size = said.seek(0, 2)
    said.seek(max(0, size - _TAIL_BYTES))
    lines = said.read().decode("utf-8", "replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _failure(what: str, line: str, code: int) -> EncodingFailed | DiskFull:
    if _NO_SPACE in line:
        message = f"The disk is full: {what} was not written. Free some space and retry."
        return DiskFull(message)
    told = f"ffmpeg said: {line}" if line else f"ffmpeg ended with code {code} and said nothing"
    message = f"Writing {what} failed; {told.rstrip('.')}."
    return EncodingFailed(message)
