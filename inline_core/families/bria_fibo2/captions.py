"""Prompts of Bria FIBO 2 as it was trained with them: compact JSON without empty values.

Source: `BriaFibo2Pipeline` of diffusers (`_parse_prompt`, `_get_edit_prompt`).  Its pictures of the
text that a caption asks for (`text_render`) are not drawn here.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final

from inline_core.errors import InvalidParam
from inline_core.families.text_encoders.qwen3_vl_words import VISION_MARKER

# The caption that stands for nothing, for guidance.
NULL_CAPTION: Final = (
    '{"short_description":"","objects":[],"background_setting":"","lighting":{},'
    '"aesthetics":{},"photographic_characteristics":{},"style_medium":"",'
    '"context":"","artistic_style":""}'
)
_INSTRUCTION: Final = "edit_instruction"
_CAPTION: Final = "structured_caption"
_SCORES: Final = ("aesthetic_score", "preference_score")
_TEXT_ONLY: Final = frozenset({"short_description", "text_render"})

Caption = dict[str, Any] | str | None


def generation_prompt(prompt: str) -> str:
    """A caption in its trained form; what is no JSON object stays as it is."""
    caption, _ = parsed(prompt)
    return caption if isinstance(caption, str) else compact(caption or {})


def edit_prompt(prompt: str, pictures: int) -> str:
    """One JSON object: a place for each picture, the caption of the result, the instruction.

    Raises: InvalidParam for a caption without an instruction.
    """
    caption, instruction = parsed(prompt)
    if instruction is None:
        if _is_object(prompt):
            message = (
                "to edit a picture, the prompt has to be the instruction, or a JSON caption of the "
                f'result with an "{_INSTRUCTION}" key'
            )
            raise InvalidParam(message, param="prompt")
        caption, instruction = None, prompt
    names = ["image"] if pictures == 1 else [f"image_{n}" for n in range(1, pictures + 1)]
    edit: dict[str, Any] = dict.fromkeys(names, VISION_MARKER)
    if caption:
        edit[_CAPTION] = caption
    edit[_INSTRUCTION] = instruction
    return compact(edit)


def parsed(prompt: str) -> tuple[Caption, str | None]:
    """The caption of a prompt, and its edit instruction."""
    try:
        caption = json.loads(prompt)
    except json.JSONDecodeError:
        return prompt, None
    if not isinstance(caption, dict):
        return prompt, None
    instruction = caption.pop(_INSTRUCTION, None)
    if _CAPTION in caption:
        caption = caption.pop(_CAPTION)
        if not isinstance(caption, dict):
            return caption or None, instruction
    return _trained(caption) or None, instruction


def compact(value: Any) -> str:
    """JSON as in training: without spaces, letters as they are."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _trained(caption: dict[str, Any]) -> dict[str, Any]:
    """A caption without scores and empty values; one of nothing but its texts keeps both."""
    kept = {
        key: {name: inner for name, inner in value.items() if name not in _SCORES}
        if isinstance(value, dict)
        else value
        for key, value in _cleaned(caption).items()
        if key not in _SCORES
    }
    kept = {key: value for key, value in kept.items() if value != {}}
    if set(caption) == _TEXT_ONLY:
        return {
            "short_description": kept.get("short_description") or "",
            "text_render": kept.get("text_render") or [],
        }
    return kept


def _cleaned(value: Any) -> Any:
    if isinstance(value, dict):
        inner = {key: _cleaned(item) for key, item in value.items()}
        return {key: item for key, item in inner.items() if not _is_empty(item)}
    if isinstance(value, list):
        return [item for item in map(_cleaned, value) if not _is_empty(item)]
    return value


def _is_empty(value: Any) -> bool:
    if isinstance(value, float):
        return math.isnan(value)
    return value is None or (isinstance(value, str | dict | list) and not value)


def _is_object(prompt: str) -> bool:
    try:
        return isinstance(json.loads(prompt), dict)
    except json.JSONDecodeError:
        return False
