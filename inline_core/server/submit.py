"""From a request body to stored runs: check, settle defaults and seeds, store, answer."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from typing import Any

from starlette.concurrency import run_in_threadpool

from inline_core.engine.submission import effective_params
from inline_core.errors import GraphProblem, InvalidGraph, InvalidRequest
from inline_core.graph.document import graph_hash, read_graph
from inline_core.graph.spec import NodeSpec
from inline_core.graph.validate import CheckedGraph, check_graph
from inline_core.runs.journal import Submitted
from inline_core.runs.records import NewRun
from inline_core.server.errors import problem_json
from inline_core.server.models import MAX_PRIORITY, MAX_SWEEP, MAX_TAG_LENGTH, MAX_TAGS
from inline_core.server.services import Services

_INLINE_NODES = 200


async def submit(services: Services, document: Any) -> tuple[Submitted, list[dict[str, Any]]]:
    """Store one run; durable once this returns.  Gives it, and the warnings.

    Small graphs that name no files are checked on the event loop (well under a millisecond), the
    others in a thread, since the models folder may have to be looked at.
    Raises: InvalidRequest, InvalidGraph, Conflict, QueueFull, DiskFull.
    """
    if _is_quick(document, services.specs):
        new = new_run(services, document)
    else:
        new = await run_in_threadpool(new_run, services, document)
    results = await asyncio.wrap_future(services.journal.submit([new]))
    return results[0], [dict(warning) for warning in new.warnings]


def _is_quick(document: Any, specs: Mapping[str, NodeSpec]) -> bool:
    graph = document.get("graph") if isinstance(document, Mapping) else None
    nodes = graph.get("nodes") if isinstance(graph, Mapping) else None
    if not isinstance(nodes, list):
        return True
    if len(nodes) > _INLINE_NODES:
        return False
    types = {str(node.get("type")) for node in nodes if isinstance(node, Mapping)}
    return not any(specs[name].reads_models for name in types if name in specs)


def checked_graph(services: Services, document: Any, *, strict: bool) -> CheckedGraph:
    """Check the `graph` of a request, and its `target` or `targets` if it has any.

    Raises: InvalidRequest, InvalidGraph.
    """
    return _checked(services, document, targets_of(document), strict=strict)


def targets_of(document: Mapping[str, Any]) -> tuple[str, ...]:
    """The `targets` of a body, or its one `target`; none if it names none.

    Raises: InvalidRequest.
    """
    target, targets = document.get("target"), document.get("targets")
    if targets is None:
        if target is None:
            return ()
        if not isinstance(target, str) or not target:
            message = "'target' must be the id of a node."
            raise InvalidRequest(message)
        return (target,)
    valid = isinstance(targets, list) and all(isinstance(name, str) and name for name in targets)
    if not valid or not targets:
        message = "'targets' must be a list of one or more node ids."
        raise InvalidRequest(message)
    if target is not None and target not in targets:
        message = "'target' and 'targets' name different nodes: give only 'targets'."
        raise InvalidRequest(message)
    return tuple(dict.fromkeys(targets))


def wholly_checked(services: Services, document: Mapping[str, Any]) -> CheckedGraph:
    """The same with every node as a target, if none is named."""
    if targets_of(document):
        return checked_graph(services, document, strict=False)
    graph, _ = read_graph(document.get("graph"))
    return _checked(services, document, tuple(graph.by_id), strict=False)


def _checked(
    services: Services, document: Mapping[str, Any], targets: tuple[str, ...], *, strict: bool
) -> CheckedGraph:
    def check() -> CheckedGraph:
        return check_graph(
            document.get("graph"),
            targets,
            services.specs,
            lambda category: [file.name for file in services.catalog.pickable(category)],
            strict=strict,
        )

    try:
        return check()
    except InvalidGraph as error:
        if not any(problem.code == "param_not_an_option" for problem in error.problems):
            raise
    # A file that was put there a moment ago: look at the folders again before saying no.
    services.catalog.refresh()
    return check()


def new_run(services: Services, document: Any, **changes: Any) -> NewRun:
    """A run from a request body.  Raises: InvalidRequest, InvalidGraph."""
    require_object(document)
    targets = targets_of(document) if document.get("target") != "" else ()
    if not targets:
        message = "'target' is required."
        raise InvalidRequest(message)
    strict, force = flag(document, "strict"), flag(document, "force")
    checked = checked_graph(services, document, strict=strict)
    params, seeds = effective_params(checked, services.specs, services.catalog)
    meta = document.get("meta")
    graph = document["graph"]
    return NewRun(
        graph=graph,
        graph_hash=graph_hash(graph, targets),
        target=targets[0],
        targets=targets if len(targets) > 1 else (),
        order=checked.order,
        params=params,
        seeds=seeds,
        client_run_id=changes.get("client_run_id", _client_run_id(document)),
        meta=meta if isinstance(meta, dict) else {},
        tags=_tags(document, changes.get("tag")),
        priority=_priority(document),
        force=force,
        warnings=tuple(problem_json(problem) for problem in checked.warnings),
    )


def sweep_runs(services: Services, document: Any) -> tuple[str, list[NewRun]]:
    """The runs of a sweep, and their tag.  Raises: InvalidRequest, InvalidGraph."""
    require_object(document)
    table = document.get("table")
    if not isinstance(table, list) or not table:
        message = "'table' must be a list of rows: node id -> param -> value."
        raise InvalidRequest(message)
    if len(table) > min(MAX_SWEEP, services.settings.max_queue):
        message = f"'table' has {len(table)} rows; at most {MAX_SWEEP} are taken at once."
        raise InvalidRequest(message)
    tag = document.get("tag")
    if tag is None:
        tag = f"sweep-{secrets.token_hex(4)}"
    base = _client_run_id(document)
    new_runs = []
    for number, row in enumerate(table):
        graph = _with_row(document.get("graph"), row, number)
        try:
            new = new_run(
                services,
                {**document, "graph": graph},
                tag=tag,
                client_run_id=None if base is None else f"{base}#{number}",
            )
        except InvalidGraph as error:
            raise InvalidGraph([_in_row(problem, number) for problem in error.problems]) from error
        new_runs.append(new)
    return tag, new_runs


def _in_row(problem: GraphProblem, number: int) -> GraphProblem:
    return GraphProblem(
        problem.code,
        f"Row {number}: {problem.message}",
        problem.node_id,
        problem.port,
        problem.param,
    )


def _with_row(graph: Any, row: Any, number: int) -> Any:
    """A copy of the graph with the params of one row of the table."""
    if not isinstance(row, dict) or not all(isinstance(value, dict) for value in row.values()):
        message = f"Row {number} of 'table' must be an object: node id -> param -> value."
        raise InvalidRequest(message)
    nodes = graph.get("nodes") if isinstance(graph, dict) else None
    if not isinstance(nodes, list):
        return graph
    ids = {_id_of(node) for node in nodes}
    unknown = [node_id for node_id in row if node_id not in ids]
    if unknown:
        message = f"Row {number} of 'table' names nodes that are not in the graph: {unknown!r}."
        raise InvalidRequest(message)
    changed = []
    for node in nodes:
        name = _id_of(node)
        extra = row.get(name) if name is not None else None
        known = node.get("params") if isinstance(node, dict) else None
        if extra and (known is None or isinstance(known, dict)):
            changed.append({**node, "params": {**(known or {}), **extra}})
        else:
            changed.append(node)
    return {**graph, "nodes": changed}


def _id_of(node: Any) -> str | None:
    """The id of an unchecked node; None if it has none that can be one."""
    found = node.get("id") if isinstance(node, dict) else None
    return found if isinstance(found, str) else None


def require_object(document: Any) -> None:
    """Raise `InvalidRequest` unless the body is a JSON object."""
    if not isinstance(document, dict):
        message = "The body must be a JSON object."
        raise InvalidRequest(message)


def flag(document: Mapping[str, Any], name: str) -> bool:
    """A boolean of the body, false if absent.  Raises: InvalidRequest."""
    value = document.get(name, False)
    if not isinstance(value, bool):
        message = f"{name!r} must be true or false."
        raise InvalidRequest(message)
    return value


def _client_run_id(document: Mapping[str, Any]) -> str | None:
    value = document.get("clientRunId")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        message = "'clientRunId' must be a string."
        raise InvalidRequest(message)
    return str(value)


def _tags(document: Mapping[str, Any], extra: Any) -> tuple[str, ...]:
    tags = document.get("tags")
    if tags is None:
        tags = []
    if extra is not None:
        tags = [*tags, extra] if isinstance(tags, list) else tags
    valid = (
        isinstance(tags, list)
        and len(tags) <= MAX_TAGS
        and all(isinstance(tag, str) and 0 < len(tag) <= MAX_TAG_LENGTH for tag in tags)
    )
    if not valid:
        message = (
            f"'tags' must be a list of at most {MAX_TAGS} texts of 1 to {MAX_TAG_LENGTH} "
            "characters."
        )
        raise InvalidRequest(message)
    return tuple(dict.fromkeys(tags))


def _priority(document: Mapping[str, Any]) -> int:
    value = document.get("priority", 0)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > MAX_PRIORITY:
        message = f"'priority' must be a whole number from -{MAX_PRIORITY} to {MAX_PRIORITY}."
        raise InvalidRequest(message)
    return value
