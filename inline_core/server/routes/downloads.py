"""Downloads into the models folder, and what a node type needs there."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request, WebSocket, WebSocketDisconnect
from fastapi.responses import JSONResponse
from pydantic import ConfigDict, Field, RootModel
from pydantic.alias_generators import to_camel
from starlette.concurrency import run_in_threadpool

from inline_core.downloads.feed import Reader
from inline_core.downloads.record import Download, State
from inline_core.downloads.request import Wanted, want_file, want_requirement
from inline_core.downloads.requirements import find_requirement, presence, requirements_of
from inline_core.engine.estimate import plan_json
from inline_core.errors import NotFound
from inline_core.graph.spec import NodeSpec
from inline_core.loading.rules import Requirement
from inline_core.server.body import parse_model, read_json
from inline_core.server.models import ErrorEnvelope, Wire
from inline_core.server.openapi import json_body, replies
from inline_core.server.routes.memory import FitEstimate
from inline_core.server.scope import ServicesOf, services_of
from inline_core.server.services import Services
from inline_core.server.submit import require_object
from inline_core.settings import MIB

router = APIRouter(tags=["downloads"])
PROGRESS_INTERVAL_S = 0.1
_SEND_TIMEOUT_S = 30.0
_OK, _ACCEPTED = 200, 202
_EXAMPLE = {"nodeType": "alibaba/z-image-turbo", "requirement": "vae"}
_BAD_GATEWAY: dict[int | str, dict[str, Any]] = {
    502: {"model": ErrorEnvelope, "description": "The model hub failed, or cannot be reached."}
}
_STRICT = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")


class FileRequest(Wire):
    """One file of a repository, saved as `<category>/<name>`."""

    model_config = _STRICT

    repo: str = Field(description="organisation/name")
    file: str = Field(description="Path within the repository.")
    category: str = Field(description="A category of the models folder, such as `vae`.")
    revision: str = Field("main", description="Branch, tag or commit.")
    name: str | None = Field(None, description="Saved as; the file's own name if absent.")


class RequirementRequest(Wire):
    """Everything one requirement of a node type consists of."""

    model_config = _STRICT

    node_type: str
    requirement: str


class DownloadRequest(RootModel[FileRequest | RequirementRequest]):
    """What to download: a file, or a requirement of a node type."""


class DownloadFile(Wire):
    """One file of a download."""

    repo: str
    file: str
    revision: str
    name: str
    bytes_done: int
    bytes_total: int | None


class DownloadError(Wire):
    """Why a download failed."""

    code: str
    message: str
    details: dict[str, Any]


class DownloadModel(Wire):
    """A download; times are milliseconds since the epoch.

    `target` is `<category>/<name>`; `bytesTotal` is null until the hub was asked.
    """

    id: str
    state: Literal["queued", "running", "done", "failed", "cancelled", "interrupted"]
    target: str
    category: str
    node_type: str | None
    requirement: str | None
    bytes_done: int
    bytes_total: int | None
    files: list[DownloadFile]
    error: DownloadError | None
    created_at: int
    updated_at: int
    finished_at: int | None


class DownloadList(Wire):
    """All downloads, newest first."""

    downloads: list[DownloadModel]


class RequirementModel(Wire):
    """One thing a node type needs.

    `present`: a file that serves is there, under whatever name (`found`).  `fits` is false where
    one is there that does not go with the diffusion model.  `demo`: only the bundled demo model
    has it.  `sizeBytes` is about what it weighs.
    """

    id: str
    label: str
    role: str
    category: str
    present: bool
    fits: bool | None
    found: str | None
    demo: bool
    local_path: str
    repo: str
    file: str
    source: str
    size_bytes: int
    optional: bool
    download: DownloadModel | None


class RequirementsReply(Wire):
    """What a node type needs, and what it will take of the machine once all of it is there."""

    components: list[RequirementModel]
    all_present: bool
    estimate: FitEstimate | None


def download_json(download: Download) -> dict[str, Any]:
    """A download as the wire tells it."""
    error = download.error
    return {
        "id": download.id,
        "state": download.state.value,
        "target": download.wanted.target,
        "category": download.wanted.category,
        "nodeType": download.wanted.node_type,
        "requirement": download.wanted.requirement,
        "bytesDone": download.bytes_done,
        "bytesTotal": download.bytes_total,
        "files": [
            {
                "repo": file.repo,
                "file": file.file,
                "revision": file.revision,
                "name": file.name,
                "bytesDone": progress.bytes_done,
                "bytesTotal": progress.size_bytes,
            }
            for file, progress in zip(download.wanted.files, download.files, strict=True)
        ],
        "error": (
            {"code": error.code, "message": error.message, "details": dict(error.details)}
            if error
            else None
        ),
        "createdAt": download.created_at_ms,
        "updatedAt": download.updated_at_ms,
        "finishedAt": download.finished_at_ms,
    }


def _reply(download: Download) -> JSONResponse:
    status = _OK if download.state is State.DONE else _ACCEPTED
    return JSONResponse(download_json(download), status)


@router.post(
    "/v1/downloads",
    status_code=_ACCEPTED,
    response_model=DownloadModel,
    responses={
        _OK: {"model": DownloadModel, "description": "The very file is there already."},
        **replies(400, 404, 409, 413, 415, 422, 429, 503, 507),
        **_BAD_GATEWAY,
    },
    openapi_extra=json_body(DownloadRequest, _EXAMPLE),
)
async def add_download(request: Request, services: ServicesOf) -> JSONResponse:
    """Fetch a file, or a requirement of a node type, from the model hub into the models folder.

    Asking again for the same gives the same download, and goes on with one that stopped.
    """
    document = await read_json(request, services.settings.max_body_mb * MIB)
    wanted = _wanted(document, services)
    return _reply(await run_in_threadpool(services.downloads.add, wanted))


def _wanted(document: Any, services: Services) -> Wanted:
    require_object(document)
    # Which of the two it is decides what its errors are about.
    if {"nodeType", "requirement"} & document.keys():
        asked = parse_model(RequirementRequest, document)
        found = find_requirement(services.specs, asked.node_type, asked.requirement)
        return want_requirement(asked.node_type, found)
    file = parse_model(FileRequest, document)
    return want_file(
        file.repo, file.file, file.category, revision=file.revision, name=file.name
    )  # fmt: skip


@router.get("/v1/downloads", response_model=DownloadList, responses=replies())
def list_downloads(services: ServicesOf) -> JSONResponse:
    """All downloads, newest first; the unfinished of earlier servers are `interrupted`."""
    return JSONResponse({"downloads": [download_json(d) for d in services.downloads.all()]})


@router.get(
    "/v1/downloads/{download_id}", response_model=DownloadModel, responses=replies(404)
)  # fmt: skip
def get_download(download_id: Annotated[str, Path()], services: ServicesOf) -> JSONResponse:
    """One download."""
    return JSONResponse(download_json(services.downloads.get(download_id)))


@router.delete(
    "/v1/downloads/{download_id}",
    response_model=DownloadModel,
    responses=replies(404, 409, 422),
)
def cancel_download(
    download_id: Annotated[str, Path()],
    services: ServicesOf,
    discard: Annotated[
        bool, Query(description="Also throw the record and the unfinished bytes away.")
    ] = False,
) -> JSONResponse:
    """Stop a download; what came is kept for a resume, unless `discard`.  409 once it has ended."""
    downloads = services.downloads
    act = downloads.discard if discard else downloads.cancel
    return JSONResponse(download_json(act(download_id)))


@router.post(
    "/v1/downloads/{download_id}/resume",
    status_code=_ACCEPTED,
    response_model=DownloadModel,
    responses={
        _OK: {"model": DownloadModel, "description": "It is done."},
        **replies(404, 409, 429, 503, 507),
        **_BAD_GATEWAY,
    },
)
def resume_download(download_id: Annotated[str, Path()], services: ServicesOf) -> JSONResponse:
    """Go on with a download that failed, was cancelled or interrupted; what came is kept."""
    return _reply(services.downloads.resume(download_id))


@router.get(
    "/v1/models/{node_type:path}/requirements",
    response_model=RequirementsReply,
    responses=replies(404),
)
def get_requirements(node_type: Annotated[str, Path()], services: ServicesOf) -> JSONResponse:
    """What a node type needs in the models folder, what is there, and where the rest is published.

    Empty for types that need no model of their own.
    """
    spec = services.specs.get(node_type)
    if spec is None:
        message = f"Unknown node type {node_type!r}."
        raise NotFound(message)
    return JSONResponse(requirements_json(spec, services))


def requirements_json(spec: NodeSpec, services: Services) -> dict[str, Any]:
    """The requirements of a node type in the words of the contract, and ours."""
    components = [_component(spec, item, services) for item in requirements_of(spec)]
    complete = all(item["present"] or item["optional"] for item in components)
    plan = services.estimator.node(spec) if complete else None
    return {
        "components": components,
        "allPresent": complete,
        "estimate": plan_json(plan, services.render.policy.memory()) if plan else None,
    }


def _component(spec: NodeSpec, requirement: Requirement, services: Services) -> dict[str, Any]:
    there = presence(requirement, spec.family or "", services.catalog)
    first = requirement.files[0]
    download = services.downloads.latest(requirement.local_path)
    return {
        "id": requirement.id,
        "label": requirement.label,
        "role": requirement.role.value if requirement.role else "tokenizer",
        "category": requirement.category,
        "present": there.present,
        "fits": there.fits,
        "found": there.found,
        "demo": there.demo,
        "localPath": requirement.local_path,
        "repo": first.repo,
        "file": first.file,
        "source": f"{first.repo}/{first.file}",
        "sizeBytes": requirement.size_bytes,
        "optional": requirement.optional,
        "download": download_json(download) if download else None,
    }


@router.websocket("/v1/downloads/events")
async def download_events(websocket: WebSocket) -> None:
    """News of all downloads: `{"type": "snapshot", "downloads"}`, then `{"type": "download", ...}`.

    Every change of state is sent; counts of bytes at most ten times a second.
    """
    services = services_of(websocket)
    await websocket.accept()
    loop, wake = asyncio.get_running_loop(), asyncio.Event()

    def wake_up() -> None:
        # A loop that is closed has nobody left to tell.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(wake.set)

    reader, known = await run_in_threadpool(services.downloads.follow, wake_up)
    listening = asyncio.create_task(_until_gone(websocket))
    sending = asyncio.create_task(_send_news(websocket, known, reader, wake))
    try:
        await asyncio.wait({listening, sending}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        services.downloads.feed.close(reader)
        listening.cancel()
        sending.cancel()
        await asyncio.gather(listening, sending, return_exceptions=True)


async def _until_gone(websocket: WebSocket) -> None:
    try:
        while (await websocket.receive())["type"] != "websocket.disconnect":
            pass
    except (WebSocketDisconnect, RuntimeError):
        return


async def _send_news(
    websocket: WebSocket, known: Iterable[Download], reader: Reader, wake: asyncio.Event
) -> None:
    loop, progress_at = asyncio.get_running_loop(), 0.0
    try:
        await _send(websocket, {"type": "snapshot", "downloads": list(map(download_json, known))})
        while True:
            wake.clear()
            news = reader.changes()
            if loop.time() - progress_at >= PROGRESS_INTERVAL_S:
                news += reader.progress()
                progress_at = loop.time()
            for download in news:
                await _send(websocket, {"type": "download", "download": download_json(download)})
            await _news_or_pace(reader, wake, progress_at + PROGRESS_INTERVAL_S)
    except (WebSocketDisconnect, RuntimeError, TimeoutError):
        # Gone, or not reading: the next connection begins with a snapshot.
        return


async def _news_or_pace(reader: Reader, wake: asyncio.Event, progress_at: float) -> None:
    """Wait for news, with counts of bytes pending at most until they may be sent."""
    try:
        async with asyncio.timeout_at(progress_at if reader.has_progress else None):
            await wake.wait()
    except TimeoutError:
        return


async def _send(websocket: WebSocket, frame: dict[str, Any]) -> None:
    async with asyncio.timeout(_SEND_TIMEOUT_S):
        await websocket.send_text(json.dumps(frame))
