"""HunyuanVideo 1.5's network with rows of a pass that are told different things.

Imports torch and diffusers, so it is imported on the device thread only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from diffusers import HunyuanVideo15Transformer3DModel
from torch.nn.utils.rnn import pad_sequence

from inline_core.families.hunyuan_video15.attention import attend_jointly

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.families.hunyuan_video15.text import HunyuanPrompt

# Rows of the embedding that says what kind a token of the text is.
_PROMPT, _GLYPHS, _SEEN = range(3)


class HunyuanVideo15Network(HunyuanVideo15Transformer3DModel):  # type: ignore[misc]
    """The same weights behind another forward function.

    That of diffusers pads all kinds of text to their largest length, masks them for every pair of
    tokens, and decides for a whole batch whether there is a picture.
    """

    def forward(
        self, hidden_states: Tensor, timestep: Tensor, prompts: Sequence[HunyuanPrompt]
    ) -> Tensor:
        """Latents and what lies beside them (rows, channels, t, h, w), times (rows,) in 0..1000.

        Gives the velocity (rows, channels of latents, t, h, w).
        Source: the forward function of HunyuanVideo15Transformer3DModel.
        """
        dtype, device = self.x_embedder.proj.weight.dtype, hidden_states.device
        waves = self.time_embed.time_proj(timestep).to(dtype)  # (rows, 256)
        embedded = self.time_embed.timestep_embedder(waves)  # (rows, width)
        freqs = self.rope(hidden_states)
        texts = [
            self._text(prompt, time, dtype)
            for prompt, time in zip(prompts, timestep[:, None], strict=True)
        ]
        counts = torch.tensor([len(text) for text in texts], device=device)  # (rows,)
        text = pad_sequence(texts, batch_first=True)  # (rows, tokens, width)
        mask = torch.arange(text.shape[1], device=device)[None] < counts[:, None]
        hidden = self.x_embedder(hidden_states.to(dtype))  # (rows, places, width)
        for block in self.transformer_blocks:
            text, hidden = block(
                hidden,
                encoder_hidden_states=text,
                temb=embedded,
                attention_mask=mask,
                freqs_cis=freqs,
            )
        patches = self.proj_out(self.norm_out(hidden, embedded))  # (rows, places, patch)
        return self._unpatched(patches, hidden_states.shape[2:])

    def _text(self, prompt: HunyuanPrompt, time: Tensor, dtype: torch.dtype) -> Tensor:
        """All that one row is told beside its latents, (tokens, width): picture, glyphs, words."""
        kinds = self.cond_type_embed.weight  # (3, width)
        features = prompt.features[None].to(dtype)  # (1, tokens, features)
        parts = [self.context_embedder(features, time)[0] + kinds[_PROMPT]]
        if prompt.glyphs is not None:
            parts.insert(0, self.context_embedder_2(prompt.glyphs.to(dtype)) + kinds[_GLYPHS])
        if prompt.seen is not None:
            parts.insert(0, self.image_embedder(prompt.seen.to(dtype)) + kinds[_SEEN])
        return torch.cat(parts)

    def _unpatched(self, patches: Tensor, size: Sequence[int]) -> Tensor:
        """(rows, places, channels of a patch) -> (rows, channels, t, h, w)."""
        deep, side = self.config.patch_size_t, self.config.patch_size
        frames, height, width = size[0] // deep, size[1] // side, size[2] // side
        rows = patches.shape[0]
        grid = patches.view(rows, frames, height, width, -1, deep, side, side)
        # (rows, t, h, w, channels, deep, side, side) -> (rows, channels, t, deep, h, side, w, side)
        apart = grid.permute(0, 4, 1, 5, 2, 6, 3, 7)
        return apart.reshape(rows, -1, *size)  # (rows, channels, t, h, w)


def prepared(model: HunyuanVideo15Network) -> HunyuanVideo15Network:
    """The network with blocks as control over them wants it (see `families.blocks`)."""
    attend_jointly(model)
    for block in model.transformer_blocks:
        block.forward = _text_first(block.forward)
    return model


def _text_first(forward: Callable[..., tuple[Tensor, Tensor]]) -> Callable[..., Any]:
    """A block that gives (text, picture), as those of other models do."""

    def turned(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        picture, text = forward(*args, **kwargs)
        return text, picture

    return turned
