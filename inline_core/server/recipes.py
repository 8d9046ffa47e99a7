"""Recipes for clients: of a stored take, or out of a file; what is missing here is said."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import chain
from mmap import mmap
from typing import Any, Final

from inline_core.engine.recipe import Recipe, only, places, settled
from inline_core.errors import GraphProblem, InvalidGraph, NoRecipe, PayloadTooLarge
from inline_core.graph.document import read_graph
from inline_core.graph.model import Graph
from inline_core.graph.validate import check_graph
from inline_core.media.file_texts import read_comment
from inline_core.media.kinds import MediaKind
from inline_core.media.png import PROVENANCE_KEY
from inline_core.media.png_text import SIGNATURE, read_texts
from inline_core.server.body import MalformedJson, decode_json
from inline_core.server.errors import problem_json
from inline_core.server.services import Services
from inline_core.server.wire import take_json
from inline_core.settings import MIB

_PART_OF_CATEGORY: Final[Mapping[str, str]] = {
    "diffusion_models": "model",
    "checkpoints": "model",
    "vae": "vae",
    "text_encoders": "textEncoder",
}
_BOM: Final = b"\xef\xbb\xbf"
_HEAD_BYTES: Final = 64
_FACTS: Final[Mapping[str, type[Any]]] = {
    "index": int,
    "count": int,
    "version": str,
    "params": dict,
    "provenance": dict,
}
_COMFYUI_TEXTS: Final = frozenset({"workflow", "prompt"})
_COMFYUI_EXIF: Final = re.compile(rb"(?:workflow|prompt):\{")
_BY_COMFYUI: Final = (
    "This file was made by ComfyUI; importing these comes in a later release. "
    "It has no recipe of Inline Core."
)


def take_recipe(services: Services, take_id: str) -> dict[str, Any]:
    """The recipe of a take, from the run that made it.  Raises: NotFound, OutputUnavailable."""
    origin = services.queries.origin(take_id)
    graph, _ = read_graph(origin.body.graph)
    place = next(
        place
        for sibling, place in zip(
            origin.siblings, places([take.port for take in origin.siblings]), strict=True
        )
        if sibling.id == take_id
    )
    take = take_json(origin.take)
    versions = take["provenance"].get("versions")
    recipe = settled(graph, origin.body.params, origin.node_id)
    if origin.take.kind is MediaKind.IMAGE:
        recipe = only(recipe, place)
    return _reply(
        services,
        recipe,
        {
            "index": place.index,
            "count": place.count,
            "version": versions.get("inline-core") if isinstance(versions, Mapping) else None,
            "params": take["params"],
            "provenance": take["provenance"],
        },
    )


def imported(services: Services, data: mmap, start: int, end: int) -> dict[str, Any]:
    """The recipe in the file at data[start:end]: a picture, video or sound of ours, or JSON.

    Raises: NoRecipe, InvalidAsset (a damaged picture), MalformedJson, InvalidGraph.
    """
    head = data[start : min(start + _HEAD_BYTES, end)]
    if head.startswith(SIGNATURE):
        document = _of_png(data, start, end)
    elif head.removeprefix(_BOM).lstrip().startswith(b"{"):
        _check_size(end - start, services.settings.max_body_mb * MIB)
        document = decode_json(data[start:end].removeprefix(_BOM))
    else:
        document = _of_media(data, start, end)
    recipe = _recipe_of(document)
    facts = {name: _fact(document, name, kind) for name, kind in _FACTS.items()}
    reply = _reply(services, recipe, facts)
    warnings = reply.pop("warnings")
    report = {"source": "inline-core", "version": facts["version"], "warnings": warnings}
    return {**reply, "report": report}


def _fact(document: Mapping[str, Any], name: str, kind: type[Any]) -> Any:
    """A fact beside the graph, if it is what it should be; files may be edited by hand."""
    value = document.get(name)
    if isinstance(value, kind):
        return value
    return {} if kind is dict else None


def _of_png(data: mmap, start: int, end: int) -> dict[str, Any]:
    texts = read_texts(data, start, end)
    text = texts.get(PROVENANCE_KEY)
    if text is None:
        if texts.keys() & _COMFYUI_TEXTS:
            raise NoRecipe(_BY_COMFYUI, details={"source": "comfyui"})
        shown = ", ".join(sorted(texts)[:8]) or "none"
        message = (
            f"This PNG has no recipe: a text {PROVENANCE_KEY!r} was looked for, as pictures made "
            f"here have it unless INLINE_METADATA is off (texts in the file: {shown})."
        )
        raise NoRecipe(message)
    try:
        found = decode_json(text.encode())
    except MalformedJson as error:
        message = f"The text {PROVENANCE_KEY!r} in this PNG is no recipe: it is damaged."
        raise NoRecipe(message) from error
    return found if isinstance(found, dict) else {}


def _of_media(data: mmap, start: int, end: int) -> dict[str, Any]:
    """The recipe in the comment of an mp4, wav or flac; other programs write comments too."""
    text = read_comment(data, start, end)
    try:
        found = decode_json(text.encode()) if text is not None and text.startswith("{") else None
    except MalformedJson:
        found = None
    if not isinstance(found, dict) or "graph" not in found:
        raise _nothing_in(data, start, end)
    return found


def _check_size(size_bytes: int, limit_bytes: int) -> None:
    if size_bytes > limit_bytes:
        message = (
            f"The JSON is larger than the limit of {limit_bytes} bytes "
            "(setting INLINE_MAX_BODY_MB)."
        )
        raise PayloadTooLarge(message, details={"limitBytes": limit_bytes})


def _nothing_in(data: mmap, start: int, end: int) -> NoRecipe:
    if _COMFYUI_EXIF.search(data, start, end):
        return NoRecipe(_BY_COMFYUI, details={"source": "comfyui"})
    message = (
        "This file has no recipe: a PNG made here (it keeps its recipe in a text "
        f"{PROVENANCE_KEY!r}), an mp4, wav or flac made here (in its comment), or the JSON of a "
        "graph was looked for."
    )
    return NoRecipe(message)


def _recipe_of(document: Mapping[str, Any]) -> Recipe:
    """The graph of a document, and its target: what is named, else the node nobody reads."""
    body = document.get("graph", document)
    graph, problems = read_graph(body)
    wrapped = document.keys() & _COMFYUI_TEXTS and not document.keys() & {"graph", "nodes"}
    if wrapped or any(problem.code == "comfyui_workflow" for problem in problems):
        raise NoRecipe(_BY_COMFYUI, details={"source": "comfyui"})
    if problems:
        raise InvalidGraph(problems)
    target = document.get("target")
    if target is None:
        target = _last_of(graph)
    if not isinstance(target, str) or target not in graph.by_id:
        message = f"The recipe's target {target!r} is no node of its graph."
        raise InvalidGraph([GraphProblem("unknown_target", message)])
    return Recipe(tuple(body["nodes"]), target)


def _last_of(graph: Graph) -> str | None:
    """The last node in the document that no other node reads."""
    edges = chain.from_iterable(chain.from_iterable(n.inputs.values()) for n in graph.nodes)
    read = {edge.source for edge in edges}
    loose = [node.id for node in graph.nodes if node.id not in read]
    return loose[-1] if loose else None


def _reply(services: Services, recipe: Recipe, facts: Mapping[str, Any]) -> dict[str, Any]:
    recipe, problems = _with_files(services, recipe, facts["provenance"])
    assets = _assets(services, recipe)
    for asset in assets:
        if not asset["available"]:
            message = f"The input file of node {asset['node']!r} is not here any more."
            problems.append(
                GraphProblem("asset_missing", message, asset["node"], param=asset["param"])
            )
    problems.extend(_problems(services, recipe))
    return {
        "graph": recipe.graph,
        "target": recipe.target,
        **facts,
        "assets": assets,
        "warnings": [problem_json(problem) for problem in problems],
    }


def _with_files(
    services: Services, recipe: Recipe, provenance: Mapping[str, Any]
) -> tuple[Recipe, list[GraphProblem]]:
    """Name the model files that the server had picked, where it is plain which node read them."""
    nodes = {str(node["id"]): node for node in recipe.nodes}
    problems: list[GraphProblem] = []
    for category, part in _PART_OF_CATEGORY.items():
        made_with = provenance.get(part)
        name = made_with.get("name") if isinstance(made_with, Mapping) else None
        readers = _readers(services, recipe.nodes, category)
        if not isinstance(name, str) or not name or len(readers) != 1:
            continue
        model = provenance.get("model")
        if part != "model" and isinstance(model, Mapping) and model.get("name") == name:
            continue  # a part of an all-in-one checkpoint, which is found beside its model
        node_id, key = readers[0]
        params = nodes[node_id].get("params") or {}
        if params.get(key):
            continue
        if name in {file.name for file in services.catalog.pickable(category)}:
            nodes[node_id] = {**nodes[node_id], "params": {**params, key: name}}
        else:
            message = f"It was made with {name}, which models/{category}/ does not have."
            problems.append(GraphProblem("model_missing", message, node_id, param=key))
    return Recipe(tuple(nodes.values()), recipe.target), problems


def _readers(
    services: Services, nodes: Sequence[Mapping[str, Any]], category: str
) -> list[tuple[str, str]]:
    """Node id and param key of every param that names a file of this category."""
    return [
        (str(node["id"]), param.key)
        for node in nodes
        if (spec := services.specs.get(str(node["type"]))) is not None
        for param in spec.params
        if param.options_from == category
    ]


def _assets(services: Services, recipe: Recipe) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for node in recipe.nodes:
        spec = services.specs.get(str(node["type"]))
        for param in spec.params if spec is not None else ():
            reference = (node.get("params") or {}).get(param.key)
            if param.widget != "asset" or reference is None:
                continue
            sha256, available = services.media.presence(reference)
            found.append(
                {
                    "node": node["id"],
                    "param": param.key,
                    "sha256": sha256,
                    "available": available,
                }
            )
    return found


def _problems(services: Services, recipe: Recipe) -> list[GraphProblem]:
    """What keeps the graph from running here as it is."""
    try:
        checked = check_graph(
            recipe.graph,
            (recipe.target,),
            services.specs,
            lambda category: [file.name for file in services.catalog.pickable(category)],
        )
    except InvalidGraph as error:
        return list(error.problems)
    return list(checked.warnings)
