"""Prompts for Bria FIBO 2: six bundles of layers of Qwen3-VL for every token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch

from inline_core.errors import ModelFileInvalid
from inline_core.families.bria_fibo2.captions import NULL_CAPTION, edit_prompt, generation_prompt
from inline_core.families.encoded_prompt import EncodedPrompt
from inline_core.families.text_encoders.qwen3_vl_pictures import with_pictures

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.families.encoding import Encoders
    from inline_core.families.text_encoders.loaded import TextEncoder
    from inline_core.media.values import Image
    from inline_core.sampling.values import Conditioning, Latent

# Of BriaFibo2Pipeline: the layers of each bundle, the Perceiver's first.
LAYERS: Final = (
    (9, 20, 31), (5, 16, 27), (7, 18, 29), (9, 20, 31), (11, 22, 33), (13, 24, 35),
)  # fmt: skip
MAX_TOKENS: Final = 4096
TEMPLATE: Final = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
_EPS: Final = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class ReferringPrompt(EncodedPrompt):
    """A prompt with pictures to edit: normalised latents, each (1, channels, h, w)."""

    references: tuple[Tensor, ...] = ()


def encode(encoders: Encoders, conditioning: Conditioning) -> EncodedPrompt:
    """Encode one prompt as BriaFibo2Pipeline does; features (tokens, bundles, width).

    A negative prompt goes in as it is and without pictures; an empty one is the null caption.
    Device thread.  Raises: ModelFileInvalid if the encoder has too few layers, InvalidParam for a
    caption of an edit without an instruction.
    """
    prompt, pictures = conditioning.prompt, conditioning.pictures
    if conditioning.option("negative"):
        text, pictures = prompt or NULL_CAPTION, ()
    else:
        text = edit_prompt(prompt, len(pictures)) if pictures else generation_prompt(prompt)
    with encoders.open() as encoder:
        depth = encoder.model.config.text_config.num_hidden_layers
        if depth <= LAYERS[-1][-1]:
            message = f"the text encoder has {depth} layers: Bria FIBO 2 reads {LAYERS[-1][-1] + 1}"
            raise ModelFileInvalid(message)
        return _read(encoder, TEMPLATE.format(text), pictures)


def _read(encoder: TextEncoder, text: str, pictures: Sequence[Image]) -> EncodedPrompt:
    shown = [image.pixels[:, :, :3] for image in pictures]
    ids, inputs = with_pictures(encoder, encoder.tokenizer(text).input_ids, shown)
    tokens = torch.tensor([ids[:MAX_TOKENS]], device=encoder.device)  # (1, tokens)
    if pictures:
        inputs["mm_token_type_ids"] = (tokens == encoder.model.config.image_token_id).int()
    output = encoder.model(
        input_ids=tokens,
        attention_mask=torch.ones_like(tokens),
        output_hidden_states=True,
        use_cache=False,
        **inputs,
    )
    # What is kept from an earlier picture would shift the next prompt.
    encoder.model.rope_deltas = None
    bundles = [
        torch.cat([_unit(output.hidden_states[layer][0]) for layer in layers], dim=-1)
        for layers in LAYERS
    ]  # 6 x (tokens, 3 * width)
    return EncodedPrompt(torch.stack(bundles, dim=1), max(len(ids) - MAX_TOKENS, 0))


def _unit(states: Tensor) -> Tensor:
    """States (tokens, width) scaled to a root mean square of 1, token by token."""
    whole = states.float()
    scaled = whole * torch.rsqrt(whole.square().mean(dim=-1, keepdim=True) + _EPS)
    return scaled.to(states.dtype)  # (tokens, width)


def with_references(prompt: EncodedPrompt, references: Sequence[Latent]) -> ReferringPrompt:
    """The prompt with pictures to edit, normalised latents of one each, in order."""
    return ReferringPrompt(
        prompt.features,
        prompt.cut_tokens,
        notes=prompt.notes,
        references=tuple(latent.samples for latent in references),
    )
