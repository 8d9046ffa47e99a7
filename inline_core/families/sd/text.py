"""Prompts for Stable Diffusion: chunks of 77 tokens, weights, embeddings, and clip skip.

Imports torch, so it is imported on the device thread only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch

from inline_core.errors import InvalidParam, ModelFileInvalid
from inline_core.families.encoded_prompt import EncodedPrompt
from inline_core.families.sd.chunks import Token, chunked
from inline_core.families.sd.embeddings import vectors_of
from inline_core.families.sd.prompt import parsed
from inline_core.families.text_encoders.clip import padding, states

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.families.encoding import Encoders
    from inline_core.sampling.values import Conditioning

_ENDS: Final = 2  # start and end of each chunk
_REFINER_NUMBERS: Final = 5 * 256
# How well a picture is liked: of the positive and of the negative prompt.  Source: the defaults of
# StableDiffusionXLImg2ImgPipeline.
_SCORES: Final = (6.0, 2.5)
_SIZES: Final = (
    "original_height",
    "original_width",
    "crop_y",
    "crop_x",
    "target_height",
    "target_width",
)


@dataclass(frozen=True, slots=True, eq=False)
class SdPrompt(EncodedPrompt):
    """An encoded prompt, how its model predicts (`variant`), and what SDXL is told of the picture.

    `sizes` are six numbers in pixels: original height and width, rows and columns cropped away,
    target height and width; 0 for a size is that of the picture.  `fill` (1 + channels, height,
    width) is the mask and the picture to be filled of a model made for that.  `score` is how well
    the picture shall be liked, which only the refiner of SDXL is told.
    """

    variant: str = ""
    sizes: tuple[int, ...] = (0,) * len(_SIZES)
    fill: Tensor | None = None
    score: float | None = None


def encode(encoders: Encoders, conditioning: Conditioning) -> SdPrompt:
    """Encode one prompt; device thread.

    SD1.5 has one text encoder and takes its last layer with the final norm, SDXL has two and takes
    the states before their last layers side by side, and what CLIP-G makes of the whole; its
    refiner has CLIP-G alone.
    Raises: InvalidParam, ModelFileMissing, ModelFileInvalid for embeddings that are not there.
    """
    words = parsed(conditioning.prompt)
    several, refines = len(encoders) > 1, _refines(encoders)
    skip = int(conditioning.option("clip_skip") or (2 if several or refines else 1))
    features: list[Tensor] = []
    pooled = None
    count = 1
    for position in range(len(encoders)):
        with encoders.open(position) as encoder:
            chunks = _chunks(encoders, encoder, position, words)
            found, projected = _read(encoder, chunks, skip, normed=not (several or refines))
        features.append(found)
        count = max(count, len(chunks))
        if (several or refines) and position == len(encoders) - 1:
            if projected is None:
                message = "the text encoder CLIP-G has no text_projection: use one of SDXL"
                raise ModelFileInvalid(message)
            pooled = projected
    tokens = min(len(part) for part in features)
    notes = (f"The prompt is long: it was read in {count} chunks",) if count > 1 else ()
    return SdPrompt(
        torch.cat([part[:tokens] for part in features], dim=-1),  # (tokens, width)
        pooled=pooled,
        notes=notes,
        variant=str(conditioning.option("variant", "")),
        sizes=tuple(int(conditioning.option(key) or 0) for key in _SIZES),
        score=_SCORES[bool(conditioning.option("negative"))] if refines else None,
    )


def _refines(encoders: Encoders) -> bool:
    """Whether the prompt is for the refiner of SDXL, which has CLIP-G alone and is told a score."""
    sizes = encoders.sizes
    told = sizes.get("projection_class_embeddings_input_dim", 0)
    return told - sizes.get("cross_attention_dim", 0) == _REFINER_NUMBERS


def _chunks(
    encoders: Encoders, encoder: Any, position: int, words: Sequence[Any]
) -> list[list[Token]]:
    config, tokenizer = encoder.model.config, encoder.tokenizer

    def ids(word: str) -> Sequence[int]:
        found: Sequence[int] = tokenizer(word, add_special_tokens=False).input_ids
        return found

    def vectors(name: str) -> Sequence[Tensor]:
        return list(vectors_of(name, position, config.hidden_size, encoders.file))

    return chunked(words, ids, vectors, config.max_position_embeddings - _ENDS)


def _read(
    encoder: Any, chunks: Sequence[Sequence[Token]], skip: int, *, normed: bool
) -> tuple[Tensor, Tensor | None]:
    """Features (chunks * 77, width) of all chunks, and the first one as a whole (width,).

    A weight moves a token away from what the same place has in an empty prompt, as ComfyUI does it:
    empty + weight * (token - empty).
    """
    weighted = any(token.weight != 1.0 for chunk in chunks for token in chunk)
    rows = [*chunks, ()] if weighted else list(chunks)
    tokens = _tokens(encoder, rows)  # (rows, 77)
    with _with_vectors(encoder, rows):
        output = states(encoder, tokens)
    if not 1 <= skip < len(output.layers):
        most = len(output.layers) - 1
        message = f"clip_skip is {skip}: the text encoder has {most} layers"
        raise InvalidParam(message, param="clip_skip")
    features = output.layers[-skip]  # (rows, 77, width)
    if normed:
        features = output.last if skip == 1 else encoder.model.text_model.final_layer_norm(features)
    if weighted:
        empty, features = features[-1:].float(), features[:-1]
        weights = _weights(chunks, features.shape[1]).to(features.device)  # (rows, 77, 1)
        features = (empty + weights * (features.float() - empty)).to(features.dtype)
    whole = None if output.projected is None else output.projected[0].clone()
    # A copy, so that the other layers' states are let go.
    return features.flatten(0, 1).clone(), whole


def _tokens(encoder: Any, rows: Sequence[Sequence[Token]]) -> Tensor:
    """Token ids with start, end and padding; 0 where a vector goes."""
    tokenizer, pad = encoder.tokenizer, padding(encoder)
    most = encoder.model.config.max_position_embeddings
    made = []
    for row in rows:
        ids = [tokenizer.bos_token_id, *(token.number for token in row), tokenizer.eos_token_id]
        made.append(ids + [pad] * (most - len(ids)))
    return torch.tensor(made, device=encoder.device)


def _weights(rows: Sequence[Sequence[Token]], most: int) -> Tensor:
    weights = torch.ones(len(rows), most, 1)  # (rows, 77, 1)
    for index, row in enumerate(rows):
        values = [token.weight for token in row]
        weights[index, 1 : 1 + len(values), 0] = torch.tensor(values)
    return weights


@contextmanager
def _with_vectors(encoder: Any, rows: Sequence[Sequence[Token]]) -> Iterator[None]:
    """Within this block the vectors of embeddings stand where their tokens are looked up."""
    places = [
        (index, 1 + place, token.vector)
        for index, row in enumerate(rows)
        for place, token in enumerate(row)
        if token.vector is not None
    ]

    def put(_: Any, __: Any, looked_up: Tensor) -> Tensor:
        looked_up = looked_up.clone()  # (rows, 77, width)
        for index, place, vector in places:
            looked_up[index, place] = vector.to(looked_up.device, looked_up.dtype)
        return looked_up

    if not places:
        yield
        return
    hook = encoder.model.text_model.embeddings.token_embedding.register_forward_hook(put)
    try:
        yield
    finally:
        hook.remove()
