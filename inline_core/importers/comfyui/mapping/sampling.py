"""Samplers, and the objects that ComfyUI hands to them: noise, guiders, solvers, sigmas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from inline_core.errors import shown_value
from inline_core.importers.comfyui.mapping.step import (
    Direct,
    Entry,
    Outputs,
    Step,
    Unsupported,
    chosen,
)
from inline_core.importers.comfyui.mapping.values import Constant, Value
from inline_core.importers.comfyui.mapping.video_latents import made_of, sampled, size_of
from inline_core.sampling.sigmas.schedules import SCHEDULES
from inline_core.sampling.solvers import SOLVERS

# ComfyUI's names of solvers that have another one here; those on "gpu" differ in where they draw
# their noise, which is never on the device here.
_OTHER_NAMES: Final = {
    "euler_ancestral": "euler_a",
    "dpmpp_sde_gpu": "dpmpp_sde",
    "dpmpp_2m_sde_gpu": "dpmpp_2m_sde",
    "dpmpp_2m_sde_heun_gpu": "dpmpp_2m_sde_heun",
    "dpmpp_3m_sde_gpu": "dpmpp_3m_sde",
}
_NOISE_SCALES: Final = {"ER-SDE": "er_sde", "Reverse-time SDE": "reverse_sde", "ODE": "ode"}
_NO_SOLVERS: Final = {
    "dpm_fast": "dpmpp_2m",
    "dpm_adaptive": "dpmpp_2m",
    "cfgpp_ud10_ab": "euler_cfg_pp",
}


@dataclass(frozen=True, slots=True)
class Noise:
    """A NOISE: its seed, or none at all (DisableNoise)."""

    seed: Value | None


@dataclass(frozen=True, slots=True)
class Solver:
    """A SAMPLER: our name of it and its options as our nodes write them."""

    name: str
    options: str = ""


@dataclass(frozen=True, slots=True)
class Guider:
    """A GUIDER: the model, its conditionings and scales, as inputs of our sampling node."""

    inputs: Mapping[str, Any]


def solver_name(step: Step, name: str) -> str:
    """Our name of a sampler.  Raises: Unsupported."""
    value = step.word(name, "euler")
    ours = _OTHER_NAMES.get(value, value)
    if ours in SOLVERS:
        return str(ours)
    message = f"the sampler {shown_value(value)} is not available here"
    raise Unsupported(message, _NO_SOLVERS.get(value, ""))


def schedule_name(step: Step) -> str:
    """The scheduler; the names are the same.  Raises: Unsupported."""
    value = step.word("scheduler", "normal")
    if value in SCHEDULES:
        return str(value)
    message = f"the scheduler {shown_value(value)} is not available here"
    raise Unsupported(message, "simple")


def ksampler(step: Step) -> Outputs:
    """KSampler."""
    inputs = {
        **_guided(step),
        "latent": step.needed("latent_image"),
        "steps": step.value("steps"),
        "sampler": solver_name(step, "sampler_name"),
        "scheduler": schedule_name(step),
        "seed": step.value("seed"),
        "denoise": step.value("denoise"),
        "noise": "one_draw",
    }
    return _sampled(step, inputs)[:1]


def ksampler_advanced(step: Step) -> Outputs:
    """KSamplerAdvanced."""
    inputs = {
        **_guided(step),
        "latent": step.needed("latent_image"),
        "steps": step.value("steps"),
        "sampler": solver_name(step, "sampler_name"),
        "scheduler": schedule_name(step),
        "seed": step.value("noise_seed"),
        "start_step": step.value("start_at_step"),
        "end_step": step.value("end_at_step"),
        "add_noise": step.constant("add_noise", "enable") == "enable",
        "leftover_noise": step.constant("return_with_leftover_noise", "disable") == "enable",
        "noise": "one_draw",
    }
    return _sampled(step, inputs)[:1]


def _guided(step: Step) -> dict[str, Any]:
    return {
        "model": step.needed("model"),
        "positive": step.needed("positive"),
        "negative": step.value("negative"),
        "cfg": step.value("cfg"),
    }


def sampler_custom(step: Step) -> Outputs:
    """SamplerCustom."""
    solver = _solver(step)
    inputs = {
        **_guided(step),
        "latent": step.needed("latent_image"),
        "sigmas": step.needed("sigmas"),
        "sampler": solver.name,
        "solver_options": solver.options or None,
        "seed": step.value("noise_seed"),
        "add_noise": step.value("add_noise"),
        "noise": "one_draw",
    }
    return _sampled(step, inputs)


def _sampled(step: Step, inputs: Mapping[str, Any]) -> list[Value]:
    """Add a sampling node: what it made, and its last estimate of the clean latent."""
    settled, both = sampled(step, inputs)
    added = step.add("sample/advanced", settled)
    model = settled["model"]
    return [made_of(both, added.out(port), model) for port in ("latent", "denoised")]


def sampler_custom_advanced(step: Step) -> Outputs:
    """SamplerCustomAdvanced."""
    solver = _solver(step)
    noise, guider = step.constant("noise"), step.constant("guider")
    if not isinstance(noise, Noise) or not isinstance(guider, Guider):
        message = "its noise or its guider is nothing that is known here"
        raise Unsupported(message)
    inputs = {
        **guider.inputs,
        "latent": step.needed("latent_image"),
        "sigmas": step.needed("sigmas"),
        "sampler": solver.name,
        "solver_options": solver.options or None,
        "seed": noise.seed if noise.seed is not None else 0,
        "add_noise": noise.seed is not None,
        "noise": "one_draw",
    }
    return _sampled(step, inputs)


def _solver(step: Step) -> Solver:
    found = step.constant("sampler")
    if not isinstance(found, Solver):
        message = "its sampler is nothing that is known here"
        raise Unsupported(message)
    return found


def solver_select(step: Step) -> Outputs:
    """KSamplerSelect."""
    return [Constant(Solver(solver_name(step, "sampler_name")))]


def solver_with(name: str, options: Mapping[str, str]) -> Entry:
    """An entry for a node that is one sampler with options; `options` are their names and ours."""

    def convert(step: Step) -> Outputs:
        known = SOLVERS[name].options
        given = {ours: step.constant(theirs) for theirs, ours in options.items() if ours in known}
        if "solver_type" in given:
            given["solver_type"] = chosen(step, "solver_type", _NOISE_SCALES)
        text = ", ".join(f"{key}={value}" for key, value in given.items() if value is not None)
        return [Constant(Solver(name, text))]

    return convert


def lcm(step: Step) -> Outputs:
    """SamplerLCM: only its usual noise."""
    usual = {"s_noise": 1.0, "s_noise_end": 1.0, "noise_clip_std": 0.0}
    for name, value in usual.items():
        if step.has(name) and step.constant(name) != value:
            message = f"its {name} {step.constant(name)} is not available here, only {value}"
            raise Unsupported(message, "KSamplerSelect with lcm")
    return [Constant(Solver("lcm"))]


def noise_of(step: Step) -> Outputs:
    """RandomNoise."""
    return [Constant(Noise(step.needed("noise_seed")))]


def no_noise(_: Step) -> Outputs:
    """DisableNoise."""
    return [Constant(Noise(None))]


def basic_guider(step: Step) -> Outputs:
    """BasicGuider: one conditioning and no guidance."""
    inputs = {
        "model": step.needed("model"),
        "positive": step.needed("conditioning"),
        "cfg": 1.0,
    }
    return [Constant(Guider(inputs))]


def cfg_guider(step: Step) -> Outputs:
    """CFGGuider."""
    return [Constant(Guider(_guided(step)))]


def ltx_guider(step: Step) -> Outputs:
    """LTXVDualCFGGuider: one scale for the video, one for its sound."""
    scale = {"model": step.needed("model"), "cfg": step.value("audio_cfg")}
    inputs = {
        "model": step.add("guidance/sound", scale, suffix="sound").out("model"),
        "positive": step.needed("positive"),
        "negative": step.needed("negative"),
        "cfg": step.value("video_cfg"),
    }
    return [Constant(Guider(inputs))]


def dual_guider(step: Step) -> Outputs:
    """DualCFGGuider: cond1 is guided away from cond2, and that from the negative."""
    inputs = {
        "model": step.needed("model"),
        "positive": step.needed("cond1"),
        "second": step.needed("cond2"),
        "negative": step.needed("negative"),
        "cfg": step.value("cfg_conds"),
        "second_cfg": step.value("cfg_cond2_negative"),
        "style": step.constant("style", "regular"),
    }
    return [Constant(Guider(inputs))]


def basic_scheduler(step: Step) -> Outputs:
    """BasicScheduler."""
    inputs = {
        "model": step.needed("model"),
        "scheduler": schedule_name(step),
        "steps": step.value("steps"),
        "denoise": step.value("denoise"),
    }
    return [step.add("sigmas/schedule", inputs).out("sigmas")]


def ltxv_scheduler(step: Step) -> Outputs:
    """LTXVScheduler: the tokens are those of the latent, else 4096."""
    inputs = {
        "steps": step.value("steps"),
        "max_shift": step.value("max_shift"),
        "base_shift": step.value("base_shift"),
        "stretch": step.value("stretch"),
        "terminal": step.value("terminal"),
    }
    latent = step.value("latent")
    if latent is not None:
        inputs["latent"] = size_of(latent)
    return [step.add("sigmas/ltxv", inputs).out("sigmas")]


def split(kind: str, theirs: str, ours: str) -> Entry:
    """An entry for a node that cuts sigmas in two."""
    return Direct(kind, {"sigmas": "sigmas", theirs: ours}, ("high", "low"))


_SIGMAS = ("sigmas",)
_ANCESTRAL: Final = {"eta": "eta", "s_noise": "s_noise"}

ENTRIES: Final[Mapping[str, Entry]] = {
    "KSampler": ksampler,
    "KSamplerAdvanced": ksampler_advanced,
    "SamplerCustom": sampler_custom,
    "SamplerCustomAdvanced": sampler_custom_advanced,
    "KSamplerSelect": solver_select,
    "SamplerEulerAncestral": solver_with("euler_a", _ANCESTRAL),
    "SamplerEulerAncestralCFGPP": solver_with("euler_ancestral_cfg_pp", _ANCESTRAL),
    "SamplerER_SDE": solver_with(
        "er_sde",
        {
            "solver_type": "solver_type",
            "max_stage": "max_stage",
            "eta": "eta",
            "s_noise": "s_noise",
        },
    ),
    "SamplerLCM": lcm,
    "RandomNoise": noise_of,
    "DisableNoise": no_noise,
    "BasicGuider": basic_guider,
    "CFGGuider": cfg_guider,
    "DualCFGGuider": dual_guider,
    "LTXVDualCFGGuider": ltx_guider,
    "BasicScheduler": basic_scheduler,
    "LTXVScheduler": ltxv_scheduler,
    "ManualSigmas": Direct("sigmas/manual", {"sigmas": "sigmas"}, _SIGMAS),
    "Flux2Scheduler": Direct(
        "sigmas/flux2", {"steps": "steps", "width": "width", "height": "height"}, _SIGMAS
    ),
    "KarrasScheduler": Direct(
        "sigmas/karras",
        {"steps": "steps", "sigma_max": "sigma_max", "sigma_min": "sigma_min", "rho": "rho"},
        _SIGMAS,
    ),
    "ExponentialScheduler": Direct(
        "sigmas/exponential",
        {"steps": "steps", "sigma_max": "sigma_max", "sigma_min": "sigma_min"},
        _SIGMAS,
    ),
    "AlignYourStepsScheduler": Direct(
        "sigmas/align-your-steps",
        {"model_type": "model_type", "steps": "steps", "denoise": "denoise"},
        _SIGMAS,
    ),
    "SDTurboScheduler": Direct(
        "sigmas/turbo", {"model": "model", "steps": "steps", "denoise": "denoise"}, _SIGMAS
    ),
    "BetaSamplingScheduler": Direct(
        "sigmas/beta",
        {"model": "model", "steps": "steps", "alpha": "alpha", "beta": "beta"},
        _SIGMAS,
    ),
    "SplitSigmas": split("sigmas/split", "step", "step"),
    "SplitSigmasDenoise": split("sigmas/split-denoise", "denoise", "denoise"),
    "FlipSigmas": Direct("sigmas/flip", {"sigmas": "sigmas"}, _SIGMAS),
    "SetFirstSigma": Direct("sigmas/set-first", {"sigmas": "sigmas", "sigma": "sigma"}, _SIGMAS),
}
