"""The shapes of request and reply bodies; OpenAPI is made from these."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

MAX_PRIORITY = 1000
MAX_TAGS = 32
MAX_TAG_LENGTH = 200
MAX_SWEEP = 10_000

EXAMPLE_GRAPH: dict[str, Any] = {
    "schemaVersion": 1,
    "nodes": [
        {
            "id": "prompt",
            "type": "input/text",
            "params": {"text": "a red circle on a blue background"},
        },
        {
            "id": "picture",
            "type": "alibaba/z-image-turbo",
            "params": {"seed": 7},
            "inputs": {"prompt": {"from": "prompt", "output": "text"}},
        },
    ],
}


class Wire(BaseModel):
    """Base of all wire shapes: camelCase names."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class EdgeModel(BaseModel):
    """A wire from an output of another node."""

    source: str = Field(alias="from")
    output: str


class NodeModel(BaseModel):
    """A node of a graph."""

    id: str = Field(min_length=1)
    type: str
    params: dict[str, Any] | None = None
    inputs: dict[str, EdgeModel | list[EdgeModel]] | None = Field(
        None, description="Port or param -> the edge, or edges, that lead to it."
    )
    keep: bool = Field(
        default=True, description="False: what it makes is no take, unless it is a target."
    )


class GraphModel(Wire):
    """A graph, schema version 1."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        json_schema_extra={"examples": [EXAMPLE_GRAPH]},
    )

    schema_version: Literal[1]
    nodes: list[NodeModel]


class ValidateRequest(Wire):
    """A graph to check; without a target all its nodes are checked all the same."""

    graph: GraphModel
    target: str | None = None
    targets: list[str] | None = None
    strict: bool = False


class RunRequest(Wire):
    """A graph to run."""

    graph: GraphModel
    target: str | None = Field(None, description="The node whose result is wanted.")
    targets: list[str] | None = Field(
        None, description="In place of `target`: several nodes, made in one run."
    )
    client_run_id: str | int | None = Field(
        None, description="Makes the submission idempotent: the same id gives the same run."
    )
    meta: dict[str, Any] | None = Field(None, description="Stored and echoed, never read.")
    tags: list[str] | None = Field(None, max_length=MAX_TAGS)
    priority: int = Field(0, ge=-MAX_PRIORITY, le=MAX_PRIORITY)
    strict: bool = Field(default=False, description="Unknown params are errors.")
    force: bool = Field(default=False, description="Make everything anew, reuse no take.")


class SweepRequest(RunRequest):
    """One graph, a table of param values, one run each, all with one tag."""

    table: list[dict[str, dict[str, Any]]] = Field(
        description="One row a run: node id -> param -> value.", min_length=1, max_length=MAX_SWEEP
    )
    tag: str | None = Field(None, description="Made up if absent.", max_length=MAX_TAG_LENGTH)


class OrderRequest(Wire):
    """Queued runs to move to the front, in this order."""

    run_ids: list[str]


class PriorityRequest(Wire):
    """A new priority of a queued run."""

    priority: int = Field(ge=-MAX_PRIORITY, le=MAX_PRIORITY)


class ProblemModel(Wire):
    """One problem of a graph."""

    code: str
    message: str
    node_id: str | None = None
    port: str | None = None
    param: str | None = None


class ErrorBody(ProblemModel):
    """What went wrong, in words and as a stable code."""

    details: dict[str, Any] | None = None
    problems: list[ProblemModel] | None = None


class ErrorEnvelope(Wire):
    """Every error reply has this shape."""

    error: ErrorBody


class TakeModel(Wire):
    """One immutable output."""

    id: str
    run_id: str
    node_id: str
    kind: Literal["image", "video", "audio"]
    uri: str
    hash: str
    params: dict[str, Any]
    created_at: int
    bytes: int
    width: int | None
    height: int | None
    provenance: dict[str, Any]
    duration_ms: int | None = None
    fps: float | None = None
    sample_rate_hz: int | None = None
    has_sound: bool | None = None
    poster_uri: str | None = None
    deleted_at: int | None = None


class TakeList(Wire):
    """A page of takes, newest first."""

    takes: list[TakeModel]
    next_cursor: str | None


class RunErrorModel(Wire):
    """Why a run failed."""

    node_id: str | None
    message: str
    code: str
    details: dict[str, Any] | None = None


class RunNodeModel(Wire):
    """The state of one node of a run."""

    state: Literal["queued", "running", "cached", "done", "error"]
    fraction: float
    phase: str | None = None
    step: int | None = None
    step_count: int | None = None
    status: str | None = None
    started_at: int | None = None
    finished_at: int | None = None


RunStatusName = Literal["queued", "running", "done", "error", "cancelled"]


class RunHeadModel(Wire):
    """A run in a list."""

    run_id: str
    status: RunStatusName
    target: str
    fraction: float
    queue_position: int | None
    priority: int
    tags: list[str]
    meta: dict[str, Any]
    attempt: int
    error: RunErrorModel | None
    created_at: int
    started_at: int | None
    finished_at: int | None


class RunModel(RunHeadModel):
    """A whole run."""

    targets: list[str]
    nodes: dict[str, RunNodeModel]
    takes: list[TakeModel]
    seeds: dict[str, int]
    warnings: list[dict[str, Any]]
    client_run_id: str | None
    retry_of: str | None


class RunList(Wire):
    """Unfinished runs in the order they start, or a page of the history, newest first."""

    runs: list[RunHeadModel]
    next_cursor: str | None = None


class SubmitReply(Wire):
    """The id of a run; with `wait` the whole run."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="allow")

    run_id: str
    status: RunStatusName
    warnings: list[ProblemModel] | None = None


class SweepReply(Wire):
    """The runs of a sweep, in the order of the table."""

    tag: str
    runs: list[SubmitReply]


class ValidateReply(Wire):
    """A graph that can run."""

    ok: Literal[True]
    order: list[str]
    warnings: list[ProblemModel]


class CancelReply(Wire):
    """The run will end, or has ended, as cancelled."""

    run_id: str
    status: Literal["cancelled"]


class QueueReply(Wire):
    """The queue: paused or not, running and waiting runs."""

    paused: bool
    runs: list[RunHeadModel]


class RecipeAssetModel(Wire):
    """An input file of a recipe; `sha256` is null where it is not known."""

    node: str
    param: str
    sha256: str | None
    available: bool


class _RecipeBase(Wire):
    graph: GraphModel
    target: str
    index: int | None = Field(description="Which picture of its node it was; 0 is the first.")
    count: int | None = Field(description="How many pictures the node made at that port.")
    version: str | None = Field(description="The Inline Core that made it.")
    params: dict[str, Any]
    provenance: dict[str, Any]
    assets: list[RecipeAssetModel]


class RecipeModel(_RecipeBase):
    """A graph whose target makes one picture again; `warnings`: what is missing for it here."""

    warnings: list[ProblemModel]


class ImportReport(Wire):
    """Where a graph came from, and what is missing for it here."""

    source: Literal["inline-core"]
    version: str | None
    warnings: list[ProblemModel]


class ImportReply(_RecipeBase):
    """A graph out of a file."""

    report: ImportReport


class ImportedNodeModel(Wire):
    """What became of a node of a workflow; `nodes` are those of the graph that stand for it."""

    node_id: str
    class_type: str
    title: str
    state: Literal["converted", "folded", "ignored", "unsupported", "broken"]
    reason: str | None
    alternative: str | None = Field(description="What does nearly the same here.")
    nodes: list[str]
    warnings: list[str]


class ImportLineModel(Wire):
    """Something that was dropped, changed or guessed while the workflow was flattened."""

    severity: Literal["info", "warning", "error"]
    reason: str
    message: str
    node_id: str | None
    node_type: str | None
    input: str | None


class ImportedFileModel(Wire):
    """A model file that the graph names; `url` is where the workflow says it can be had."""

    node_id: str
    category: str
    name: str
    present: bool
    url: str | None


class CanvasNoteModel(Wire):
    """A text that the author left on the canvas."""

    node_id: str
    title: str
    text: str


class WorkflowReport(Wire):
    """What an import did; `problems` would keep the graph from running now."""

    source: Literal["comfyui"]
    format: Literal["ui-0.4", "ui-1", "api"]
    place: str
    complete: bool = Field(description="Everything that the workflow saves or shows is made.")
    summary: str
    nodes: list[ImportedNodeModel]
    lines: list[ImportLineModel]
    files: list[ImportedFileModel]
    problems: list[ProblemModel]
    notes: list[CanvasNoteModel]


class WorkflowImportReply(Wire):
    """A graph out of a ComfyUI workflow; `prompt` is the API prompt that it is equal to."""

    graph: GraphModel
    targets: list[str]
    prompt: dict[str, Any]
    report: WorkflowReport


class ExportRequest(Wire):
    """A graph that was imported from ComfyUI, with its `origin`."""

    graph: GraphModel


class WorkflowExportReply(Wire):
    """A ComfyUI API prompt; `left_out` says what of the graph has no place in it."""

    prompt: dict[str, Any]
    left_out: list[str]


class AssetModel(Wire):
    """An upload."""

    id: str
    kind: Literal["image", "video", "audio"]
    bytes: int
    media_type: str
    width: int | None
    height: int | None
    duration_ms: int | None
    name: str | None
    created_at: int


class AssetList(Wire):
    """A page of assets, newest first."""

    assets: list[AssetModel]
    next_cursor: str | None


class DescriptorModel(Wire):
    """A node type."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="allow")

    type: str
    title: str
    category: str
    icon: str
    source: str
    output_kind: str | None
    inputs: list[dict[str, Any]]
    outputs: list[dict[str, Any]]
    params: list[dict[str, Any]]
    hidden: bool | None = None


class ModelsReply(Wire):
    """All node types; `registryVersion` moves when a type or a model file changes."""

    registry_version: str
    models: list[DescriptorModel]


class HealthReply(Wire):
    """How the server does."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="allow")

    ok: bool
    api_version: str
    schema_versions: dict[str, int]
    registry_version: str
    device: dict[str, Any]


class ModelFileModel(Wire):
    """One file of the models folders; from `role` on only where its content could be read.

    `label` says in words what it is, to stand after "is"; `layout` how its tensors are named;
    `className` the class of diffusers or transformers that holds it ("" where there is none);
    `geometry` the sizes that decide what fits together; `problems` why it cannot be used.
    """

    category: str
    name: str
    source: str
    status: str
    reason: str
    bytes: int
    role: str | None = None
    family: str | None = None
    variant: str | None = None
    title: str | None = None
    dtype: str | None = None
    quantization: str | None = None
    parameters: int | None = None
    label: str | None = None
    layout: str | None = None
    class_name: str | None = None
    geometry: dict[str, int] | None = None
    problems: list[str] | None = None


class ModelFileList(Wire):
    """Every file of the models folders, with what it was found to be."""

    files: list[ModelFileModel]
    warnings: list[str]
    registry_version: str
