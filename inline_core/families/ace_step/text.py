"""What ACE-Step is told: a description with its facts, and lyrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch

from inline_core.families.encoded_prompt import EncodedPrompt
from inline_core.families.text_encoders.loaded import tokens_of

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.families.encoding import Encoders
    from inline_core.sampling.values import Conditioning

MAX_TOKENS: Final = 256
MAX_LYRIC_TOKENS: Final = 2048
_INSTRUCTION: Final = "Fill the audio semantic mask based on the given conditions:"
_USUAL_SECONDS: Final = 30
# Latent frames of silence that stand for a timbre nobody gave: 30 seconds.
_TIMBRE_FRAMES: Final = 750
_UNKNOWN: Final = "N/A"


@dataclass(frozen=True, slots=True, eq=False)
class AceStepPrompt(EncodedPrompt):
    """`features` (tokens, width), and `silence` (frames, channels), the latents of no sound.

    Those of a `null` prompt are one token that stands for no prompt of any length.
    """

    silence: Tensor | None = None
    null: bool = False

    def _parts(self) -> list[Tensor]:
        return [self.features] if self.silence is None else [self.features, self.silence]


def encode(encoders: Encoders, conditioning: Conditioning) -> AceStepPrompt:
    """Encode one prompt as AceStepPipeline does for music from text; device thread.

    An empty negative prompt is the one that the model learnt for no prompt at all.
    """
    if conditioning.option("negative") and not conditioning.prompt.strip():
        with encoders.open(1) as encoder:
            model = encoder.model
            null = model.null_condition_emb[0]  # (1, width)
            return AceStepPrompt(null, silence=model.silence_latent[0], null=True)
    with encoders.open(0) as encoder:
        tokens, cut = tokens_of(encoder, described(conditioning), MAX_TOKENS)  # (1, tokens)
        words, lyrics_cut = tokens_of(encoder, lyrics_of(conditioning), MAX_LYRIC_TOKENS)
        states = encoder.model(input_ids=tokens, use_cache=False).last_hidden_state
        embedded = encoder.model.get_input_embeddings()(words)  # (1, words, width)
    with encoders.open(1) as encoder:
        model = encoder.model
        features = _conditions(model, states, embedded)  # (tokens, width)
        return AceStepPrompt(features, cut + lyrics_cut, silence=model.silence_latent[0])


def _conditions(model: Any, states: Tensor, lyrics: Tensor) -> Tensor:
    """Lyrics, the timbre of silence, and the description, one after the other."""
    silence = model.silence_latent  # (1, frames, channels)
    place, dtype = silence.device, silence.dtype
    one = torch.zeros(1, dtype=torch.long, device=place)  # (1,): all belongs to the first prompt
    found: Tensor = model(
        text_hidden_states=states.to(place, dtype),
        text_attention_mask=torch.ones(states.shape[:2], dtype=torch.bool, device=place),
        lyric_hidden_states=lyrics.to(place, dtype),
        lyric_attention_mask=torch.ones(lyrics.shape[:2], dtype=torch.bool, device=place),
        refer_audio_acoustic_hidden_states_packed=silence[:, :_TIMBRE_FRAMES],
        refer_audio_order_mask=one,
    )[0]  # (1, tokens, width)
    return found[0]


def described(conditioning: Conditioning) -> str:
    """The description of the music with what is known about it, as the model was trained."""
    bpm = int(conditioning.option("bpm", 0))
    seconds = int(conditioning.option("seconds", 0)) or _USUAL_SECONDS
    facts = (
        f"- bpm: {bpm if bpm > 0 else _UNKNOWN}\n"
        f"- timesignature: {_told(conditioning, 'time_signature')}\n"
        f"- keyscale: {_told(conditioning, 'key')}\n"
        f"- duration: {seconds} seconds\n"
    )
    head = f"# Instruction\n{_INSTRUCTION}\n\n# Caption\n{conditioning.prompt}"
    return f"{head}\n\n# Metas\n{facts}<|endoftext|>\n"


def lyrics_of(conditioning: Conditioning) -> str:
    """The lyrics and their language, as the model was trained."""
    language = str(conditioning.option("language", "")).strip() or "en"
    lyrics = str(conditioning.option("lyrics", ""))
    return f"# Languages\n{language}\n\n# Lyric\n{lyrics}<|endoftext|>"


def _told(conditioning: Conditioning, name: str) -> str:
    value = str(conditioning.option(name, "")).strip()
    return _UNKNOWN if value in {"", "auto"} else value
