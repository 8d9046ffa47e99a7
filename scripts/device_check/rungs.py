"""Section b: the rungs of the ladder one after the other, with and without a LoRA."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil
from torch import Tensor

from device_check.accelerator import Peak
from device_check.bench import Bench, Inputs, relative_error, step_inputs, tidy
from device_check.report import Row
from inline_core.devices.budget import CONTEXT_BYTES, Demand, Weights, Workload
from inline_core.devices.ladder import make_plan
from inline_core.devices.placement import BYTES_PER_VALUE, Placement
from inline_core.devices.policy import DevicePolicy
from inline_core.families.adapted import AdaptedDenoiser, SharedDenoiser
from inline_core.families.z_image.components import adapted_model, load_denoiser
from inline_core.families.z_image.family import workload
from inline_core.loading.adapters import match_adapter
from inline_core.loading.component import LoraRef
from inline_core.loading.deltas import load_adapter
from inline_core.sampling.family import PassSize
from inline_core.settings import Settings

NAME: Final = "b rungs"
STEP: Final = "c memory"
LORA: Final = "f lora"
# Random weights let errors grow through the blocks more than trained ones do.
_MOST_INT8_ERROR: Final = 0.15
_MOST_FP8_ERROR: Final = 0.3
# A hook that does nothing would be off by the whole effect of the adapter.
_LEAST_EFFECT: Final = 2.0


@dataclass(frozen=True, slots=True)
class _Way:
    """One way to hold the model, and how far its output may be off."""

    what: str
    path: Path
    placement: Placement
    most_error: float


@dataclass(frozen=True, slots=True)
class _Reference:
    """The output of the resident model, without and with the adapter."""

    plain: Tensor
    adapted: Tensor


def rungs(bench: Bench) -> None:
    """Time, memory and error of every way to hold the model."""
    model, fp8, place = bench.files.model, bench.files.fp8, bench.placement
    ways = (
        _Way("bf16 resident", model, place(), 0.0),
        _Way("int8 resident", model, place(quantization="int8"), _MOST_INT8_ERROR),
        _Way("fp8 packed", fp8, place(quantization="packed"), _MOST_FP8_ERROR),
        _Way("int8 streamed", model, place(quantization="int8", offload="group"), _MOST_INT8_ERROR),
        _Way("bf16 streamed", model, place(offload="group"), 0.01),
    )
    reference: _Reference | None = None
    problems = []
    for way in ways:
        bench.deadline.check(2.0)
        with tidy(bench):
            try:
                found = _measure(bench, way, reference)
            except Exception as error:
                if reference is None:
                    raise
                problems.append(f"{way.what}: {type(error).__name__}: {error}")
                continue
        reference = reference or found
    if problems:
        raise RuntimeError("; ".join(problems))


def _measure(bench: Bench, way: _Way, reference: _Reference | None) -> _Reference:
    opened = bench.opened(way.path)
    geometry = opened.identity.geometry
    inputs = step_inputs(bench, bench.side, 1, geometry["cap_feat_dim"])
    add = bench.report.add
    denoisers: list[Any] = []
    plan = bench.load_plan(way.path, way.placement)
    with bench.device.peak() as whole:
        free = psutil.virtual_memory().available
        with bench.device.peak() as held:
            took = bench.device.seconds(lambda: denoisers.append(load_denoiser(plan)))
        taken = free - psutil.virtual_memory().available
        add(Row(NAME, f"{way.what}: load", took, "s", note=_in_gb(held)))
        steps: list[float] = []
        outputs: list[Tensor] = []
        # The first one chooses kernels.
        for _ in range(1 + bench.steps):
            bench.deadline.check(1.0)
            steps.append(bench.device.seconds(lambda: outputs.append(_step(denoisers[0], inputs))))
    plain = outputs[-1].cpu()
    add(Row(NAME, f"{way.what}: step at {bench.side}", statistics.median(steps[1:]), "s"))
    if way.placement.offload == "none":
        _add_held(bench, way, opened.weights, denoisers[0].module)
    else:
        told = opened.weights.bytes_at(way.placement.dtype, way.placement.quantization)
        # No bound: page-locked memory of earlier rungs is used again, and others use memory too.
        what = f"{way.what}: host memory taken, against what is counted"
        add(Row(NAME, what, taken / 1e9, "GB", told / 1e9))
    work = workload(PassSize(geometry, bench.side, bench.side))
    bench.add_peak(NAME, way.what, _predicted(bench, way, opened.weights, work), whole)
    if way.placement.offload == "none":
        with bench.device.peak() as step:
            _step(denoisers[0], inputs)
        values = work.denoise_values * BYTES_PER_VALUE[way.placement.dtype]
        bench.add_peak(STEP, f"one step at {bench.side}, {way.what}", values, step)
    if reference is not None:
        error = relative_error(plain, reference.plain)
        add(Row(NAME, f"{way.what}: error against bf16", error, "", way.most_error, at_most=1.0))
    adapted = _with_lora(bench, plan, denoisers[0], inputs)
    _add_lora(bench, way, _Reference(plain, adapted), reference)
    return _Reference(plain, adapted)


def _step(denoiser: Any, inputs: Inputs) -> Tensor:
    found: Tensor = denoiser.predict(inputs.latents, inputs.sigmas, inputs.prompts)
    return found


def _in_gb(peak: Peak) -> str:
    return "" if peak.allocated is None else f"peak {peak.allocated / 1e9:.2f} GB"


def _add_held(bench: Bench, way: _Way, weights: Weights, module: Any) -> None:
    """Bytes of the weights as they lie there, against the planner's arithmetic."""
    held = sum(tensor.numel() * tensor.element_size() for tensor in module.parameters())
    told = weights.bytes_at(way.placement.dtype, way.placement.quantization)
    row = Row(NAME, f"{way.what}: weights as counted", held / 1e9, "GB", told / 1e9, 0.98, 1.02)
    bench.report.add(row)


def _predicted(bench: Bench, way: _Way, weights: Weights, work: Workload) -> int:
    """What the policy counts for the denoising phase when it takes this rung.

    The policy never streams bf16, so that is added up here in the same way.
    """
    policy = DevicePolicy(Settings(), bench.device.machine)
    size = policy.size_of(way.placement, weights)
    on_device = size.device_bytes if bench.device.is_cuda else size.host_bytes
    needs = on_device + work.denoise_values * BYTES_PER_VALUE[way.placement.dtype]
    budget = needs + CONTEXT_BYTES[bench.device.kind]
    demand = Demand(weights, work=Workload(denoise_values=work.denoise_values))
    plan = make_plan(bench.device.machine, "gpu-max", demand, budget)
    return plan.phases["denoise"] if plan.model.key == way.placement.key else needs


def _with_lora(bench: Bench, plan: Any, denoiser: Any, inputs: Inputs) -> Tensor:
    reference = LoraRef(bench.files.lora, "lora", "", 1.0, strict=True)
    adapter = load_adapter(
        match_adapter(reference, adapted_model(plan)), bench.device.name, bench.deadline.check
    )
    shared = SharedDenoiser.around(denoiser)
    output = AdaptedDenoiser(shared, ((adapter, 1.0),)).predict(
        inputs.latents, inputs.sigmas, inputs.prompts
    )
    shared.switch.use(())
    return output.cpu()  # (members, c, h, w)


def _add_lora(bench: Bench, way: _Way, found: _Reference, reference: _Reference | None) -> None:
    """The error of an adapter on this rung, against how much the adapter changes."""
    effect = relative_error(found.adapted, found.plain)
    if reference is None:
        row = Row(LORA, f"{way.what}: change by the LoRA", effect, "", note="of the whole output")
        bench.report.add(row)
        return
    error = relative_error(found.adapted, reference.adapted)
    bench.report.add(
        Row(
            LORA,
            f"{way.what}: error against bf16 resident + LoRA",
            error,
            "",
            way.most_error,
            at_most=1.0,
        )
    )
    bench.report.add(
        Row(
            LORA,
            f"{way.what}: change by the LoRA, against that of bf16",
            effect,
            "",
            relative_error(reference.adapted, reference.plain),
            at_least=1 / _LEAST_EFFECT,
            at_most=_LEAST_EFFECT,
        )
    )
