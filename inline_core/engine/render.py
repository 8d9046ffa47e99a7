"""The torch side behind the `Render` protocol: one device thread, one pool, one sampler.

Nothing here imports torch in the calling thread; the device thread does, when first used.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import importlib.util
import os
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import psutil

from inline_core.devices.policy import DevicePolicy
from inline_core.devices.release import give_back, tune_allocator
from inline_core.devices.worker import DeviceThread
from inline_core.engine.decoding import Decoder
from inline_core.engine.encoding import Encoder
from inline_core.errors import RunCancelled, RuntimeMissing, Unavailable
from inline_core.families.registry import (
    AUTOENCODERS,
    FAMILIES,
    TEXT_ENCODERS,
)
from inline_core.loading.catalog import Catalog
from inline_core.loading.component import ComponentRef
from inline_core.loading.pool import ComponentPool
from inline_core.media.values import Clip, Image, Waveform
from inline_core.nodes.base import NodeContext
from inline_core.sampling.backend import BatchedSampler
from inline_core.sampling.job import SampleJob, SampleResult, StepReport
from inline_core.sampling.memory import as_out_of_memory, is_out_of_memory
from inline_core.sampling.text_request import TextRequest
from inline_core.sampling.values import Conditioning, Latent
from inline_core.settings import Settings

if TYPE_CHECKING:
    from numpy.typing import NDArray

T = TypeVar("T")

NEEDED: Final = ("torch", "diffusers", "transformers", "safetensors")
INSTALL_LINE: Final = 'pip install "inline-core[runtime]"'
# In the data folder; see `sampling.speeds`.
SPEEDS_FILE: Final = "pass-speeds.json"
SAMPLE_FROM, SAMPLE_TO = 0.1, 0.9
POLL_S: Final = 0.1


class CancelSignal:
    """Lets the device thread learn that the walker of a job has left."""

    def __init__(self, check: Callable[[], None] | None) -> None:
        self._check = check
        self._gone = threading.Event()

    def leave(self) -> None:
        """The walker does not wait any more."""
        self._gone.set()

    def check(self) -> None:
        """Raise `RunCancelled` if the walker left or its run was cancelled."""
        if self._gone.is_set():
            raise RunCancelled
        if self._check is not None:
            self._check()


@dataclass(frozen=True, slots=True)
class _Runtime:
    """What lives on the device thread; `modules` is a `families.modules.ModuleSource`."""

    modules: Any
    sampler: Any


class TorchRender:
    """Renders for nodes.  Methods block their caller; any number of threads may call.

    `settings` gives threads, budget, batch size and idle time; `catalog` finds companions.
    """

    def __init__(
        self, settings: Settings, catalog: Catalog, policy: DevicePolicy | None = None
    ) -> None:
        self._settings = settings
        self._catalog = catalog
        self._policy = DevicePolicy(settings) if policy is None else policy
        self._pool = ComponentPool(
            self._policy.room, keep_bytes=_keep_bytes(settings), after_drop=give_back
        )
        self._device = DeviceThread("device-0", around=self._set_up, idle=self._idle)
        # Where work that is not denoising is done; a thread of its own once the device is known.
        self._lane = self._device
        self._lock = threading.Lock()
        self._runtime: Future[_Runtime] | None = None
        self._decoder = Decoder(lambda: self._ready().modules, self._on_device)
        self._encoder = Encoder(lambda: self._ready().modules, self._on_device, catalog)

    # ---- the Render protocol -------------------------------------------------------------------

    def encode_text(self, conditioning: Conditioning, ctx: NodeContext) -> None:
        """Check that a prompt can be encoded; that happens when a model asks for it.

        The model decides where its text encoder has room, and in what precision.  That a prompt
        was cut is said by the `SampleResult` that used it.
        Raises: ModelFileInvalid/Missing, RuntimeMissing, RunCancelled.
        """
        modules = self._ready().modules
        ctx.check_cancelled()
        modules.prompts.check_encoder(conditioning.encoder)

    def sample(self, job: SampleJob, ctx: NodeContext) -> SampleResult:
        """Denoise one job together with others.

        Raises: InvalidParam, ModelFileInvalid/Missing, NotFinite, OutOfMemory, RuntimeMissing,
        RunCancelled.
        """
        runtime = self._ready()
        ctx.check_cancelled()
        signal = CancelSignal(job.cancel.check if job.cancel is not None else None)
        mailbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

        def on_step(report: StepReport) -> None:
            mailbox.put(functools.partial(_tell_step, ctx, job, report))

        def on_phase(phase: str, fraction: float, status: str) -> None:
            mailbox.put(functools.partial(ctx.progress, phase, fraction, status))

        watched = replace(
            job, cancel=signal, on_step=on_step, on_phase=on_phase, priority=ctx.priority
        )
        sampler: BatchedSampler = runtime.sampler
        future = sampler.submit(watched)
        future.add_done_callback(lambda _: mailbox.put(None))
        _follow(mailbox, ctx, signal)
        result = future.result()
        return replace(result, warnings=(*self._size_warnings(job), *result.warnings))

    def decode(self, vae: ComponentRef, latent: Latent, ctx: NodeContext) -> tuple[Image, ...]:
        """Turn latents into pictures.  Raises: as `Decoder.pictures`."""
        return self._decoder.pictures(vae, latent, ctx)

    def decode_clips(self, vae: ComponentRef, latent: Latent, ctx: NodeContext) -> tuple[Clip, ...]:
        """Turn latents of videos into videos without sound.  Raises: as `decode`."""
        return self._decoder.clips(vae, latent, ctx)

    def decode_sounds(
        self, vae: ComponentRef, latent: Latent, ctx: NodeContext
    ) -> tuple[Waveform, ...]:
        """Turn latents of sounds into sounds.  Raises: as `decode`."""
        return self._decoder.sounds(vae, latent, ctx)

    def encode_image(self, vae: ComponentRef, image: Image, ctx: NodeContext) -> Latent:
        """Turn a picture into latents; the size must fit.  Raises: as `Encoder.pixels`."""
        return self._encoder.pixels(vae, image.pixels, ctx)

    def encode_pixels(self, vae: ComponentRef, pixels: NDArray[Any], ctx: NodeContext) -> Latent:
        """Turn pixels into latents.  Raises: as `Encoder.pixels`."""
        return self._encoder.pixels(vae, pixels, ctx)

    def encode_all(self, vae: ComponentRef, images: Sequence[Image], ctx: NodeContext) -> Latent:
        """Turn pictures into latents, cut to sizes that fit.  Raises: as `Encoder.all`."""
        return self._encoder.all(vae, images, ctx)

    def on_latents(self, change: str, ctx: NodeContext, *values: Any) -> Any:
        """Run a function of `sampling.latent_tensors`; see `Encoder.on_latents`."""
        return self._encoder.on_latents(change, ctx, *values)

    def upscale_latent(
        self, upscaler: ComponentRef, vae: ComponentRef, latent: Latent, ctx: NodeContext
    ) -> Latent:
        """Latents of a video twice as wide and high; its sound stays as it is.

        Raises: InvalidParam, ModelFileInvalid/Missing, OutOfMemory.
        """
        modules = self._ready().modules
        work = functools.partial(modules.latent_upscalers.upscale, upscaler, vae, latent)
        larger: Latent = self._on_device(work, ctx)
        return larger

    def write_text(
        self, encoder: ComponentRef, request: TextRequest, ctx: NodeContext
    ) -> tuple[str, str]:
        """What a language model answers, and what it thought before.

        Raises: InvalidParam, ModelFileInvalid/Missing, NotFinite, OutOfMemory, RunCancelled.
        """
        modules = self._ready().modules

        def report(done: int, most: int) -> None:
            ctx.progress("encode", done / most, f"Token {done}/{most}")

        work = functools.partial(modules.writers.write, encoder, request, report=report)
        answer: tuple[str, str] = self._on_device(work, ctx)
        return answer

    def upscale(
        self, upscaler: ComponentRef, image: Image, ctx: NodeContext, *, tile: int, overlap: int
    ) -> Image:
        """Enlarge a picture; out of memory, once more in smaller tiles.  Raises: as `decode`."""
        runtime = self._ready()

        def report(done: int, count: int) -> None:
            ctx.progress("decode", done / count, f"Tile {done}/{count}")

        work = functools.partial(
            runtime.modules.upscalers.upscale, upscaler, image.pixels[:, :, :3],
            overlap=overlap, report=report,
        )  # fmt: skip
        pixels = self._on_device(
            functools.partial(work, tile=tile), ctx, again=functools.partial(work, tile=tile // 2)
        )
        return Image(pixels, {**image.provenance, "upscaler": runtime.modules.named(upscaler)})

    # ---- for the server ------------------------------------------------------------------------

    @property
    def policy(self) -> DevicePolicy:
        """Who decides where things go; for health and estimates."""
        return self._policy

    def batching(self) -> tuple[Any, BatchedSampler]:
        """The `ModuleSource` and the sampler, for jobs that come without a graph.

        Waits for torch.  Raises: RuntimeMissing.
        """
        runtime = self._ready()
        return runtime.modules, runtime.sampler

    def warm_up(self) -> None:
        """Start the device thread and import torch in the background; never raises."""
        if not missing_libraries():
            self._start()

    def stats(self) -> dict[str, Any]:
        """Device, pool and sampler for `/v1/health`; never waits for the device."""
        runtime = self._runtime
        ready = runtime is not None and runtime.done() and runtime.exception() is None
        made = runtime.result() if runtime is not None and ready else None
        return {
            "device": self._policy.summary(),
            "ready": ready,
            "missing": list(missing_libraries()),
            "pool": self._pool.stats(),
            "prompts": None,
            "plans": {},
            **(made.modules.stats() if made else {}),
            "sampler": made.sampler.stats() if made else None,
        }

    def free(self) -> dict[str, int]:
        """Drop every model and prompt that is not in use; gives bytes before and after.

        `resident` is the memory of this process, the others count what the pool holds.
        """
        before, resident = int(self._pool.stats()["bytesHeld"]), _resident_bytes()
        runtime = self._runtime
        if runtime is not None and runtime.done() and runtime.exception() is None:
            self._device.call(runtime.result().modules.free).result()
        return {
            "bytesBefore": before,
            "bytesAfter": int(self._pool.stats()["bytesHeld"]),
            "residentBefore": resident,
            "residentAfter": _resident_bytes(),
        }

    def close(self, timeout: float = 10.0) -> bool:
        """Stop taking work, end what runs, wait for the thread; True when it ended in time."""
        runtime = self._runtime
        started = runtime is not None and runtime.done() and runtime.exception() is None
        lane_ended = self._lane is self._device or self._lane.close(timeout)
        if runtime is None or not started:
            return self._device.close(timeout) and lane_ended
        sampler = runtime.result().sampler
        error = Unavailable("the server is stopping")
        with contextlib.suppress(Unavailable, TimeoutError):
            self._device.call(functools.partial(sampler.fail_all, error)).result(timeout)
        ended = self._device.close(timeout)
        if ended:
            sampler.fail_all(error)  # what was submitted in between
        return ended and lane_ended

    # ---- inside --------------------------------------------------------------------------------

    def _ready(self) -> _Runtime:
        missing = missing_libraries()
        if missing:
            names = ", ".join(missing)
            message = f"This needs {names}, which is not installed: {INSTALL_LINE}"
            raise RuntimeMissing(message, details={"missing": list(missing)})
        return self._start().result()

    def _start(self) -> Future[_Runtime]:
        with self._lock:
            if self._runtime is None:
                self._runtime = self._device.call(self._build)
            return self._runtime

    def _build(self) -> _Runtime:
        """On the device thread: everything that imports torch."""
        try:
            import torch

            from inline_core.families.modules import ModuleSource
            from inline_core.families.options import ModuleOptions
            from inline_core.sampling.backends.inprocess import InProcessSampler
            from inline_core.sampling.speeds import PassSpeeds

            runtimes = [family.runtime for family in FAMILIES.values()]
            for name in (*runtimes, *TEXT_ENCODERS.values(), *AUTOENCODERS.values()):
                importlib.import_module(name)
        except (ImportError, OSError) as error:
            message = f"The render libraries cannot be imported ({error}): {INSTALL_LINE}"
            raise RuntimeMissing(message) from error
        if self._policy.machine.kind == "cuda" and not torch.cuda.is_available():
            self._policy.confirm("cpu", "torch finds no usable CUDA device")
        if self._policy.machine.kind == "mps" and not torch.backends.mps.is_available():
            self._policy.confirm("cpu", "torch finds no usable Metal device")
        options = ModuleOptions.of(self._settings)
        modules = ModuleSource(
            self._catalog, self._pool, self._policy, self._settings.data_dir, options
        )
        lane = None
        if self._policy.machine.kind != "cpu" or self._settings.overlap_on_cpu:
            # A processor has no idle units for it: there it takes turns with denoising.
            lane = self._lane = DeviceThread("lane-0", around=self._set_up)
        speeds = PassSpeeds(self._settings.data_dir / SPEEDS_FILE)
        sampler: Any
        if self._settings.ray_address:
            from inline_core.engine.cluster import with_cluster

            sampler = with_cluster(self._settings)
        else:
            sampler = InProcessSampler(
                self._device, modules, self._settings.max_batch, lane=lane, speeds=speeds
            )
        if self._policy.may_split:
            from inline_core.engine.grouping import with_group

            sampler = with_group(
                sampler, self._settings, self._policy, lambda: self._pool.free("room")
            )
        # The libraries leave over a million objects; looked at again at each eviction they would
        # cost half a second.
        gc.collect()
        gc.freeze()
        return _Runtime(modules, sampler)

    def _set_up(self, loop: Callable[[], None]) -> None:
        """Around the device thread's loop: thread count and inference mode, for this thread.

        Raises: RuntimeMissing if torch cannot be imported; everybody who waits gets it.
        """
        try:
            import torch
        except (ImportError, OSError) as error:
            message = f"torch cannot be imported ({error}): {INSTALL_LINE}"
            raise RuntimeMissing(message) from error
        tune_allocator()
        # Pinned, because another thread count rounds differently.
        torch.set_num_threads(self._settings.threads or len(os.sched_getaffinity(0)))
        with torch.inference_mode():
            loop()

    def _idle(self) -> None:
        if self._settings.idle_unload_s:
            self._pool.drop_idle(self._settings.idle_unload_s)

    def _on_device(
        self,
        work: Callable[[Callable[[], None]], T],
        ctx: NodeContext,
        again: Callable[[Callable[[], None]], T] | None = None,
    ) -> T:
        """Run `work(check)` on the device thread; when memory ran out, free some and try once more.

        `again` is what the second try does, if it is something else.  The walker polls its own
        cancellation, so that it leaves at once even behind a long load.
        """
        signal = CancelSignal(None)

        def guarded() -> T:
            signal.check()
            try:
                return work(signal.check)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
            # Outside of `except`: the error's traceback holds the tensors of the failed try.
            self._pool.free("out_of_memory")
            try:
                return (again or work)(signal.check)
            except Exception as error:
                raise as_out_of_memory(error, "decoding or encoding") from error

        ctx.check_cancelled()
        mailbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        future = self._lane.call(guarded)
        future.add_done_callback(lambda _: mailbox.put(None))
        _follow(mailbox, ctx, signal)
        result = future.result()
        ctx.check_cancelled()
        return result

    def _size_warnings(self, job: SampleJob) -> list[str]:
        """Say so when the size is far from what the model was made for."""
        defaults = self._catalog.defaults_of(job.model)
        native = defaults.get("width", 0) * defaults.get("height", 0)
        asked = job.latent.width * job.latent.height
        if native and not native / 5 <= asked <= native * 5:
            message = (
                f"{job.latent.width}x{job.latent.height} is far from the {defaults['width']}x"
                f"{defaults['height']} that {job.model.name} was made for: expect poor pictures"
            )
            return [message]
        return []


def _keep_bytes(settings: Settings) -> int | None:
    """How much stays loaded that nobody uses: all that fits, a budget, or nothing."""
    if not settings.smart_memory:
        return 0
    budget = settings.keep_resident_gb
    return None if budget is None else int(budget * 1e9)


def _resident_bytes() -> int:
    return int(psutil.Process().memory_info().rss)


def missing_libraries() -> tuple[str, ...]:
    """Names of the libraries of the `runtime` extra that are not installed; imports nothing."""
    return tuple(name for name in NEEDED if importlib.util.find_spec(name) is None)


def _follow(
    mailbox: queue.SimpleQueue[Callable[[], None] | None], ctx: NodeContext, signal: CancelSignal
) -> None:
    """Pass messages of the device thread on in the walker's thread until the end (None)."""
    try:
        while True:
            with contextlib.suppress(queue.Empty):
                message = mailbox.get(timeout=POLL_S)
                if message is None:
                    return
                message()
            ctx.check_cancelled()
    except BaseException:
        signal.leave()
        raise


def _tell_step(ctx: NodeContext, job: SampleJob, report: StepReport) -> None:
    done = report.step / report.step_count
    eta_ms = None if report.eta_s is None else round(report.eta_s * 1000)
    ctx.progress(
        "sample",
        SAMPLE_FROM + (SAMPLE_TO - SAMPLE_FROM) * done,
        f"Step {report.step}/{report.step_count}",
        step=report.step,
        step_count=report.step_count,
        eta_ms=eta_ms,
    )
    if report.preview is not None:
        ctx.preview(report.preview)
    if job.on_step is not None:
        job.on_step(report)
