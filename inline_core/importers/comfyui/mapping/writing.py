"""Texts that a language model writes while the workflow runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from inline_core.importers.comfyui.mapping.step import Entry, Outputs, Step
from inline_core.importers.comfyui.mapping.values import Value

_MODE: Final = "sampling_mode"
_DRAWN: Final = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "seed",
)


def _inputs(step: Step) -> dict[str, Any]:
    for name, what in (("image", "picture"), ("video", "video"), ("audio", "sound")):
        if step.value(name) is not None:
            step.warn(f"the language model is not shown the {what} here: it only reads the prompt")
    inputs: dict[str, Any] = {
        "text_encoder": step.needed("clip"),
        "prompt": step.needed("prompt"),
        "max_tokens": step.value("max_length"),
        "thinking": step.value("thinking"),
        "template": step.value("use_default_template"),
        "system": step.value("system_prompt"),
    }
    if step.constant(_MODE, "on") == "on":
        drawn: dict[str, Value | None] = {
            name: step.value(f"{_MODE}.{name}") for name in _DRAWN if step.has(f"{_MODE}.{name}")
        }
        return {**inputs, **drawn, "seed": drawn.get("seed") or 0}
    return {**inputs, "sampling": False, "repetition_penalty": 1.0, "seed": 0}


def write(step: Step) -> Outputs:
    """TextGenerate."""
    added = step.add("text/generate", _inputs(step))
    return [added.out("text"), added.out("thought")]


def write_ltx2(step: Step) -> Outputs:
    """TextGenerateLTX2Prompt: with the instructions that LTX-2 was published with."""
    inputs = _inputs(step)
    preset = "ltx-2-image" if step.value("image") is not None else "ltx-2"
    added = step.add("text/generate", {**inputs, "instructions": preset})
    return [added.out("text"), added.out("thought")]


ENTRIES: Final[Mapping[str, Entry]] = {
    "TextGenerate": write,
    "TextGenerateLTX2Prompt": write_ltx2,
}
