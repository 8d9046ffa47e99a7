"""From references to leased modules, and from jobs to everything the sampler needs.

Lives on the device thread; the families' torch code is imported here when first needed.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from inline_core.devices.ladder import Plan
from inline_core.devices.placement import Placement
from inline_core.devices.policy import DevicePolicy
from inline_core.errors import InvalidParam, ModelFileInvalid, ModelFileMissing
from inline_core.families.adapted import AdaptedDenoiser, SharedDenoiser
from inline_core.families.attending import check_backend
from inline_core.families.autoencoding import Autoencoders
from inline_core.families.controls import ControlNets
from inline_core.families.demand import (
    OpenedFiles,
    does_not_fit,
    plan_of_job,
)
from inline_core.families.experts import ExpertPair, joined
from inline_core.families.guided_pair import GuidedPair
from inline_core.families.latent_upscaling import LatentUpscalers
from inline_core.families.leasing import Leasing
from inline_core.families.options import ModuleOptions
from inline_core.families.previews import Previews, of_video
from inline_core.families.prompts import Prompts, Reading
from inline_core.families.provenance import adapter_facts, library_versions
from inline_core.families.references import check_references, speed_suffix, with_references
from inline_core.families.registry import (
    family_of,
    table_of,
)
from inline_core.families.soundtracks import Soundtracks
from inline_core.families.splitting.seam import Splitting
from inline_core.families.text_generation import TextGenerators
from inline_core.families.upscaling import Upscalers
from inline_core.loading.adapters import match_adapter
from inline_core.loading.catalog import Catalog
from inline_core.loading.component import ComponentRef, Role
from inline_core.loading.hashes import FileHashes
from inline_core.loading.pool import ComponentPool
from inline_core.loading.stream import LoadPlan
from inline_core.sampling.family import ModelFamily, Prepared, PromptPart, SoundtrackSpace
from inline_core.sampling.guidance import needs_negative
from inline_core.sampling.job import SampleJob
from inline_core.sampling.values import Conditioning, Region


class ModuleSource:
    """Implements `ModelSource` with the catalog, the pool and the device policy."""

    def __init__(
        self,
        catalog: Catalog,
        pool: ComponentPool,
        policy: DevicePolicy,
        data_dir: Path | None = None,
        options: ModuleOptions | None = None,
        splitting: Splitting | None = None,
    ) -> None:
        """`data_dir` keeps hashes of files and preview colours over restarts (None: nowhere).

        With `splitting` this process is a rank of a group, and models are divided.
        """
        self._catalog = catalog
        self._pool = pool
        self._policy = policy
        self._opened = OpenedFiles()
        self._leasing = Leasing(self._opened, pool, policy)
        self._hashes = FileHashes(None if data_dir is None else data_dir / "file-hashes.json")
        self.prompts = Prompts(catalog, self._leasing)
        self._options = options or ModuleOptions()
        self._splitting = splitting
        self._previews = Previews(
            catalog,
            pool,
            policy,
            store=None if data_dir is None else data_dir / "previews",
            tiny=self._options.tiny_folders,
        )
        self.upscalers = Upscalers(self._leasing)
        self.writers = TextGenerators(self._leasing, self.prompts.tokenizer)
        self.autoencoders = Autoencoders(self._leasing, self._previews.learn)
        self.latent_upscalers = LatentUpscalers(self._leasing, self.autoencoders)
        self._controls = ControlNets(self._leasing, self.autoencoders, catalog)
        self.soundtracks = Soundtracks(self._leasing)
        self._plans: dict[str, dict[str, Any]] = {}
        self._versions = library_versions()

    def free_unleased(self) -> None:
        """Drop every module and encoded prompt that nobody uses, after memory ran out."""
        self.prompts.clear()
        self._pool.free("out_of_memory")

    def free(self) -> None:
        """Drop the same because somebody asked for it."""
        self.prompts.clear()
        self._pool.free("asked")

    def stats(self) -> dict[str, Any]:
        """Counters of the prompt cache and the last plan of each model; any thread."""
        return {"prompts": self.prompts.stats(), "plans": dict(self._plans)}

    # ---- the sampler's side --------------------------------------------------------------------

    def prepare(self, job: SampleJob) -> Prepared:
        """Plan, encode the prompts, then load the model; the encoder may make room for it.

        Raises: DoesNotFit before anything is loaded, other InlineErrors, RunCancelled.
        """
        family = family_of(job.model)
        check = job.cancel.check if job.cancel is not None else _nothing
        identity = self._opened.open(job.model).identity
        told = identity.config
        _check_job(job, family, takes_guidance=bool(told.get(family.guidance_input)))
        family.check(job, identity.geometry)
        self._controls.check(job, family)
        job = self._with_encoders(job, family)
        plan = self.plan(job, family)
        warnings = self._changes_of_plan(job.model, plan)
        if job.on_phase:
            job.on_phase("loading", 0.02, "Loading model")
        reading = Reading(family, plan, check, warnings, job.on_phase, job.model)
        wanted = _wanted_prompts(job)
        encoded = {
            name: [self.prompts.encode(one, reading) for one in conditioning.every]
            for name, conditioning in wanted.items()
        }
        table = table_of(job, family)
        with contextlib.ExitStack() as leases:
            preview, end_preview = self._previews.start(
                job.model,
                family.space,
                lambda vae: self.autoencoders.lease(vae, check),
                check,
                warnings.append,
            )
            leases.callback(end_preview)
            if preview is not None:
                preview = of_video(preview, family.space, job.latent)
            control, end_controls = self._controls.start(job, family, plan.model, table, check)
            leases.callback(end_controls)
            denoiser, adapters = self._loaded(job.model, reading, leases)
            release = leases.pop_all().close
        refer = functools.partial(with_references, family, job, plan.model.device)
        complete = {
            name: [
                control(refer(one), conditioning)
                for one, conditioning in zip(found, wanted[name].every, strict=True)
            ]
            for name, found in encoded.items()
        }
        return Prepared(
            denoiser=denoiser,
            positive=complete["positive"][0],
            negative=complete.get("negative", [None])[0],
            space=family.space,
            table=table,
            device=plan.model.device,
            dtype=plan.model.dtype,
            release=release,
            preview=preview,
            provenance={**self._provenance(job, family, plan), "adapters": adapters},
            # With what goes another way than planned while the job runs.
            warnings=lambda: (*warnings, *denoiser.notes),
            second=complete.get("second", [None])[0],
            parts=_parts(wanted, complete),
            max_pictures=plan.max_pictures,
            rows_apart=plan.rows_apart,
            speed_key=self._speed_key(job.model, plan.model) + speed_suffix(job),
            vae_family=family.rules.vae_family,
        )

    def _with_encoders(self, job: SampleJob, family: ModelFamily) -> SampleJob:
        """The job with all text encoders that its model needs, checked, in each conditioning."""

        def complete(conditioning: Conditioning) -> Conditioning:
            encoder = self._catalog.encoders_for(job.model, conditioning.encoder)
            options = conditioning.options
            if family.prompts_by_variant:
                options = (*options, ("variant", job.model.variant))
            if family.prompts_by_length:
                options = (*options, ("seconds", job.latent.frames / (job.latent.fps or 1.0)))
            return replace(conditioning, encoder=encoder, options=options)

        return replace(
            job,
            positive=job.positive.mapped(complete),
            negative=job.negative.mapped(complete) if job.negative is not None else None,
            second=job.second.mapped(complete) if job.second is not None else None,
        )

    def _speed_key(self, model: ComponentRef, placement: Placement) -> str:
        """What the speed of a forward pass depends on beside the picture."""
        identity = self._opened.open(model).identity
        sizes = "-".join(f"{name}{value}" for name, value in sorted(identity.geometry.items()))
        adapters = f"+{len(model.adapters)}" if model.adapters else ""
        torch_version = self._versions.get("torch", "")
        return (
            f"{self._policy.device_key} torch{torch_version} {identity.class_name} {sizes}"
            f"{adapters} {placement.key}{' compiled' if self._options.compiled else ''}"
        )

    def plan(self, job: SampleJob, family: ModelFamily) -> Plan:
        """Where everything for a job goes.  Raises: DoesNotFit, ModelFileInvalid/Missing."""
        parts = self._opened.parts_of(job)
        with contextlib.suppress(ModelFileMissing, ModelFileInvalid):
            vae = self._catalog.companion(Role.VAE, job.model)
            parts["vae"] = self._opened.open(vae)
        plan = plan_of_job(self._policy, family, parts, job)
        if not plan.fits:
            raise does_not_fit(job.model, (job.latent.width, job.latent.height), plan)
        if self._splitting is not None:
            plan = self._splitting.place(plan, job.model)
        return replace(plan, model=replace(plan.model, attention=self._options.attention))

    def _changes_of_plan(self, model: ComponentRef, plan: Plan) -> list[str]:
        """Remember the plan, and say so if the model goes elsewhere than the last time."""
        placed = plan.model
        now = {
            "plan": plan.rung,
            "device": placed.device,
            "dtype": placed.dtype,
            "quantization": placed.quantization,
            "offload": placed.offload,
            "reasons": list(plan.reasons),
        }
        before, self._plans[model.name] = self._plans.get(model.name), now
        keys = ("plan", "dtype", "quantization", "offload")
        if before is None or all(before[key] == now[key] for key in keys):
            return []
        was, becomes = (
            f"{entry['plan']} ({entry['dtype']}, {entry['quantization']})"
            for entry in (before, now)
        )
        return [f"{model.name} is now {becomes}, was {was}: {plan.reasons[0]}"]

    def _provenance(self, job: SampleJob, family: ModelFamily, plan: Plan) -> dict[str, Any]:
        return {
            "model": self.named(job.model),
            "textEncoder": self.named(job.positive.encoder),
            "family": family.name,
            "variant": job.model.variant,
            "schedule": repr(table_of(job, family)),
            "placement": {
                "plan": plan.rung,
                "quantization": plan.model.quantization,
                "offload": plan.model.offload,
                "attention": plan.model.attention,
                "compiled": self._options.compiled,
                "reasons": list(plan.reasons),
                **({"parallel": plan.model.parallel} if plan.model.parallel else {}),
            },
            "versions": self._versions,
        }

    def named(self, reference: ComponentRef) -> dict[str, str]:
        """Which file a component is: its name, its stamp, and its hash once that is known."""
        found = {"name": reference.name, "stamp": reference.stamp}
        headers = self._opened.open(reference).files.headers
        files = [header.path for header in headers]
        sha256 = self._hashes.find(str(reference.path), reference.stamp, files)
        return found if sha256 is None else {**found, "sha256": sha256}

    # ---- leases --------------------------------------------------------------------------------

    def lease_model(
        self, model: ComponentRef, plan: Plan, check: Callable[[], None]
    ) -> tuple[Any, Callable[[], None]]:
        """The model alone, for a rank that computes passes for another one; how to give it back.

        Raises: ModelFileInvalid, ModelFileMissing, OutOfMemory.
        """
        reading = Reading(family_of(model), plan, check, [], None, model)
        with contextlib.ExitStack() as leases:
            denoiser, _ = self._experts(model, reading, leases)
            return denoiser, leases.pop_all().close

    def _loaded(
        self, model: ComponentRef, reading: Reading, leases: contextlib.ExitStack
    ) -> tuple[Any, list[dict[str, Any]]]:
        """The model with its adapters, on all ranks if it is divided."""
        load = functools.partial(self._experts, model, reading, leases)
        if self._splitting is None:
            return load()
        return self._splitting.lead(model, reading.plan, leases, load)

    def _experts(
        self, model: ComponentRef, reading: Reading, leases: contextlib.ExitStack
    ) -> tuple[AdaptedDenoiser | ExpertPair | GuidedPair, list[dict[str, Any]]]:
        """The model, or both of a pair as one, and what adapters are on them."""
        experts, facts = [], []
        for expert in model.all:
            alone = replace(expert, others=(), patches=model.patches)
            denoiser, found, end = self._denoiser(alone, reading)
            leases.callback(end)
            experts.append(denoiser)
            facts.extend(found)
        return joined(experts, model), facts

    def _denoiser(
        self, model: ComponentRef, reading: Reading
    ) -> tuple[AdaptedDenoiser, list[dict[str, Any]], Callable[[], None]]:
        """The model with the adapters of a reference, what these are, and how to give all back."""
        plan = self._leasing.plan(model, reading.plan.model, reading.check)
        runtime = importlib.import_module(reading.family.runtime)
        matched = []
        if model.adapters:
            target = runtime.adapted_model(plan)
            matched = [match_adapter(adapter, target) for adapter in model.adapters]
        reading.warnings.extend(found.warning for found in matched if found.warning)
        with contextlib.ExitStack() as leases:
            shared = self._leasing.lease(model, plan, lambda plan: self._shared(plan, runtime))
            leases.callback(shared.release)
            shared.value.check_layers(model)
            loaded = []
            for found in matched:
                lease = self._leasing.adapter(found, model, plan.placement.device, reading.check)
                leases.callback(lease.release)
                loaded.append((lease.value, found.adapter.strength))
            facts = [adapter_facts(found) for found in matched]
            return AdaptedDenoiser(shared.value, tuple(loaded)), facts, leases.pop_all().close

    def _shared(self, plan: LoadPlan, runtime: Any) -> SharedDenoiser:
        """Load a model.  Raises: RuntimeMissing if the attention backend does not work here."""
        placement = plan.placement
        check_backend(placement.attention, placement.device, placement.dtype)
        # Streamed weights come and go in hooks, which compiled code does not see.
        compiled = self._options.compiled and placement.offload == "none"
        if self._splitting is not None:
            plan = self._splitting.part(plan)
        denoiser = runtime.load_denoiser(plan)
        shared = SharedDenoiser.around(denoiser, placement.attention, compiled=compiled)
        if self._splitting is not None:
            self._splitting.divide(denoiser, placement)
        return shared


def _nothing() -> None:
    pass


def _wanted_prompts(job: SampleJob) -> dict[str, Conditioning]:
    """The conditionings that a job needs encoded, by what they are for."""
    wanted = {"positive": job.positive}
    if needs_negative(job):
        # Some families put other words around what is not wanted.
        wanted["negative"] = (job.negative or _empty_like(job.positive)).mapped(
            lambda one: replace(one, options=(*one.options, ("negative", True)))
        )
        if job.negative is None:
            wanted["negative"] = replace(wanted["negative"], controls=job.positive.controls)
    if job.second is not None:
        wanted["second"] = job.second
    return wanted


def _parts(
    wanted: Mapping[str, Conditioning], complete: Mapping[str, Sequence[Any]]
) -> dict[str, tuple[PromptPart, ...]]:
    """The prompts of each, where they are several or count not everywhere."""
    return {
        name: tuple(
            PromptPart(encoded, one.region or Region(), one.guidance)
            for encoded, one in zip(complete[name], conditioning.every, strict=True)
        )
        for name, conditioning in wanted.items()
        if conditioning.beside or conditioning.region is not None
    }


def _empty_like(positive: Conditioning) -> Conditioning:
    """The negative prompt of a job that has none."""
    return replace(
        positive, prompt="", guidance=None, references=(), mixes=(), region=None, beside=()
    )


def _check_job(job: SampleJob, family: ModelFamily, *, takes_guidance: bool) -> None:
    if job.positive.guidance is not None and not (takes_guidance or family.ignores_guidance):
        message = (
            f"{job.model.name} ({family.rules.label}) does not take its guidance as an input: use "
            "cfg, and leave the Guidance Input node out"
        )
        raise InvalidParam(message, param="guidance")
    family.check_variant(job.model)
    check_references(job, family)
    latent, multiple = job.latent, family.size_multiple
    for name, value in (("width", latent.width), ("height", latent.height)):
        if value % multiple or value <= 0:
            message = (
                f"{name} is {value}: {family.rules.label} needs a multiple of {multiple}, "
                f"such as {max(multiple, round(value / multiple) * multiple)}"
            )
            raise InvalidParam(message, param=name)
    _check_frames(job, family)


def _check_frames(job: SampleJob, family: ModelFamily) -> None:
    """Raise InvalidParam for a video that the family's latents do not have."""
    latent, label = job.latent, family.rules.label
    below, above = family.frames_below(latent.frames), family.frames_above(latent.frames)
    if latent.frames not in {below, above}:
        near = min((below, above), key=lambda count: abs(count - latent.frames))
        message = (
            f"frames is {latent.frames}: {label} needs {family.frames_in_words}, such as {near}"
        )
        raise InvalidParam(message, param="frames")
    if latent.mask is not None and isinstance(family.space, SoundtrackSpace):
        message = f"{label} makes no part of a video anew: leave the mask out"
        raise InvalidParam(message, port="latent")
