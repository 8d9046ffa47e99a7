"""Section e: two models where one fits, and running out of memory."""

from __future__ import annotations

import time
from typing import Any, Final

from device_check.bench import Bench
from device_check.report import Row
from device_check.studio import QuietContext, digest, job_for, render
from inline_core.devices.budget import CONTEXT_BYTES, MIB
from inline_core.devices.policy import DevicePolicy
from inline_core.engine.render import TorchRender
from inline_core.families.demand import demand_of
from inline_core.families.z_image.family import Z_IMAGE
from inline_core.loading.catalog import Catalog
from inline_core.sampling.values import Latent
from inline_core.settings import Settings

NAME: Final = "e eviction"
OUT_OF_MEMORY: Final = "e out of memory"
# Of a model, so that a second one can not stay.
_SPARE_SHARE: Final = 0.25
_SPARE_BYTES: Final = 1 << 30
_TOLERANCE_BYTES: Final = 64 * MIB


def eviction(bench: Bench) -> None:
    """A, B and A again under a budget that holds one of them."""
    budget = _budget_mib(bench)
    before = bench.device.allocated()
    with render(bench, vram_budget=budget) as (made, catalog):
        hashes, times, allocated = [], [], []
        for model in ("a.safetensors", "b.safetensors", "a.safetensors", "a.safetensors"):
            bench.deadline.check(3.0)
            started = time.perf_counter()
            hashes.append(digest(_latents(made, catalog, bench.small, model).samples))
            times.append(time.perf_counter() - started)
            allocated.append(bench.device.allocated())
        stats = made.stats()["pool"]
        capacity = made.policy.summary()["capacityMb"] * MIB
    add = bench.report.add
    reasons = ", ".join(f"{why}: {count}" for why, count in stats["evictionReasons"].items())
    add(Row(NAME, "first model, loaded and sampled", times[0], "s", note=f"{budget} MiB"))
    add(Row(NAME, "switch to the second", times[1], "s"))
    add(Row(NAME, "switch back", times[2], "s"))
    add(Row(NAME, "the same again, resident", times[3], "s"))
    room = float(stats["evictionReasons"].get("room", 0))
    add(Row(NAME, "dropped to make room", room, "models", 2.0, at_least=1.0, note=reasons))
    same = float(len(set(hashes)) == 1)
    note = "both files hold the same weights"
    add(Row(NAME, "equal pictures before and after", same, "", 1.0, at_least=1.0, note=note))
    most = max(allocated) / 1e9 if bench.device.is_cuda else None
    add(Row(NAME, "device memory between runs / budget", most, "GB", capacity / 1e9, at_most=1.0))
    left = bench.device.allocated() - before if bench.device.is_cuda else None
    limit = _TOLERANCE_BYTES / 1e9
    value = None if left is None else left / 1e9
    add(Row(NAME, "left on the device when all is freed", value, "GB", limit, at_most=1.0))


def out_of_memory(bench: Bench) -> None:
    """A decode that cannot fit is done in tiles, and the next picture is the earlier one."""
    with render(bench) as (made, catalog):
        before = _latents(made, catalog, bench.small, "a.safetensors")
        vae = catalog.companions(job_for(catalog, bench.small).model)[0]
        # Decoded small once: kernels and the VAE are there before memory gets short.
        made.decode(vae, before, _quiet())
        large = _latents(made, catalog, bench.large, "a.safetensors")
        context = _quiet()
        bench.device.clean()
        with bench.device.short_of_memory(_SPARE_BYTES) as short:
            bench.deadline.check(3.0)
            pictures = made.decode(vae, large, context) if short else ()
        reasons = made.stats()["pool"]["evictionReasons"]
        bench.deadline.check(2.0)
        after = _latents(made, catalog, bench.small, "a.safetensors")
    tiled = float(any("tiles" in warning for warning in context.warnings)) if short else None
    add = bench.report.add
    what = f"decode {bench.large} with 1 GB left: recovered in tiles"
    note = f"{len(pictures)} picture; dropped: {reasons}" if short else ""
    add(Row(OUT_OF_MEMORY, what, tiled, "", 1.0, at_least=1.0, note=note))
    same = float(digest(before.samples) == digest(after.samples))
    add(Row(OUT_OF_MEMORY, "the next picture equals the earlier", same, "", 1.0, at_least=1.0))


def _latents(made: TorchRender, catalog: Catalog, side: int, model: str) -> Latent:
    return made.sample(job_for(catalog, side, model), _quiet()).latent


def _quiet() -> Any:
    return QuietContext()


def _budget_mib(bench: Bench) -> int:
    """What one model with its companions needs at the small size, and a part of a second one."""
    parts = {
        "model": bench.opened(bench.files.model),
        "text_encoder": bench.opened(bench.files.text),
        "vae": bench.opened(bench.files.vae),
    }
    demand = demand_of(Z_IMAGE, parts, bench.small, bench.small, 1)
    plan = DevicePolicy(Settings(), bench.device.machine).plan(demand)
    spare = int(demand.model.bytes_at(plan.model.dtype) * _SPARE_SHARE)
    return (plan.required_bytes + spare + CONTEXT_BYTES[bench.device.kind]) // MIB
