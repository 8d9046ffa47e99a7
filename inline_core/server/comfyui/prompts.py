"""From a prompt to a stored run: check, convert, number, store, answer."""

from __future__ import annotations

import asyncio
import itertools
import math
import threading
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from starlette.concurrency import run_in_threadpool

from inline_core.errors import Conflict, InvalidGraph, InvalidRequest
from inline_core.importers.comfyui.converting import (
    Conversion,
    NodeState,
    convert,
    prompt_node_of,
)
from inline_core.importers.comfyui.flattening import flatten
from inline_core.importers.comfyui.reading import workflow_in
from inline_core.runs.queries import RunFilter
from inline_core.runs.records import NewRun
from inline_core.runs.states import RunStatus
from inline_core.server.comfyui.checking import Checked, check_prompt, fault
from inline_core.server.comfyui.faults import Refused
from inline_core.server.comfyui.folders import model_names
from inline_core.server.comfyui.record import TAG, PromptRecord, record_of
from inline_core.server.services import Services
from inline_core.server.submit import new_run

_SECRETS: Final = frozenset({"auth_token_comfy_org", "api_key_comfy_org"})
_MOVES: Final = 5
_FAILED: Final = (NodeState.UNSUPPORTED, NodeState.BROKEN)


@dataclass(frozen=True, slots=True)
class Accepted:
    """A stored prompt, and what is wrong with the outputs that it goes without."""

    record: PromptRecord
    run_id: str
    node_errors: Mapping[str, Any]

    def body(self) -> dict[str, Any]:
        """The reply."""
        return {
            "prompt_id": self.record.prompt_id,
            "number": self.record.number,
            "node_errors": dict(self.node_errors),
        }


class Numbers:
    """Numbers of prompts: each higher than all before, also over a restart.  Any thread."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._lock = threading.Lock()
        self._numbers: Iterator[int] | None = None

    def take(self) -> int:
        """The next number."""
        with self._lock:
            if self._numbers is None:
                self._numbers = itertools.count(self._highest() + 1)
            return next(self._numbers)

    def _highest(self) -> int:
        newest = self._services.queries.page(RunFilter(tag=TAG), limit=1, before=None)[:1]
        records = [record for head in newest if (record := record_of(head)) is not None]
        return max((int(abs(record.number)) for record in records), default=-1)


async def submit_prompt(services: Services, numbers: Numbers, document: Any) -> Accepted:
    """Store a prompt; durable once this returns.

    Raises: Refused, Conflict, QueueFull, DiskFull.
    """
    if not isinstance(document, Mapping) or "prompt" not in document:
        raise Refused("no_prompt", "No prompt provided", "No prompt provided")
    new, record, node_errors = await run_in_threadpool(_prepared, services, numbers, document)
    try:
        stored = (await asyncio.wrap_future(services.journal.submit([new])))[0]
    except Conflict as error:
        message = f"The prompt id {record.prompt_id!r} belongs to another prompt."
        raise Refused("prompt_id_in_use", message, status=409) from error
    if stored.replayed:
        view = await run_in_threadpool(services.queries.run, stored.run_id)
        record = record_of(view.head) or record
    elif document.get("front") or document.get("number") is not None:
        await run_in_threadpool(_take_place, services, stored.run_id, record.number)
    return Accepted(record, stored.run_id, node_errors)


def _prepared(
    services: Services, numbers: Numbers, document: Mapping[str, Any]
) -> tuple[NewRun, PromptRecord, dict[str, Any]]:
    """Check and convert (a worker thread).  Raises: Refused."""
    prompt_id = _prompt_id(document)
    targets = _targets(document)
    checked = check_prompt(services, document["prompt"], targets)
    number = _number(document, numbers)
    while True:
        conversion = _converted(services, checked)
        record = PromptRecord(
            prompt_id=prompt_id,
            number=number,
            prompt=document["prompt"],
            extra_data=_extra_data(document),
            client_id=_client_id(document),
            outputs=checked.outputs,
            sinks=conversion.sinks,
        )
        try:
            return _run_of(services, conversion, record), record, checked.node_errors()
        except InvalidGraph as error:
            _blame(checked, error)
            # Whatever stands between us and the graph, the other outputs may be fine.
            checked.keep_good()


def _converted(services: Services, checked: Checked) -> Conversion:
    """The graph of the good outputs; those that cannot be converted are given up.

    Raises: Refused if none is left.
    """
    while True:
        flat = flatten(workflow_in({"prompt": checked.needed()}))
        conversion = convert(
            flat,
            services.specs,
            lambda category, name: name in model_names(services, category),
        )
        failed = [node for node in conversion.nodes if node.state in _FAILED]
        for node in failed:
            if node.state is NodeState.UNSUPPORTED:
                hint = f" Instead: {node.alternative}" if node.alternative else ""
                message = f"Node {node.title!r} cannot be run here"
                error = fault("not_supported_here", message, f"{node.reason}{hint}")
                checked.faults.setdefault(node.node_id, []).append(error)
        if not failed and conversion.targets:
            return conversion
        if not failed:
            # Every node has a counterpart, and none of them keeps anything.
            for node_id in checked.outputs:
                message = "This node makes nothing here"
                error = fault("not_supported_here", message, "")
                checked.faults.setdefault(node_id, []).append(error)
        checked.keep_good()


def _run_of(services: Services, conversion: Conversion, record: PromptRecord) -> NewRun:
    """Raises: InvalidGraph."""
    return new_run(
        services,
        {
            "graph": conversion.graph,
            "targets": list(conversion.targets),
            "clientRunId": record.prompt_id,
            "meta": record.meta(),
            "tags": [TAG],
        },
    )


def _blame(checked: Checked, error: InvalidGraph) -> None:
    """Put what our own check of the graph found to the nodes of the prompt.

    Raises: Refused for what belongs to no node.
    """
    known = False
    for problem in error.problems:
        node_id = prompt_node_of(problem.node_id) if problem.node_id is not None else None
        if node_id in checked.prompt:
            known = True
            told = fault(problem.code, problem.message, problem.param or problem.port or "")
            checked.faults.setdefault(str(node_id), []).append(told)
    if not known:
        raise Refused("invalid_prompt", error.message) from error


def _prompt_id(document: Mapping[str, Any]) -> str:
    given = document.get("prompt_id")
    if given is None:
        return str(uuid.uuid4())
    try:
        uuid.UUID(given)
    except (ValueError, TypeError, AttributeError) as error:
        message = "prompt_id must be a valid UUID"
        raise Refused("invalid_prompt_id", message, str(given)[:100]) from error
    return str(given)


def _number(document: Mapping[str, Any], numbers: Numbers) -> float:
    given = document.get("number")
    if given is not None:
        try:
            number = float(given)
        except (ValueError, TypeError):
            number = math.nan
        if not math.isfinite(number):
            message = "number must be a number"
            raise Refused("invalid_prompt", message)
        return number
    following = numbers.take()
    return -following if document.get("front") else following


def _targets(document: Mapping[str, Any]) -> frozenset[str] | None:
    given = document.get("partial_execution_targets")
    if given is None:
        return None
    if not isinstance(given, list):
        message = "partial_execution_targets must be a list of node ids"
        raise Refused("invalid_prompt", message)
    return frozenset(str(node_id) for node_id in given)


def _client_id(document: Mapping[str, Any]) -> str | None:
    given = document.get("client_id")
    return str(given) if isinstance(given, str | int) and given != "" else None


def _extra_data(document: Mapping[str, Any]) -> dict[str, Any]:
    """Extra data without keys to other people's services: nothing here needs them."""
    given = document.get("extra_data")
    kept = dict(given) if isinstance(given, Mapping) else {}
    extra = {key: value for key, value in kept.items() if key not in _SECRETS}
    client_id = _client_id(document)
    if client_id is not None:
        extra["client_id"] = client_id
    return extra


def _take_place(services: Services, run_id: str, number: float) -> None:
    """Move a fresh run before the waiting prompts with higher numbers."""
    for _ in range(_MOVES):
        waiting = [head for head in services.queries.unfinished() if _waits(head.status)]
        ahead: list[str] = []
        moved = False
        for head in waiting:
            if head.id == run_id:
                break
            record = record_of(head)
            if record is not None and record.number > number:
                moved = True
            else:
                ahead.append(head.id)
        if not moved:
            return
        try:
            services.journal.reorder([*ahead, run_id]).result()
        except (Conflict, InvalidRequest):
            # One of them was started in between: look again.
            continue
        return


def _waits(status: RunStatus) -> bool:
    return status is RunStatus.QUEUED
