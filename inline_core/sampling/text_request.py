"""What a language model is asked to write."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TextRequest:
    """A prompt for a text encoder that is a language model, and how its answer is drawn.

    Without `sampling` the likeliest token is always taken.  `template` puts the prompt into a turn
    of a conversation, as the model was trained; `thinking` lets it think first, where it can.
    `instructions` name a published `system` text (see `families.text_encoders.generating`).
    """

    prompt: str
    system: str = ""
    instructions: str = ""
    max_tokens: int = 512
    sampling: bool = True
    temperature: float = 0.7
    top_k: int = 64
    top_p: float = 0.95
    min_p: float = 0.05
    repetition_penalty: float = 1.05
    presence_penalty: float = 0.0
    seed: int = 0
    template: bool = True
    thinking: bool = False
