"""Prompts for Kandinsky 5: Qwen2.5-VL for the words, CLIP for the prompt as a whole."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Final

from inline_core.families.encoded_prompt import EncodedPrompt
from inline_core.families.text_encoders.clip import clip_tokens, states
from inline_core.families.text_encoders.qwen2_5_vl import states_of

if TYPE_CHECKING:
    from inline_core.families.encoding import Encoders
    from inline_core.sampling.values import Conditioning

MAX_TOKENS: Final = 512
# Of Kandinsky5T2VPipeline, with its slip of the pen.
PREFIX: Final = (
    "<|im_start|>system\nYou are a prompt engineer. Describe the video in detail.\n"
    "Describe how the camera moves or shakes, describe the zoom and view angle, whether it follows "
    "the objects.\n"
    "Describe the location of the video, main characters or objects and their action.\n"
    "Describe the dynamism of the video and presented actions.\n"
    "Name the visual style of the video: whether it is a professional footage, user generated "
    "content, some kind of animation, video game or scren content.\n"
    "Describe the visual effects, postprocessing and transitions if they are presented in the "
    "video.\n"
    "Pay attention to the order of key actions shown in the scene.<|im_end|>\n"
    "<|im_start|>user\n"
)
SUFFIX: Final = "<|im_end|>"


def encode(encoders: Encoders, conditioning: Conditioning) -> EncodedPrompt:
    """Encode one prompt as Kandinsky5T2VPipeline does; device thread.

    What CLIP cuts (at 77 tokens) is not told: Qwen reads it all.
    """
    prompt = " ".join(html.unescape(html.unescape(conditioning.prompt)).split())
    with encoders.open(0) as encoder:
        before = len(encoder.tokenizer(PREFIX).input_ids)
        found, cut = states_of(encoder, PREFIX + prompt + SUFFIX, (), before + MAX_TOKENS)
        features = found[before:].clone()  # (tokens, width)
    with encoders.open(1) as encoder:
        tokens, _ = clip_tokens(encoder, prompt)
        pooled = states(encoder, tokens).pooled[0].clone()  # (width,)
    return EncodedPrompt(features, cut, pooled)
