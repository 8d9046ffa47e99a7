"""Every error a client can meet: one root, one stable code each.

The message of an error says what is wrong, where, and what to do about it.  The HTTP status of a
code is decided in one place only, `inline_core.server.errors`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

_LONGEST_VALUE: Final = 80


class RunCancelled(BaseException):
    """Unwinds a run that its owner cancelled.

    It derives from `BaseException`, so that a node's `except Exception` cannot swallow it.
    """


def shown_value(value: object) -> str:
    """A value as messages quote it: its `repr`, cut off where the line would get too long."""
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."


class InlineError(Exception):
    """Root of all errors with a stable `code`; `message` is safe to show to a client.

    `node_id`, `port` and `param` name the place in the graph, where there is one.  `details` holds
    extra JSON-ready facts for programs (never file-system paths outside the configured roots).
    """

    code: ClassVar[str] = "internal"

    def __init__(
        self,
        message: str,
        *,
        node_id: str | None = None,
        port: str | None = None,
        param: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.node_id = node_id
        self.port = port
        self.param = param
        self.details: dict[str, Any] = dict(details or {})


class InvalidRequest(InlineError):
    """The request body, query or header is not what the route takes."""

    code = "invalid_request"


@dataclass(frozen=True, slots=True)
class GraphProblem:
    """One thing wrong with a graph; `severity` is `error` (refused) or `warning` (accepted)."""

    code: str
    message: str
    node_id: str | None = None
    port: str | None = None
    param: str | None = None
    severity: str = "error"


class InvalidGraph(InlineError):
    """The graph cannot run; `problems` lists everything wrong with it, not only the first."""

    code = "invalid_graph"

    def __init__(self, problems: Sequence[GraphProblem]) -> None:
        first = problems[0]
        super().__init__(first.message, node_id=first.node_id, port=first.port, param=first.param)
        self.problems = tuple(problems)


class InvalidParam(InlineError):
    """A parameter value that only the running node could find wrong."""

    code = "invalid_param"


class InvalidAsset(InlineError):
    """An input node's asset reference is malformed, missing, unreadable or not allowed."""

    code = "invalid_asset"


class NoRecipe(InlineError):
    """The file holds no graph of this program: nothing can be started from it."""

    code = "no_recipe"


class Conflict(InlineError):
    """The request contradicts what is stored (a reused `clientRunId`, a finished run)."""

    code = "conflict"


class NotFound(InlineError):
    """No such run, take, asset, node type or path."""

    code = "not_found"


class MethodNotAllowed(InlineError):
    """The path exists but not with this method."""

    code = "method_not_allowed"


class OutputUnavailable(InlineError):
    """The take existed, its bytes are gone for good; retrying will not help."""

    code = "output_unavailable"


class QueueFull(InlineError):
    """The queue cap is reached; try again after `Retry-After` seconds."""

    code = "queue_full"


class PayloadTooLarge(InlineError):
    """The body is over the cap of its route."""

    code = "payload_too_large"


class UnsupportedMediaType(InlineError):
    """The content type of the request is not one the route takes."""

    code = "unsupported_media_type"


class Unauthorized(InlineError):
    """A token is needed and was absent or wrong."""

    code = "unauthorized"


class Forbidden(InlineError):
    """The Host or Origin of the request is not allowed, or the path is outside its root."""

    code = "forbidden"


class ModelFileMissing(InlineError):
    """A model file that a node needs is not in the models folders."""

    code = "model_missing"


class ModelFileInvalid(InlineError):
    """A model file is broken, of another role or family, or in a format that is refused."""

    code = "model_invalid"


class RuntimeMissing(InlineError):
    """The node needs a library that is not installed; the message has the install line."""

    code = "runtime_missing"


class OutOfMemory(InlineError):
    """The device or host memory did not suffice; the message has the numbers and a remedy."""

    code = "out_of_memory"


class DoesNotFit(InlineError):
    """No rung of the ladder fits this model at this size; nothing was loaded."""

    code = "does_not_fit"


class DiskFull(InlineError):
    """There is no room left on the disk for a take or the database."""

    code = "disk_full"


class HubOffline(InlineError):
    """A download was asked for while `HF_HUB_OFFLINE` forbids reaching the model hub."""

    code = "hub_offline"


class HubUnreachable(InlineError):
    """The model hub does not answer, or answers that it is broken; a resume goes on later."""

    code = "hub_unreachable"


class HubRefused(InlineError):
    """The repository is gated or private: its terms, or a token in `HF_TOKEN`, are missing."""

    code = "hub_refused"


class HubNotFound(InlineError):
    """The model hub has no such repository, revision or file."""

    code = "hub_not_found"


class DownloadFailed(InlineError):
    """A download broke off; the bytes that came are kept, and a resume goes on from there."""

    code = "download_failed"


class HashMismatch(InlineError):
    """A downloaded file is not what the hub says it is; its bytes were thrown away."""

    code = "hash_mismatch"


class SizeMismatch(InlineError):
    """A downloaded file is longer or shorter than the hub says; its bytes were thrown away."""

    code = "size_mismatch"


class NotFinite(InlineError):
    """NaN or infinity appeared in the latents or pixels; no picture is stored."""

    code = "not_finite"


class EncodingFailed(InlineError):
    """A video or a sound could not be written as a file; the message has what ffmpeg said."""

    code = "encoding_failed"


class Interrupted(InlineError):
    """The server stopped while the run was running, and its attempts are used up."""

    code = "interrupted"


class NodeFailed(InlineError):
    """A node raised something unforeseen; the traceback is in the server's log."""

    code = "node_failed"


class Internal(InlineError):
    """A fault of the server itself; the traceback is in the server's log."""

    code = "internal"


class Unavailable(InlineError):
    """The server is stopping or not ready; the request was not taken."""

    code = "unavailable"


class WorkerLost(InlineError):
    """A process that computes for the server ended or stalled; the message names it and how."""

    code = "worker_lost"


class AlreadyRunning(InlineError):
    """Another server holds the data directory."""

    code = "already_running"


class PortTaken(InlineError):
    """The port to listen on is in use."""

    code = "port_taken"


def error_of(code: str, message: str) -> InlineError:
    """The error with a code, as another process has told it; `Internal` for an unknown one."""
    kinds = [
        kind
        for kind in globals().values()
        if isinstance(kind, type) and issubclass(kind, InlineError) and kind.code == code
    ]
    kind = kinds[0] if kinds and kinds[0] is not InvalidGraph else Internal
    return kind(message)
