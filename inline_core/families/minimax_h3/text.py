"""Prompts and keyframes for MiniMax H3: what Qwen3-VL gives for them, and where they stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import torch
from transformers import Qwen2VLImageProcessorPil

from inline_core.errors import InvalidParam, ModelFileInvalid
from inline_core.families.encoded_prompt import EncodedPrompt
from inline_core.families.text_encoders.qwen3_vl_pictures import PAD, PUBLISHED_PIXELS

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.families.encoding import Encoders
    from inline_core.families.text_encoders.loaded import TextEncoder
    from inline_core.media.values import Image
    from inline_core.sampling.values import Conditioning, Latent

# Of MiniMaxH3ModularPipeline: the layer it reads, the tags of rows, how clean a keyframe is.
LAYER: Final = 50
TEXT_TAG: Final = 1
VIDEO_TAG: Final = 0
CLEAN: Final = 0.999
_NOISE_SEED: Final = 42
_VIDEOS: Final = 5  # axes of the latents of videos
_MOST_TOKENS: Final = 8192
_HALF: Final = [0.5, 0.5, 0.5]


@dataclass(frozen=True, slots=True, eq=False)
class H3Prompt(EncodedPrompt):
    """`features` (tokens, width) and what each token is: `tags` (tokens,), text or a keyframe.

    `latent` tells the sizes of what is made (without samples); `keyframes` are the latents
    (channels, 1, h, w) of frames it is held to, `anchors` ("first" or "last") where they stand; or
    those of pictures that it looks at, which stand nowhere and have sizes of their own.
    """

    tags: Tensor | None = None
    latent: Latent | None = None
    keyframes: tuple[Tensor, ...] = ()
    anchors: tuple[str, ...] = ()


def encode(encoders: Encoders, conditioning: Conditioning) -> H3Prompt:
    """Encode one prompt as the pipeline does: each keyframe with its number, then the words.

    Device thread.  Raises: ModelFileInvalid if the encoder has too few layers.
    """
    with encoders.open(0) as encoder:
        depth = encoder.model.config.text_config.num_hidden_layers
        if depth <= LAYER:
            message = f"the text encoder has {depth} layers: MiniMax H3 reads layer {LAYER} of it"
            raise ModelFileInvalid(message)
        ids, tags, inputs = _presented(encoder, conditioning.pictures)
        words = list(encoder.tokenizer(conditioning.prompt, add_special_tokens=False).input_ids)
        # Nothing at all cannot be attended to.
        words = words or [encoder.tokenizer.pad_token_id or 0]
        room = max(_MOST_TOKENS - len(ids), 1)
        ids += words[:room]
        tags += [TEXT_TAG] * len(words[:room])
        tokens = torch.tensor([ids], device=encoder.device)  # (1, tokens)
        pad = encoder.model.config.image_token_id
        output = encoder.model(
            input_ids=tokens,
            attention_mask=torch.ones_like(tokens),
            mm_token_type_ids=(tokens == pad).int(),
            output_hidden_states=True,
            use_cache=False,
            **inputs,
        )
        # What is kept from an earlier picture would shift the next prompt.
        encoder.model.rope_deltas = None
        features = output.hidden_states[LAYER][0]  # (tokens, width)
    return H3Prompt(features, max(len(words) - room, 0), tags=torch.tensor(tags))


def _presented(
    encoder: TextEncoder, pictures: Sequence[Image]
) -> tuple[list[int], list[int], dict[str, Any]]:
    """Token ids, tags and inputs of the keyframes, each with its number before it."""
    if not pictures:
        return [], [], {}
    vision = encoder.model.config.vision_config
    processor = Qwen2VLImageProcessorPil(
        size=dict(PUBLISHED_PIXELS),
        patch_size=vision.patch_size,
        temporal_patch_size=vision.temporal_patch_size,
        merge_size=vision.spatial_merge_size,
        image_mean=_HALF,
        image_std=_HALF,
    )
    shown = processor(images=[image.pixels[:, :, :3] for image in pictures], return_tensors="pt")
    grids = shown["image_grid_thw"]  # (pictures, 3)
    ids: list[int] = []
    tags: list[int] = []
    named = encoder.tokenizer.convert_tokens_to_ids
    for index, count in enumerate((grids.prod(-1) // vision.spatial_merge_size**2).tolist()):
        label = list(
            encoder.tokenizer(f"<Picture {index + 1}>: ", add_special_tokens=False).input_ids
        )
        seen = [named("<|vision_start|>"), *[named(PAD)] * count, named("<|vision_end|>")]
        ids += [*label, *seen]
        tags += [TEXT_TAG] * len(label) + [VIDEO_TAG] * len(seen)
    dtype = encoder.model.dtype
    inputs = {
        "pixel_values": shown["pixel_values"].to(encoder.device, dtype),
        "image_grid_thw": grids.to(encoder.device),
    }
    return ids, tags, inputs


def laid_out(prompt: H3Prompt, latent: Latent) -> H3Prompt:
    """The prompt with the sizes of what is made."""
    return replace(prompt, latent=replace(latent, samples=None))


def with_references(prompt: H3Prompt, references: Sequence[Latent]) -> H3Prompt:
    """The prompt with its keyframes: latents of one frame each, whose mask says which end it is.

    Those without a mask are pictures to look at; both cannot be had.  All are a little noised, as
    the model knows them; the noise is the same for every run.
    Raises: InvalidParam for anything else.
    """
    held = [latent.mask is not None for latent in references]
    if any(held) and not all(held):
        message = "MiniMax H3 is held to keyframes or looks at references, not both"
        raise InvalidParam(message, port="positive")
    generator = torch.Generator("cpu").manual_seed(_NOISE_SEED)
    anchors, keyframes = [], []
    for latent in references:
        mask, samples = latent.mask, latent.samples
        if samples.ndim != _VIDEOS or samples.shape[2] != 1:
            message = "MiniMax H3 looks at single pictures: use the Keyframes Conditioning node"
            raise InvalidParam(message, port="positive")
        noise = torch.randn(samples.shape, generator=generator)  # (1, c, 1, h, w)
        noised = CLEAN * samples + (1.0 - CLEAN) * noise.to(samples.device)
        keyframes.append(noised[0])  # (c, 1, h, w)
        if mask is not None:
            anchors.append("first" if not mask[0].any() else "last")
    return replace(prompt, keyframes=tuple(keyframes), anchors=tuple(anchors))
