"""The model hub's protocol: what a file is, and its bytes from any offset.

Addresses, headers, the token and the metadata come from huggingface_hub; the bytes are streamed
here, because its own transfer cannot be stopped.  Nothing is kept in its cache.  The library is
imported at the first download, never at start.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from inline_core.downloads.stop import StopSignal
from inline_core.errors import (
    DownloadFailed,
    HubNotFound,
    HubOffline,
    HubRefused,
    HubUnreachable,
    InlineError,
    SizeMismatch,
)
from inline_core.loading.rules import RequiredFile

if TYPE_CHECKING:
    import httpx2

_DIGEST_LENGTHS: Final = {64, 40}
_HEX: Final = frozenset("0123456789abcdef")
_TIMEOUT_S: Final = 10.0
_YES: Final = {"1", "ON", "YES", "TRUE"}
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _TOO_MANY, _SERVER_ERROR = 401, 403, 404, 429, 500
_OK, _PARTIAL = 200, 206


class ConnectionCut(DownloadFailed):
    """The connection broke while bytes came; asking again from there may help."""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file as the hub describes it, at an address that names the exact commit.

    `digest` is a sha256 (64 hex digits) or the sha1 of a git blob (40).
    """

    label: str
    url: str
    size_bytes: int
    digest: str


@dataclass(frozen=True, slots=True)
class Reply:
    """An open answer: its bytes begin at `start` of the file."""

    start: int
    chunks: Iterator[bytes]


class Hub:
    """The hub that `HF_ENDPOINT` names, or the library's own.  Any thread."""

    def check_online(self) -> None:
        """Raises: HubOffline if the environment forbids to reach the hub."""
        for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
            if os.environ.get(name, "").upper() in _YES:
                message = (
                    f"{name} is set, so nothing can be downloaded: unset it and start the server "
                    "again, or copy the file into the models folder."
                )
                raise HubOffline(message)

    def describe(self, file: RequiredFile) -> RemoteFile:
        """Size and hash of a file.  Blocks up to ten seconds.

        Raises: HubOffline, HubUnreachable, HubRefused, HubNotFound, DownloadFailed.
        """
        self.check_online()
        _quiet()
        from huggingface_hub import get_hf_file_metadata, hf_hub_url

        label = f"{file.repo}/{file.file}"
        endpoint = os.environ.get("HF_ENDPOINT", "").rstrip("/") or None
        with _told(label, lost=HubUnreachable):
            url = hf_hub_url(file.repo, file.file, revision=file.revision, endpoint=endpoint)
            found = get_hf_file_metadata(
                url, timeout=_TIMEOUT_S, endpoint=endpoint, library_name="inline-core"
            )
        digest = (found.etag or "").lower()
        if found.size is None or len(digest) not in _DIGEST_LENGTHS or not _HEX.issuperset(digest):
            message = (
                f"The hub names no size or hash of {label}, so it could not be checked: nothing "
                "was downloaded. If HF_ENDPOINT names a mirror, try without it."
            )
            raise DownloadFailed(message)
        if found.commit_hash:
            # A branch may move on while its bytes come, or before they are resumed.
            url = hf_hub_url(file.repo, file.file, revision=found.commit_hash, endpoint=endpoint)
        return RemoteFile(label, url, found.size, digest)

    @contextlib.contextmanager
    def open(self, remote: RemoteFile, start: int, stop: StopSignal) -> Iterator[Reply]:
        """The bytes of a file from `start` on (or from 0, if the hub knows no ranges).

        `stop` ends a wait for bytes at once.  Raises: ConnectionCut, SizeMismatch, Stopped and
        what `describe` raises.
        """
        _quiet()
        from huggingface_hub import get_session
        from huggingface_hub.utils import (  # type: ignore[attr-defined] # public, not re-exported
            build_hf_headers,
            hf_raise_for_status,
        )

        headers = build_hf_headers(library_name="inline-core") | {"Accept-Encoding": "identity"}
        if start:
            headers["Range"] = f"bytes={start}-"
        with _told(remote.label, lost=ConnectionCut):  # noqa: SIM117 - it must be outermost
            with get_session().stream(
                "GET", remote.url, headers=headers, timeout=_TIMEOUT_S, follow_redirects=True
            ) as response:
                hf_raise_for_status(response)
                begin = _check_length(response, remote, start)
                with stop.waking(lambda: _hang_up(response)):
                    yield Reply(begin, response.iter_raw())


def _quiet() -> None:
    """Let the library ask only what we ask.

    Otherwise its first request fetches a list of coding agents from the hub, to name one in the
    user agent, and keeps that list in the cache folder of the user.
    """
    from huggingface_hub import constants

    constants.HF_HUB_DISABLE_TELEMETRY = True


def _check_length(response: httpx2.Response, remote: RemoteFile, start: int) -> int:
    """Where the bytes begin.  Raises: SizeMismatch if the whole would have another length."""
    if response.status_code == _PARTIAL:
        told = response.headers.get("Content-Range", "").rpartition("/")[2]
    elif response.status_code == _OK:
        told, start = response.headers.get("Content-Length", ""), 0
    else:
        message = f"The hub answered {response.status_code} for {remote.label}."
        raise DownloadFailed(message)
    if told.isdigit() and int(told) != remote.size_bytes:
        raise wrong_size(remote, int(told))
    return start


def wrong_size(remote: RemoteFile, found: int) -> SizeMismatch:
    """The error for a file whose length is not what the hub says."""
    message = (
        f"{remote.label} has {found} bytes, but the hub says {remote.size_bytes}: what came was "
        "thrown away. Try again; if it stays so, the repository or the mirror is broken."
    )
    details = {"file": remote.label, "expectedBytes": remote.size_bytes, "foundBytes": found}
    return SizeMismatch(message, details=details)


def _hang_up(response: httpx2.Response) -> None:
    """Wake the thread that reads this response: its next read ends."""
    stream: Any = response.extensions.get("network_stream")
    connection = stream.get_extra_info("socket") if stream is not None else None
    if isinstance(connection, socket.socket):
        with contextlib.suppress(OSError):
            # The plain one, not that of ssl: it leaves the state of the reading thread alone.
            socket.socket.shutdown(connection, socket.SHUT_RDWR)


@contextlib.contextmanager
def _told(label: str, *, lost: type[InlineError]) -> Iterator[None]:
    """Turn the library's errors into ours; addresses and headers are never repeated."""
    import httpx2
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled

    try:
        yield
    except OfflineModeIsEnabled as error:
        message = "The server was started with HF_HUB_OFFLINE set: unset it and start again."
        raise HubOffline(message) from error
    except HfHubHTTPError as error:
        raise _refused(label, error) from error
    except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
        mirror = " (HF_ENDPOINT names it)" if os.environ.get("HF_ENDPOINT") else ""
        message = (
            f"The hub{mirror} could not be reached for {label} ({type(error).__name__}): check the "
            "network, then resume the download."
        )
        raise lost(message) from error
    except HFValidationError as error:
        message = f"{label} is no valid name of a repository and a file."
        raise HubNotFound(message) from error


def _refused(label: str, error: Any) -> InlineError:
    """What an error status of the hub means, and what to do about it."""
    from huggingface_hub.errors import (
        DisabledRepoError,
        GatedRepoError,
        RemoteEntryNotFoundError,
        RevisionNotFoundError,
    )

    status = error.response.status_code
    details = {"file": label, "hubStatus": status}
    if isinstance(error, GatedRepoError):
        message = (
            f"{label} is gated: accept its terms on the hub with your account, put an access "
            "token of that account into HF_TOKEN and start the server again."
        )
        return HubRefused(message, details=details)
    if isinstance(error, RevisionNotFoundError):
        return HubNotFound(f"The repository of {label} has no such revision.", details=details)
    if isinstance(error, RemoteEntryNotFoundError):
        message = f"The repository has no file {label}: check its path."
        return HubNotFound(message, details=details)
    if isinstance(error, DisabledRepoError) or status in {_UNAUTHORIZED, _FORBIDDEN}:
        message = (
            f"The hub does not give {label}: the repository does not exist, or it is private. "
            "Check the name, put an access token that may read it into HF_TOKEN and start the "
            "server again."
        )
        return HubRefused(message, details=details)
    if status == _NOT_FOUND:
        message = f"The hub has no repository for {label}: check the name."
        return HubNotFound(message, details=details)
    if status == _TOO_MANY or status >= _SERVER_ERROR:
        message = f"The hub cannot serve {label} now (status {status}): resume the download later."
        return HubUnreachable(message, details=details)
    message = f"The hub answered {status} for {label}."
    return DownloadFailed(message, details=details)
