"""From references to leased modules, and from jobs to everything the sampler needs.

Lives on the device thread; the families' torch code is imported here when first needed.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from inline_core.devices.placement import Placement
from inline_core.devices.policy import DevicePolicy
from inline_core.errors import InvalidParam, ModelFileInvalid, ModelFileMissing
from inline_core.families.registry import family_decoding, family_of, family_reading
from inline_core.loading.catalog import Catalog
from inline_core.loading.component import ComponentRef
from inline_core.loading.files import open_weights
from inline_core.loading.identify import identify
from inline_core.loading.pool import ComponentPool, Lease
from inline_core.loading.stream import LoadPlan
from inline_core.sampling.family import ModelFamily, Prepared
from inline_core.sampling.guidance import is_guided
from inline_core.sampling.job import SampleJob
from inline_core.sampling.preview import LatentColours, decoded_jpeg
from inline_core.sampling.values import Conditioning

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PROMPTS_KEPT: Final = 64
# A VAE below this draws the previews itself.
SMALL_VAE_BYTES: Final = 32 * 1024 * 1024
_BYTES_PER_VALUE: Final[Mapping[str, int]] = {"float32": 4, "bfloat16": 2, "float16": 2}

Check = Callable[[], None]
Phase = Callable[[str, float, str], None]


class ModuleSource:
    """Implements `ModelSource` with the catalog, the pool and the device policy."""

    def __init__(self, catalog: Catalog, pool: ComponentPool, policy: DevicePolicy) -> None:
        self._catalog = catalog
        self._pool = pool
        self._policy = policy
        self._prompts: OrderedDict[tuple[ComponentRef, str], Any] = OrderedDict()
        self._colours: dict[tuple[str, str], LatentColours] = {}
        self._versions = _library_versions()

    def free_unleased(self) -> None:
        """Drop every module and encoded prompt that nobody uses."""
        self._prompts.clear()
        self._pool.free()

    # ---- the sampler's side --------------------------------------------------------------------

    def prepare(self, job: SampleJob) -> Prepared:
        """Encode the prompts, then load the model; the encoder may make room for it.

        Raises: InlineError, RunCancelled.
        """
        family = family_of(job.model)
        check = job.cancel.check if job.cancel is not None else _nothing
        _check_job(job, family)
        self._catalog.check_fit(job.model, text_encoder=job.positive.encoder)
        warnings: list[str] = []
        if job.on_phase:
            job.on_phase("loading", 0.02, "Loading model")
        positive = self.encode(job.positive, check, warnings, job.on_phase)
        negative = None
        if is_guided(job.cfg):
            unwanted = job.negative or Conditioning("", job.positive.encoder)
            self._catalog.check_fit(job.model, text_encoder=unwanted.encoder)
            negative = self.encode(unwanted, check, warnings, job.on_phase)
        preview, end_preview = self._preview(job.model, check)
        try:
            lease, placement = self._denoiser(job.model, family, check, warnings)
        except BaseException:
            end_preview()
            raise

        def release() -> None:
            lease.release()
            end_preview()

        device = placement.device
        return Prepared(
            denoiser=lease.value,
            positive=positive,
            negative=negative,
            space=family.space,
            schedule_shift=family.schedule_shift,
            device=device,
            dtype=placement.dtype,
            release=release,
            preview=preview,
            provenance={
                "model": _named(job.model),
                "textEncoder": _named(job.positive.encoder),
                "family": family.name,
                "variant": job.model.variant,
                "shift": family.schedule_shift,
                "placement": placement.reason,
                "versions": self._versions,
            },
            warnings=tuple(warnings),
        )

    def encode(
        self, conditioning: Conditioning, check: Check, warnings: list[str], phase: Phase | None
    ) -> Any:
        """The encoded prompt, from the cache or by the text encoder."""
        key = (conditioning.encoder, conditioning.prompt)
        if key in self._prompts:
            self._prompts.move_to_end(key)
            encoded = self._prompts[key]
        else:
            check()
            with self._text_encoder(conditioning.encoder, check) as encoder:
                if phase:
                    phase("encode", 0.05, "Encoding prompt")
                encoded = encoder.encode(conditioning.prompt)
            self._prompts[key] = encoded
            if len(self._prompts) > PROMPTS_KEPT:
                self._prompts.popitem(last=False)
        if encoded.cut_tokens:
            warnings.append(
                f"The prompt is too long: its last {encoded.cut_tokens} tokens were cut"
            )
        return encoded

    # ---- leases --------------------------------------------------------------------------------

    def _denoiser(
        self, model: ComponentRef, family: ModelFamily, check: Check, warnings: list[str]
    ) -> tuple[Lease[Any], Placement]:
        plan = self._plan(model, check)
        runtime = importlib.import_module(family.runtime)
        adapters = runtime.match_adapters(plan, model.adapters)
        warnings.extend(matched.warning for matched in adapters if matched.warning)
        lease = self._lease(model, plan, lambda: runtime.load_denoiser(plan, adapters))
        return lease, plan.placement

    def _text_encoder(self, encoder: ComponentRef, check: Check) -> Lease[Any]:
        family = family_reading(encoder)
        if family is None:
            message = f"no family reads prompts of the text encoder {encoder.name}"
            raise ModelFileInvalid(message)
        plan = self._plan(encoder, check)
        tokenizer = self._catalog.tokenizer_for(encoder)
        runtime = importlib.import_module(family.runtime)
        return self._lease(encoder, plan, lambda: runtime.load_text_encoder(plan, tokenizer))

    def vae(self, vae: ComponentRef, check: Check, space: str | None = None) -> Lease[Any]:
        """The leased VAE runtime.  Raises: ModelFileInvalid, ModelFileMissing, OutOfMemory."""
        family = family_decoding(vae, space)
        plan = self._plan(vae, check, precise=True)
        runtime = importlib.import_module(family.runtime)
        return self._lease(vae, plan, lambda: runtime.load_vae(plan, family.space))

    def _lease(
        self, reference: ComponentRef, plan: LoadPlan, load: Callable[[], Any]
    ) -> Lease[Any]:
        size = plan.identity.parameter_count * _BYTES_PER_VALUE[plan.placement.dtype]
        key = (reference.path, reference.stamp, reference.adapters, plan.placement.key)
        return self._pool.lease(key, reference.name, size, load)

    def _plan(self, reference: ComponentRef, check: Check, *, precise: bool = False) -> LoadPlan:
        """Read the header again right before a load, so that a replaced file is noticed."""
        files = open_weights(reference.path, reference.name)
        if files.stamp != reference.stamp:
            message = f"{reference.name} was replaced since the run was planned: run again"
            raise ModelFileInvalid(message)
        identity = identify(files.headers)
        placement = self._policy.place(identity.size_bytes, identity.dtype, precise=precise)
        return LoadPlan(files, identity, placement, reference.name, check)

    # ---- previews ------------------------------------------------------------------------------

    def colours_of(self, vae: ComponentRef, channels: int) -> LatentColours:
        """The preview colours of a VAE, shared by all who use it."""
        return self._colours.setdefault((str(vae.path), vae.stamp), LatentColours(channels))

    def learn_colours(self, vae: ComponentRef, latents: Any, pixels: NDArray[np.uint8]) -> None:
        """Improve a VAE's preview colours from a picture: (1, c, h, w) and (height, width, 3)."""
        import torch

        if self._catalog.identity(vae).size_bytes < SMALL_VAE_BYTES:
            return
        picture = torch.from_numpy(pixels).permute(2, 0, 1)[None]  # (1, 3, height, width)
        colours = self.colours_of(vae, latents.shape[1])
        colours.learn(latents, picture.float() / 127.5 - 1)

    def _preview(
        self, model: ComponentRef, check: Check
    ) -> tuple[Callable[[Any], bytes], Callable[[], None]]:
        """How latents of `model` are previewed, and what to call when the job is over."""
        channels = family_of(model).space.channels
        try:
            vae, _ = self._catalog.companions(model)
        except (ModelFileMissing, ModelFileInvalid):
            return LatentColours(channels).jpeg, _nothing
        if self._catalog.identity(vae).size_bytes >= SMALL_VAE_BYTES:
            return self.colours_of(vae, channels).jpeg, _nothing
        lease = self.vae(vae, check)
        return functools.partial(decoded_jpeg, lease.value.decode), lease.release


def _nothing() -> None:
    pass


def _check_job(job: SampleJob, family: ModelFamily) -> None:
    latent, multiple = job.latent, family.size_multiple
    for name, value in (("width", latent.width), ("height", latent.height)):
        if value % multiple or value <= 0:
            message = (
                f"{name} is {value}: {family.rules.label} needs a multiple of {multiple}, "
                f"such as {max(multiple, round(value / multiple) * multiple)}"
            )
            raise InvalidParam(message, param=name)


def _named(reference: ComponentRef) -> dict[str, str]:
    return {"name": reference.name, "stamp": reference.stamp}


def _library_versions() -> dict[str, str]:
    versions: dict[str, str] = {}
    for name in ("inline-core", "torch", "diffusers", "transformers", "safetensors"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
