"""What a graph will need, before anything runs: the same nodes, a render that only adds up.

Nodes are plain functions, so a graph can be walked with a render that plans each job instead of
doing it: sizes, guidance and files are then exactly those of the run.  Never imports torch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inline_core.devices.budget import MIB
from inline_core.devices.ladder import Plan
from inline_core.devices.policy import DevicePolicy
from inline_core.engine.wiring import wired
from inline_core.errors import InlineError, ModelFileInvalid, ModelFileMissing
from inline_core.families.demand import Opened, OpenedFiles, plan_of_job
from inline_core.families.registry import family_decoding, family_of
from inline_core.families.upscalers.keys import scale_of
from inline_core.graph.spec import NodeSpec
from inline_core.graph.validate import CheckedGraph
from inline_core.loading.catalog import Catalog
from inline_core.loading.component import ComponentRef, Role
from inline_core.loading.files import open_weights
from inline_core.media.values import Clip, Image, Waveform
from inline_core.nodes.base import Components, Media, NodeContext, Render
from inline_core.sampling.job import SampleJob, SampleResult
from inline_core.sampling.text_request import TextRequest
from inline_core.sampling.values import Conditioning, Latent

_PICTURE = 3  # axes of a picture's array; a video has one more
_SOUND_RATE_HZ = 48_000  # of a sound that is only planned
_RUNGS = ("resident", "int8", "offload", "wont-fit")


@dataclass(frozen=True, slots=True)
class JobEstimate:
    """The plan of one sampling job and the files it was made for."""

    job: SampleJob
    plan: Plan
    parts: Mapping[str, Opened]


@dataclass(slots=True)
class GraphEstimate:
    """Plans by node, and what could not be estimated (node id -> message)."""

    jobs: dict[str, list[JobEstimate]] = field(default_factory=dict)
    problems: dict[str, InlineError] = field(default_factory=dict)

    def worst(self) -> Plan | None:
        """The plan that asks most of the machine."""
        plans = [job.plan for jobs in self.jobs.values() for job in jobs]
        return max(
            plans, key=lambda plan: (_RUNGS.index(plan.rung), plan.required_bytes), default=None
        )


class Estimator:
    """Plans graphs and single nodes.  Any thread."""

    def __init__(self, catalog: Catalog, media: Media, policy: DevicePolicy) -> None:
        self._catalog = catalog
        self._media = media
        self._policy = policy
        self._opened = OpenedFiles()

    def graph(
        self,
        checked: CheckedGraph,
        specs: Mapping[str, NodeSpec],
        params: Mapping[str, Mapping[str, Any]],
    ) -> GraphEstimate:
        """Walk the checked nodes in order; a node behind one that failed is left out."""
        estimate = GraphEstimate()
        outputs: dict[str, Mapping[str, Any]] = {}
        for node_id in checked.order:
            node = checked.graph.by_id[node_id]
            spec = specs[node.type]
            sources = {edge.source for edges in node.inputs.values() for edge in edges}
            if not sources <= outputs.keys():
                continue
            inputs = wired(node, spec, lambda edge: outputs[edge.source][edge.output])
            jobs: list[JobEstimate] = []
            try:
                outputs[node_id] = spec.run(self._context(node_id, jobs), inputs, params[node_id])
            except InlineError as error:
                error.node_id = error.node_id or node_id
                estimate.problems[node_id] = error
            if jobs:
                estimate.jobs[node_id] = jobs
        return estimate

    def node(self, spec: NodeSpec) -> Plan | None:
        """The plan of a one-click node with its defaults; None if it lacks files or makes nothing.

        None too where a picture has to be wired, as its size decides.  Raises nothing.
        """
        wired = [port for port in spec.inputs if port.required and port.kind.value != "text"]
        if spec.family is None or wired:
            return None
        defaults = self._catalog.variant_defaults(spec.family)
        params = {
            param.key: defaults.get(param.variant_default or "", param.default)
            for param in spec.params
        }
        texts = {port.id: "" for port in spec.inputs if port.kind.value == "text"}
        jobs: list[JobEstimate] = []
        with contextlib.suppress(InlineError):
            spec.run(self._context(spec.type, jobs), texts, params)
        return jobs[0].plan if jobs else None

    def _context(self, node_id: str, jobs: list[JobEstimate]) -> NodeContext:
        return _Context(node_id, _Planner(self._plan, jobs), self._catalog, self._media)

    def _plan(self, job: SampleJob) -> JobEstimate:
        family = family_of(job.model)
        encoder = self._catalog.encoders_for(job.model, job.positive.encoder)
        job = replace(job, positive=replace(job.positive, encoder=encoder))
        parts = self._opened.parts_of(job)
        with contextlib.suppress(ModelFileMissing, ModelFileInvalid):
            parts["vae"] = self._opened.open(self._catalog.companion(Role.VAE, job.model))
        plan = plan_of_job(self._policy, family, parts, job)
        return JobEstimate(job, plan, parts)


class _NoTensor:
    """Stands for the samples of a latent."""

    def numel(self) -> int:
        """None."""
        return 0


class _Planner:
    """A `Render` that plans jobs and gives empty pictures of the right size."""

    def __init__(self, plan: Callable[[SampleJob], JobEstimate], jobs: list[JobEstimate]) -> None:
        self._plan = plan
        self._jobs = jobs

    def encode_text(self, conditioning: Conditioning, ctx: NodeContext) -> None:
        """Nothing: the encoder is part of the job's plan."""

    def sample(self, job: SampleJob, ctx: NodeContext) -> SampleResult:  # noqa: ARG002
        """Plan the job."""
        self._jobs.append(self._plan(job))
        latent = job.latent
        space = family_of(job.model).space.name
        return SampleResult(replace(latent, samples=object(), space=space, normalised=True))

    def decode(self, vae: ComponentRef, latent: Latent, ctx: NodeContext) -> tuple[Image, ...]:  # noqa: ARG002
        """Black pictures that take no memory."""
        family_decoding(vae, latent.space)
        black = np.broadcast_to(np.zeros(3, np.uint8), (latent.height, latent.width, 3))
        return (Image(black),) * latent.batch

    def upscale(
        self,
        upscaler: ComponentRef,
        image: Image,
        ctx: NodeContext,  # noqa: ARG002
        *,
        tile: int,  # noqa: ARG002
        overlap: int,  # noqa: ARG002
    ) -> Image:
        """A black picture of the larger size that takes no memory."""
        scale = scale_of(open_weights(upscaler.path, upscaler.name).headers)
        shape = (image.height * scale, image.width * scale, 3)
        return Image(np.broadcast_to(np.zeros(3, np.uint8), shape))

    def encode_image(self, vae: ComponentRef, image: Image, ctx: NodeContext) -> Latent:  # noqa: ARG002
        """A latent of the picture's size."""
        space = family_decoding(vae).space.name
        return Latent(image.width, image.height, 1, samples=object(), space=space)

    def encode_pixels(self, vae: ComponentRef, pixels: NDArray[Any], ctx: NodeContext) -> Latent:  # noqa: ARG002
        """A latent of the size of a picture or of frames."""
        space = family_decoding(vae).space.name
        height, width = pixels.shape[-3:-1]
        frames = pixels.shape[0] if pixels.ndim > _PICTURE else 1
        return Latent(width, height, 1, samples=object(), space=space, frames=frames)

    def encode_all(self, vae: ComponentRef, images: Sequence[Image], ctx: NodeContext) -> Latent:
        """Latents of the first one's size, cut to what the VAE can encode."""
        factor = family_decoding(vae).space.factor
        width, height = (side // factor * factor for side in (images[0].width, images[0].height))
        frames = len(images) if family_decoding(vae).space.frame_factor else 1
        empty = Image(np.broadcast_to(np.zeros(3, np.uint8), (height, width, 3)))
        batch = 1 if frames > 1 else len(images)
        return replace(self.encode_image(vae, empty, ctx), batch=batch, frames=frames)

    def on_latents(self, change: str, ctx: NodeContext, *values: Any) -> Any:  # noqa: ARG002
        """Something that is no tensor, with the size of none."""
        return _NoTensor()

    def write_text(
        self,
        encoder: ComponentRef,  # noqa: ARG002
        request: TextRequest,
        ctx: NodeContext,  # noqa: ARG002
    ) -> tuple[str, str]:
        """The prompt itself."""
        return request.prompt, ""

    def upscale_latent(
        self,
        upscaler: ComponentRef,  # noqa: ARG002
        vae: ComponentRef,  # noqa: ARG002
        latent: Latent,
        ctx: NodeContext,  # noqa: ARG002
    ) -> Latent:
        """Twice as wide and high, as the published ones make it."""
        return replace(latent, width=latent.width * 2, height=latent.height * 2)

    def decode_clips(self, vae: ComponentRef, latent: Latent, ctx: NodeContext) -> tuple[Clip, ...]:  # noqa: ARG002
        """Black videos that take no memory."""
        family_decoding(vae, latent.space)
        shape = (latent.frames, latent.height, latent.width, 3)
        black = np.broadcast_to(np.zeros(3, np.uint8), shape)
        return (Clip(black, latent.fps or 24.0),) * latent.batch

    def decode_sounds(
        self,
        vae: ComponentRef,
        latent: Latent,
        ctx: NodeContext,  # noqa: ARG002
    ) -> tuple[Waveform, ...]:
        """Silence that takes no memory."""
        family_decoding(vae, latent.space)
        count = round(latent.frames / (latent.fps or 1.0) * _SOUND_RATE_HZ)
        silence = np.broadcast_to(np.zeros((1, 1), np.float32), (2, count))
        return (Waveform(silence, _SOUND_RATE_HZ),) * latent.batch


class _Context:
    """A `NodeContext` for a node that only gets planned."""

    def __init__(self, node_id: str, render: Render, components: Components, media: Media) -> None:
        self.run_id = ""
        self.node_id = node_id
        self.priority = 0
        self.render = render
        self.components = components
        self.media = media

    def check_cancelled(self) -> None:
        """Never cancelled."""

    def progress(
        self,
        phase: str,
        fraction: float,
        status: str = "",
        *,
        step: int | None = None,
        step_count: int | None = None,
        eta_ms: int | None = None,
    ) -> None:
        """Nobody watches."""

    def preview(self, encode: Callable[[], bytes]) -> None:
        """Nobody watches."""

    def warn(self, message: str) -> None:
        """The run itself will say it."""

    def describe(self, **facts: object) -> None:
        """No take carries it."""


def plan_json(plan: Plan, memory: Mapping[str, int | None]) -> dict[str, Any]:
    """A plan in the words of the contract's estimate; `memory` has the machine's totals."""
    warning = None
    if not plan.fits:
        warning = f"Does not fit: {plan.reasons[-1]}"
    elif plan.rung != "resident":
        warning = "; ".join(plan.reasons)
    return {
        "plan": plan.rung,
        "fits": plan.fits,
        "requiredVramMb": -(-plan.required_bytes // MIB),
        **memory,
        "warning": warning,
    }


def job_json(estimate: JobEstimate) -> dict[str, Any]:
    """One job in detail: bytes of each phase, and where each component goes and why."""
    plan = estimate.plan
    placements = {
        "model": plan.model,
        "text_encoder": plan.text_encoder,
        "vae": plan.vae,
    }
    return {
        "plan": plan.rung,
        "fits": plan.fits,
        "width": estimate.job.latent.width,
        "height": estimate.job.latent.height,
        "requiredBytes": plan.required_bytes,
        "capacityBytes": plan.capacity_bytes,
        "hostBytes": plan.host_bytes,
        "phases": dict(plan.phases),
        "maxPictures": plan.max_pictures,
        "tiledDecode": plan.tiled_decode,
        "components": [
            {
                "role": role,
                "name": estimate.parts[role].files.path.name,
                "device": placement.device,
                "dtype": placement.dtype,
                "quantization": placement.quantization,
                "offload": placement.offload,
                "bytes": estimate.parts[role].weights.bytes_at(
                    placement.dtype, placement.quantization
                ),
                "reason": placement.reason,
            }
            for role, placement in placements.items()
            if placement is not None and role in estimate.parts
        ],
        "reasons": list(plan.reasons),
    }
