"""Prompts for HunyuanVideo 1.5: features of Qwen2.5-VL, of ByT5 and, of a frame, of SigLIP."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import torch
from torch.nn import functional

from inline_core.errors import InvalidParam, ModelFileInvalid
from inline_core.families.encoded_prompt import EncodedPrompt
from inline_core.families.text_encoders.t5 import t5_tokens

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.families.encoding import Encoders
    from inline_core.families.text_encoders.loaded import TextEncoder
    from inline_core.sampling.values import Conditioning, Latent

MAX_TOKENS: Final = 1000
MAX_GLYPH_TOKENS: Final = 256
_TIME_FACTOR: Final = 4
_WITH_BYT5: Final = 2
# Of HunyuanVideo15Pipeline: the states before the last two layers, and its words with their spaces.
_LAYER: Final = -3
SYSTEM: Final = (
    "You are a helpful assistant. Describe the video by detailing the following aspects:"
    "         1. The main content and theme of the video."
    "         2. The color, shape, size, texture, quantity, text, and spatial relationships of the"
    " objects."
    "         3. Actions, events, behaviors temporal relationships, physical movement changes of"
    " the objects."
    "         4. background environment, light, style and atmosphere."
    "         5. camera angles, movements, and transitions used in the video."
)
PREFIX: Final = f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n"
SUFFIX: Final = "<|im_end|>\n<|im_start|>assistant\n"
_QUOTED: Final = re.compile(r'"(.*?)"|“(.*?)”')


@dataclass(frozen=True, slots=True, eq=False)
class HunyuanPrompt(EncodedPrompt):
    """A prompt, the text to be drawn in it, and a frame that the video begins with.

    `glyphs` (bytes, width) are ByT5's features of quoted text; `seen` (places, width) is what
    SigLIP sees of the frame, `beside` (channels + 1, t, h, w) its latents, zeros behind it, and as
    last channel which latent frames are given.
    """

    glyphs: Tensor | None = None
    seen: Tensor | None = None
    beside: Tensor | None = None

    def _parts(self) -> list[Tensor]:
        parts = (self.features, self.glyphs, self.seen)
        return [part for part in parts if part is not None]


def encode(encoders: Encoders, conditioning: Conditioning) -> HunyuanPrompt:
    """Encode one prompt as the pipelines of HunyuanVideo 1.5 do, without padding; device thread.

    Raises: ModelFileInvalid if the encoder has too few layers, ModelFileMissing if a frame is
    given and there is no vision encoder.
    """
    with encoders.open(0) as encoder:
        features, cut = _features(encoder, conditioning.prompt)
    prompt = HunyuanPrompt(features, cut)
    drawn = quoted(conditioning.prompt)
    if drawn and len(encoders) < _WITH_BYT5:
        note = (
            "The prompt has text in quotes, and no ByT5 text encoder was found: such text is drawn "
            "worse without it"
        )
        prompt = replace(prompt, notes=(note,))
    elif drawn:
        with encoders.open(1) as encoder:
            prompt = _with_glyphs(prompt, encoder, drawn)
    if conditioning.pictures:
        with encoders.open_vision() as vision:
            prompt = replace(prompt, seen=vision.states(conditioning.pictures))
    return prompt


def quoted(prompt: str) -> str:
    """What of a prompt is to be drawn, in the words that ByT5 was trained with; "": nothing.

    Source: `extract_glyph_texts` of HunyuanVideo15Pipeline.
    """
    found = [straight or curly for straight, curly in _QUOTED.findall(prompt)]
    return "".join(f'Text "{text}". ' for text in dict.fromkeys(found))


def _features(encoder: TextEncoder, prompt: str) -> tuple[Tensor, int]:
    """States (tokens, width) of a prompt in its template, and how many tokens were cut."""
    depth = encoder.model.config.get_text_config().num_hidden_layers
    if depth < -_LAYER:
        message = f"the text encoder has {depth} layers: HunyuanVideo 1.5 reads the third last one"
        raise ModelFileInvalid(message)
    before = len(encoder.tokenizer(PREFIX).input_ids)
    most = before + MAX_TOKENS
    # The whole text is cut, the end of the template too, as the pipeline does.
    ids = encoder.tokenizer(PREFIX + (prompt or " ") + SUFFIX).input_ids
    tokens = torch.tensor([ids[:most]], device=encoder.device)  # (1, tokens)
    output = encoder.model(
        input_ids=tokens,
        attention_mask=torch.ones_like(tokens),
        output_hidden_states=True,
        use_cache=False,
    )
    # What is kept from an earlier prompt with pictures would shift the next one.
    encoder.model.rope_deltas = None
    states: Tensor = output.hidden_states[_LAYER][0, before:]  # (tokens, width)
    return states.clone(), max(len(ids) - most, 0)


def _with_glyphs(prompt: HunyuanPrompt, encoder: TextEncoder, drawn: str) -> HunyuanPrompt:
    tokens, mask, cut = t5_tokens(encoder, drawn, MAX_GLYPH_TOKENS)
    words = tokens[:, : int(mask.sum())]  # (1, bytes)
    output = encoder.model(input_ids=words, attention_mask=torch.ones_like(words))
    notes = (f"The text in quotes is too long: its last {cut} bytes were cut",) if cut else ()
    return replace(prompt, glyphs=output[0][0], notes=(*prompt.notes, *notes))


def with_references(prompt: HunyuanPrompt, references: Sequence[Latent]) -> HunyuanPrompt:
    """The prompt with its first frame: one latent of a video, whose mask is 0 for that frame only.

    Raises: InvalidParam for anything else.
    """
    latent = references[0]
    mask = latent.mask
    given = None if mask is None else mask.reshape(mask.shape[0], -1)[:, 0] == 0  # (frames,)
    first = given is not None and len(given) == latent.frames and given[0] and given.sum() == 1
    if len(references) > 1 or not first:
        message = (
            "HunyuanVideo 1.5 looks at the first frame of a video and at nothing else: use the "
            "Frames Conditioning node with a first frame"
        )
        raise InvalidParam(message, port="positive")
    if prompt.seen is None:
        message = (
            "HunyuanVideo 1.5 is shown its first frame with every prompt: put the Frames "
            "Conditioning node behind the negative prompt too"
        )
        raise InvalidParam(message, port="negative")
    shown = latent.samples[0, :, :1]  # (channels, 1, h, w)
    shown = torch.cat([shown, torch.ones_like(shown[:1])])  # (channels + 1, 1, h, w)
    missing = (latent.frames - 1) // _TIME_FACTOR
    return replace(prompt, beside=functional.pad(shown, (0, 0, 0, 0, 0, missing)))
