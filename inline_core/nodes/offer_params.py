"""Ports and params of the one-click nodes that are made from offers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from inline_core.graph.ports import PortKind
from inline_core.graph.spec import Option, ParamKind, ParamSpec, PortSpec, Widget
from inline_core.nodes.sample import SAMPLERS, SCHEDULERS
from inline_core.sampling.family import ModelFamily
from inline_core.sampling.offer import Absent, Choice, Offer

OPTIONAL_PORTS: Final = (
    PortSpec("model", "Diffusion model", PortKind.MODEL),
    PortSpec("vae", "VAE", PortKind.VAE),
    PortSpec("text_encoder", "Text encoder", PortKind.TEXT_ENCODER),
    PortSpec("lora", "LoRA", PortKind.LORA),
)
# What is wired for each of `takes`, in the order the ports are shown: before what this release
# only knows, and after it.
_PORTS_FIRST: Final = (
    ("references", PortSpec("image", "Reference image(s)", PortKind.IMAGES)),
    ("image", PortSpec("image", "Image (img2img)", PortKind.IMAGE)),
    ("control", PortSpec("control_image", "Control image", PortKind.CONTROL)),
)
_PORTS_AFTER: Final = (
    ("mask", PortSpec("mask", "Mask (inpaint)", PortKind.MASK)),
    ("optional_frame", PortSpec("image", "First frame", PortKind.IMAGE)),
    ("first_keyframe", PortSpec("image", "First frame", PortKind.IMAGE)),
    ("last_keyframe", PortSpec("last_image", "Last frame", PortKind.IMAGE)),
    ("first_frame", PortSpec("image", "First frame", PortKind.IMAGE, required=True)),
    ("last_frame", PortSpec("last_image", "Last frame", PortKind.IMAGE, required=True)),
    ("inpaint", PortSpec("image", "Image", PortKind.IMAGE, required=True)),
    ("inpaint", PortSpec("mask", "Mask", PortKind.MASK, required=True)),
)
_MOST_FRAMES: Final = 2000
_MOST_SECONDS: Final = 600.0


def offer_inputs(offer: Offer) -> tuple[PortSpec, ...]:
    """All ports of an offer's node, in the order they are shown."""
    absent = [
        PortSpec(item.key, item.label, PortKind(item.kind)) for item in offer.absent if item.kind
    ]
    ports = [
        PortSpec("prompt", "Prompt", PortKind.TEXT, required=True),
        *OPTIONAL_PORTS,
        *(port for take, port in _PORTS_FIRST if take in offer.takes),
        *absent,
        *(port for take, port in _PORTS_AFTER if take in offer.takes),
    ]
    if "references" in offer.takes:
        ports = [
            replace(port, id=offer.references_port) if port.kind is PortKind.IMAGES else port
            for port in ports
        ]
    place = {port: index for index, port in enumerate(offer.port_order, start=1)}
    ports.sort(key=lambda port: place.get(port.id, 0))
    return tuple(replace(port, label=offer.labels.get(port.id, port.label)) for port in ports)


def offer_outputs(offer: Offer) -> tuple[PortSpec, ...]:
    """What an offer's node gives."""
    kinds = {
        "image": [PortKind.IMAGE],
        "video": [PortKind.VIDEO],
        "audio": [PortKind.AUDIO],
        "video+audio": [PortKind.VIDEO, PortKind.AUDIO],
    }[offer.output]
    return tuple(PortSpec(kind.value, kind.value.capitalize(), kind) for kind in kinds)


def offer_params(family: ModelFamily, offer: Offer) -> tuple[ParamSpec, ...]:
    """All params of an offer's node, in the order they are shown."""
    params = (
        *_words(offer),
        *_sizes(family, offer),
        *_sampling(offer),
        *(_absent(absent) for absent in offer.absent if not absent.kind),
        *(_choice(choice) for choice in (*offer.choices, *offer.idle)),
        ParamSpec("seed", "Seed (-1 = random)", "seed", "seed", -1, integer=True),
        *_files(family, offer),
    )
    place = {key: index for index, key in enumerate(offer.param_order)}
    return tuple(
        replace(
            param,
            label=offer.labels.get(param.key, param.label),
            advanced=param.advanced or param.key in offer.advanced,
        )
        for param in sorted(params, key=lambda param: place.get(param.key, len(place)))
    )


def _words(offer: Offer) -> Iterator[ParamSpec]:
    if offer.negative:
        yield ParamSpec("negative_prompt", "Negative prompt", "textarea", "text", "")


def _sizes(family: ModelFamily, offer: Offer) -> Iterator[ParamSpec]:
    first = next(iter(family.rules.defaults.values()), {})
    least, most = offer.size
    step = offer.step or max(family.size_multiple, 8)
    follows = "references" in offer.takes and offer.sized_by_reference
    if offer.output == "audio":
        yield _number("seconds", "Seconds (0 = from model)", 0.0, (0.0, _MOST_SECONDS, 0.5))
        return
    if offer.duration is not None:
        usual, shortest, longest, by = offer.duration
        yield _number("duration", "Seconds", usual, (shortest, longest, by))
    for name in ("width", "height"):
        if "inpaint" in offer.takes:
            continue
        label = f"{name.capitalize()} (0 = from the first picture)" if follows else ""
        yield _number(
            name,
            label,
            0 if follows else {**offer.usual, **first}.get(name, 1024),
            (0 if follows else least, most, step),
            variant_default=None if follows else name,
        )
    if offer.output.startswith("video") and offer.duration is None:
        span = (0, _MOST_FRAMES, family.frame_multiple)
        yield _number("frames", "Frames (0 = from model)", 0, span)
    if offer.fps_free:
        yield _number("fps", "Frames a second", offer.fps, (1.0, 120.0, 1.0))


def _sampling(offer: Offer) -> Iterator[ParamSpec]:
    stated = offer.stated
    steps, guidance = ("steps", "guidance") if offer.stated_by_variant else (None, None)
    if "steps" in stated:
        usual, key = int(stated["steps"]), offer.steps_key
        yield _number(key, "Steps", usual, (1, 200, 1), variant_default=steps)
    else:
        yield _number("steps", "Steps (0 = from model)", 0, (0, 200, 1))
    if "guidance" in stated:
        span = (0.0, 30.0, 0.1)
        scale = stated["guidance"]
        yield _number("guidance", "Guidance (CFG)", scale, span, variant_default=guidance)
    elif offer.guidance != "none":
        yield _number("guidance", "Guidance (-1 = from model)", -1.0, (-1.0, 30.0, 0.1))
    if offer.guidance == "input":
        label = "CFG with a negative prompt (-1 = from model)"
        yield _number("cfg", label, -1.0, (-1.0, 30.0, 0.1), advanced=True)
    for key, default, options in (
        ("sampler", offer.sampler, SAMPLERS),
        ("scheduler", offer.scheduler, SCHEDULERS),
    ):
        choices = tuple(Option(value, label) for value, label in options)
        label = key.capitalize()
        yield ParamSpec(key, label, "select", "enum", default, options=choices, advanced=True)
    if "image" in offer.takes:
        yield _number("strength", "Denoise strength", 0.6, (0.0, 1.0, 0.05), advanced=True)
    if "control" in offer.takes:
        yield _file("controlnet", "ControlNet", "controlnet", advanced=False)
        yield _number(offer.control_key, "Control strength", 1.0, (0.0, 2.0, 0.05))
        share = (0.0, 1.0, 0.01)
        yield _number("control_start", "Control from (0: start)", 0.0, share, advanced=True)
        yield _number("control_end", "Control to (1: end)", 1.0, share, advanced=True)


def _files(family: ModelFamily, offer: Offer) -> Iterator[ParamSpec]:
    if offer.told:
        told = tuple(Option(told.value, told.label) for told in offer.told)
        choices = (Option("", "From the file"), *told)
        yield ParamSpec(
            "variant", "Model variant", "select", "enum", "", options=choices, advanced=True
        )
    yield _file("model", "Diffusion model", "diffusion_models")
    if offer.experts:
        yield _file("model_2", "Second expert (little noise)", "diffusion_models")
        span = (0.0, 1.0, 0.005)
        yield _number("boundary", "Boundary (sigma)", offer.boundary, span, advanced=True)
    if offer.guiding:
        yield _file("model_2", "Guiding model", "diffusion_models")
    count = len(family.rules.text_encoders)
    for index in range(count):
        key = "text_encoder" if index == 0 else f"text_encoder_{index + 1}"
        label = "Text encoder" if index == 0 else f"Text encoder {index + 1}"
        yield _file(key, label, "text_encoders")
    yield _file("vae", "VAE", "vae")


def _number(
    key: str,
    label: str,
    default: float,
    span: tuple[float, float, float],
    *,
    advanced: bool = False,
    variant_default: str | None = None,
) -> ParamSpec:
    low, high, step = span
    return ParamSpec(
        key,
        label or key.capitalize(),
        "number",
        "number",
        default,
        min=low,
        max=high,
        step=step,
        integer=isinstance(default, int),
        advanced=advanced,
        variant_default=variant_default,
    )


def _file(key: str, label: str, category: str, *, advanced: bool = True) -> ParamSpec:
    return ParamSpec(key, label, "select", "model", "", options_from=category, advanced=advanced)


def _absent(absent: Absent) -> ParamSpec:
    if absent.category:
        return _file(absent.key, absent.label, absent.category, advanced=False)
    return ParamSpec(absent.key, absent.label, "boolean", "boolean", default=False)


def _choice(choice: Choice) -> ParamSpec:
    widget: Widget
    kind: ParamKind
    default: Any = choice.default
    if choice.options:
        widget, kind = "select", "enum"
    elif isinstance(default, bool):
        widget, kind = "boolean", "boolean"
    elif isinstance(default, int | float):
        widget, kind = "number", "number"
    else:
        widget, kind = ("textarea", "text") if choice.multiline else ("text", "string")
    return ParamSpec(
        choice.key,
        choice.label or choice.key.replace("_", " ").capitalize(),
        widget,
        kind,
        default,
        min=choice.minimum,
        max=choice.maximum,
        step=choice.step,
        options=tuple(
            Option(item, item) if isinstance(item, str) else Option(*item)
            for item in choice.options
        ),
        integer=isinstance(default, int) and not isinstance(default, bool),
        advanced=choice.advanced,
    )
