"""Nodes that belong to one family: those of picture models, and Kandinsky 5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from inline_core.importers.comfyui.mapping.conditioning import encoded, referring
from inline_core.importers.comfyui.mapping.sampling import Guider
from inline_core.importers.comfyui.mapping.step import Direct, Entry, Outputs, Step, Unsupported
from inline_core.importers.comfyui.mapping.values import Constant, Value, Wire
from inline_core.importers.comfyui.mapping.video_latents import as_wire

# Qwen-Image 2.1 looks at pictures whose sides are multiples of this, about as large as this square.
_QWEN_MULTIPLE: Final = 32
_QWEN_SIDE: Final = 1024
_FIBO_SIDE: Final = Constant(1024)
_KANDINSKY_FPS: Final = 24.0


def qwen_21(step: Step) -> Outputs:
    """TextEncodeQwenImage21: both prompts, the pictures they are about, and a latent of their size.

    As in QwenImage21Pipeline, the pictures are part of the negative prompt too, and the last of
    them says how large the result is.
    """
    images = [value for _, value in step.grown("images")]
    side = int(step.number("resolution", _QWEN_SIDE))
    if not images:
        size = side or _QWEN_SIDE
        empty = step.add("latent/empty", {"width": size, "height": size}, suffix="latent")
        both = [_words(step, name) for name in ("prompt", "negative_prompt")]
        return [*both, empty.out("latent")]
    if len(images) > 1:
        step.warn("its latent has the size of the last picture, as in the reference pipeline")
    vae = step.value("vae")
    if vae is None:
        message = "its VAE is not connected, and pictures cannot be looked at without it here"
        raise Unsupported(message)
    shown = [_qwen_sized(step, image, side, f"shown-{n}") for n, image in enumerate(images, 1)]
    latents = [
        step.add("vae/encode", {"vae": vae, "image": image}, suffix=f"latent-{n}").out("latent")
        for n, image in enumerate(shown, 1)
    ]
    both = [_looking(step, name, shown, latents) for name in ("prompt", "negative_prompt")]
    empty = step.add("latent/empty-like", {"latent": latents[-1]}, suffix="latent")
    return [*both, empty.out("latent")]


def _words(step: Step, name: str) -> Wire:
    return encoded(step, step.value(name) or Constant(""), step.needed("clip"), name)


def _looking(step: Step, name: str, shown: Sequence[Wire], latents: Sequence[Value]) -> Wire:
    """One of the prompts with its pictures, for the text encoder and for the model."""
    inputs: dict[str, Any] = {
        "text_encoder": step.needed("clip"),
        "prompt": step.value(name) or Constant(""),
        "images": list(shown),
    }
    wire = as_wire(step.add("encode/text-with-images", inputs, suffix=name).out("conditioning"))
    for number, latent in enumerate(latents, 1):
        wire = referring(step, wire, latent, f"{name}-reference-{number}")
    return wire


def _qwen_sized(step: Step, image: Value, side: int, suffix: str) -> Wire:
    """A picture of about `side` x `side` pixels; 0 leaves it as large as it is."""
    inputs: dict[str, Any] = {"image": image, "multiple": _QWEN_MULTIPLE, "fit": "stretch"}
    if side:
        inputs |= {"by": "megapixels", "megapixels": (side / _QWEN_SIDE) ** 2}
    else:
        inputs |= {"by": "multiple"}
    return as_wire(step.add("image/resize", inputs, suffix=suffix).out("image"))


def fibo_2(step: Step) -> Outputs:
    """TextEncodeFibo2: both prompts, the pictures that are edited, and a latent of their size.

    As in BriaFibo2Pipeline, only the positive prompt has the pictures.  No table says what the node
    has; its inputs are those of the official templates.
    """
    clip, batch = step.needed("clip"), step.value("batch_size") or Constant(1)
    images = [value for _, value in step.grown("images")]
    sides = {name: step.value(name) or Constant(0) for name in ("width", "height")}
    negative = encoded(step, step.value("negative_prompt") or Constant(""), clip, "negative_prompt")
    if not images:
        size = {name: _side_or(value, _FIBO_SIDE) for name, value in sides.items()}
        empty = step.add("latent/empty", {**size, "batch": batch}, suffix="latent")
        return [_words(step, "prompt"), negative, empty.out("latent")]
    vae = step.value("vae")
    if vae is None:
        message = "its VAE is not connected, and pictures cannot be edited without it here"
        raise Unsupported(message)
    asked = sides if len(images) == 1 else {}  # of several, each has its own size
    shown = [
        step.add("image/fibo-size", {"image": image, **asked}, suffix=f"shown-{n}")
        for n, image in enumerate(images, 1)
    ]
    inputs = {
        "text_encoder": clip,
        "prompt": step.value("prompt") or Constant(""),
        "images": [one.out("seen") for one in shown],
    }
    wire = as_wire(step.add("encode/text-with-images", inputs, suffix="prompt").out("conditioning"))
    for number, one in enumerate(shown, 1):
        given = {"vae": vae, "image": one.out("image")}
        latent = step.add("vae/encode", given, suffix=f"latent-{number}").out("latent")
        wire = referring(step, wire, latent, f"reference-{number}")
    measured = step.add("image/size", {"image": shown[0].out("image")}, suffix="size")
    size = {name: _side_or(value, measured.out(name)) for name, value in sides.items()}
    empty = step.add("latent/empty", {**size, "batch": batch}, suffix="latent")
    return [wire, negative, empty.out("latent")]


def _side_or(given: Value, usual: Value) -> Value:
    """A side, or the usual one where it is 0."""
    return usual if isinstance(given, Constant) and not given.value else given


def dual_model_guider(step: Step) -> Outputs:
    """DualModelGuider: guidance leads away from what another model estimates."""
    model, other = step.needed("model"), step.value("model_negative")
    if other is not None:
        inputs = {"model": model, "second": other}
        model = step.add("model/guided-by", inputs, suffix="model").out("model")
    guided: dict[str, Any] = {
        "model": model,
        "positive": step.needed("positive"),
        "negative": step.value("negative"),
        "cfg": step.value("cfg"),
    }
    return [Constant(Guider(guided))]


def kandinsky_5(step: Step) -> Outputs:
    """Kandinsky5ImageToVideo, from text alone."""
    if step.value("start_image") is not None:
        message = "its start_image is not available here: Kandinsky 5 makes videos from text"
        raise Unsupported(message)
    size = {
        "width": step.value("width"),
        "height": step.value("height"),
        "frames": step.value("length"),
        "batch": step.value("batch_size"),
        "fps": _KANDINSKY_FPS,
    }
    latent = step.add("latent/empty-video", size, suffix="latent").out("latent")
    return [step.needed("positive"), step.needed("negative"), latent, latent]


ENTRIES: Final[Mapping[str, Entry]] = {
    "TextEncodeQwenImage21": qwen_21,
    "TextEncodeFibo2": fibo_2,
    "DualModelGuider": dual_model_guider,
    "Kandinsky5ImageToVideo": kandinsky_5,
    "Ideogram4Scheduler": Direct(
        "sigmas/ideogram4",
        {"steps": "steps", "width": "width", "height": "height", "mu": "mu", "std": "std"},
        ("sigmas",),
    ),
}
