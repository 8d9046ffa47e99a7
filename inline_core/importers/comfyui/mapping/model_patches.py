"""What is put on a model before it is sampled."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from inline_core.importers.comfyui.mapping.step import Direct, Entry, Outputs, Step, Unsupported
from inline_core.importers.comfyui.mapping.values import Constant, Value
from inline_core.sampling.sigmas.tables import flux_mu

_LARGEST_MU: Final = 20.0


@dataclass(frozen=True, slots=True)
class ToneMapping:
    """What LatentOperationTonemapReinhard gives: how much stays as it is."""

    multiplier: Value | None


def passed_on(reason: str, port: str = "model") -> Entry:
    """An entry for a node that changes nothing of the result."""

    def convert(step: Step) -> Outputs:
        step.ignore(reason)
        return [step.needed(port)]

    return convert


def shift(step: Step) -> Outputs:
    """ModelSamplingSD3, ModelSamplingAuraFlow: the multiplier is the family's here."""
    if step.constant("sampling", "flow") != "flow":
        message = f"its sampling {step.constant('sampling')!r} is not available here, only flow"
        raise Unsupported(message)
    inputs = {"model": step.needed("model"), "shift": step.value("shift")}
    return [step.add("model/shift", inputs).out("model")]


def flux_shift(step: Step) -> Outputs:
    """ModelSamplingFlux: mu is linear in the tokens of the size it is told."""
    model, sizes = step.needed("model"), (step.value("width"), step.value("height"))
    if not all(isinstance(size, Constant) for size in sizes):
        step.warn("the shift follows the size of the latent, not the one that is wired to it")
        inputs: dict[str, Value | None] = {
            "model": model,
            "max_shift": step.value("max_shift"),
            "base_shift": step.value("base_shift"),
        }
        return [step.add("model/flux-shift", inputs).out("model")]
    ends = (step.number("base_shift", 0.5), step.number("max_shift", 1.15))
    width, height = (int(step.number(name, 1024)) for name in ("width", "height"))
    mu = flux_mu(width, height, *ends)
    if mu > _LARGEST_MU:
        message = f"a size of {width}x{height} gives a shift that is none"
        raise Unsupported(message)
    inputs = {"model": model, "shift": Constant(math.exp(mu))}
    return [step.add("model/shift", inputs).out("model")]


def skip_layers(step: Step) -> Outputs:
    """SkipLayerGuidanceDiT."""
    if step.constant("rescaling_scale", 0.0):
        message = "its rescaling_scale is not available here, only 0"
        raise Unsupported(message)
    inputs = {
        "model": step.needed("model"),
        "layers": _layers(step),
        "scale": step.value("scale"),
        "start_percent": step.value("start_percent"),
        "end_percent": step.value("end_percent"),
    }
    return [step.add("guidance/skip-layers", inputs).out("model")]


def skip_in_negative(step: Step) -> Outputs:
    """SkipLayerGuidanceDiTSimple."""
    inputs = {
        "model": step.needed("model"),
        "layers": _layers(step),
        "start_percent": step.value("start_percent"),
        "end_percent": step.value("end_percent"),
    }
    return [step.add("guidance/weaken-negative", inputs).out("model")]


def _layers(step: Step) -> str:
    """The blocks that are meant; ComfyUI counts double and single ones apart."""
    double, single = step.constant("double_layers", ""), step.constant("single_layers", "")
    if str(double).strip() and str(single).strip() and double != single:
        step.warn(
            f"the double blocks {double} are left out, the single ones {single} are not: they are "
            "not counted apart here"
        )
    layers = str(double).strip() or str(single).strip()
    if not layers:
        message = "it names no layers"
        raise Unsupported(message)
    return layers


def cfg_norm(step: Step) -> Outputs:
    """CFGNorm."""
    if step.constant("pre_cfg", usual=False):
        message = "pre_cfg is not available here: the guided estimate is what is limited"
        raise Unsupported(message)
    inputs = {"model": step.needed("model"), "strength": step.value("strength")}
    return [step.add("guidance/normalise", inputs).out("model")]


def cfg_override(step: Step) -> Outputs:
    """CFGOverride."""
    inputs = {
        "model": step.needed("model"),
        "cfg": step.value("cfg"),
        "start_percent": step.value("start_percent"),
        "end_percent": step.value("end_percent"),
    }
    return [step.add("guidance/interval", inputs).out("model")]


def temporal_attention(step: Step) -> Outputs:
    """UNetTemporalAttentionMultiply: for UNets of videos (SVD), and nothing where all is 1."""
    names = ("self_structural", "self_temporal", "cross_structural", "cross_temporal")
    if any(step.constant(name, 1.0) != 1.0 for name in names):
        step.ignore("it changes UNets with attention over time (SVD) only, and no other model")
    else:
        step.ignore("all of its factors are 1")
    return [step.needed("model")]


def tone_operation(step: Step) -> Outputs:
    """LatentOperationTonemapReinhard: told to the node that applies it."""
    return [Constant(ToneMapping(step.value("multiplier")))]


def operation_on_guidance(step: Step) -> Outputs:
    """LatentApplyOperationCFG."""
    operation = step.needed("operation")
    tone = operation.value if isinstance(operation, Constant) else None
    if not isinstance(tone, ToneMapping):
        message = "its operation is none that is available here, only tone mapping"
        raise Unsupported(message)
    inputs = {
        "model": step.needed("model"),
        "multiplier": tone.multiplier,
        "start_percent": step.value("start_percent"),
        "end_percent": step.value("end_percent"),
    }
    return [step.add("guidance/tone-map", inputs).out("model")]


_SPEED: Final = "it only changes speed or memory, which this server's device policy decides"

ENTRIES: Final[Mapping[str, Entry]] = {
    "ModelSamplingSD3": shift,
    "ModelSamplingAuraFlow": shift,
    "ModelSamplingFlux": flux_shift,
    "SkipLayerGuidanceDiT": skip_layers,
    "SkipLayerGuidanceSD3": skip_layers,
    "SkipLayerGuidanceDiTSimple": skip_in_negative,
    "CFGNorm": cfg_norm,
    "CFGOverride": cfg_override,
    "UNetTemporalAttentionMultiply": temporal_attention,
    "RescaleCFG": Direct(
        "guidance/rescale", {"model": "model", "multiplier": "multiplier"}, ("model",)
    ),
    "LatentOperationTonemapReinhard": tone_operation,
    "LatentApplyOperationCFG": operation_on_guidance,
    "TemporalScoreRescaling": Direct(
        "guidance/rescale-score",
        {"model": "model", "tsr_k": "k", "tsr_sigma": "sigma"},
        ("model",),
    ),
    "T5TokenizerOptions": passed_on(
        "prompts are padded as their model was trained with them", "clip"
    ),
    "CFGZeroStar": Direct("guidance/zero-star", {"model": "model"}, ("model",)),
    "DifferentialDiffusion": Direct(
        "model/differential", {"model": "model", "strength": "strength"}, ("model",)
    ),
    "ModelNoiseScale": Direct(
        "model/noise-scale", {"model": "model", "noise_scale": "scale"}, ("model",)
    ),
    "BlockSparseAttention": passed_on(
        "attention is computed in full here, which it only estimates"
    ),
    "ModelAttentionBackend": passed_on(_SPEED),
    "QwenImage21Cache": passed_on(_SPEED),
    "WanAnimate2Cache": passed_on(_SPEED),
    "FluxKVCache": Direct(
        "model/variant", {"model": "model"}, ("model",), set={"variant": "klein-9b-kv"}
    ),
    "TorchCompileModel": passed_on(_SPEED),
    "EasyCache": passed_on("steps are not skipped on import; put model/step-cache there instead"),
    "LazyCache": passed_on("steps are not skipped on import; put model/step-cache there instead"),
}
