"""Extra lessons for the transformer: where the shape is, and which two colours there are.

A linear head on the image tokens of an inner layer names, for each token, how much of its 4x4
parts the shape covers, and both colours. Classes are learnt from far fewer pictures than latents
are; the last layers then only have to paint. The head is thrown away after training.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import nn
from torch.nn import functional

from .captions import PALETTE, Scene
from .drawing import IMAGE_SIZE, OFFSETS, RADII, draw_mask
from .network import GRID

PARTS: Final = 4
COLOUR_WEIGHT: Final = 0.3


def coverage(scene: Scene) -> torch.Tensor:
    """Return how much of each token's parts the scene's shape covers, (64, 16) in 0..1."""
    dx, dy = OFFSETS[scene.place]
    middle = IMAGE_SIZE / 2
    mask = draw_mask(scene.shape, middle + dx, middle + dy, RADII[scene.size])
    cell = IMAGE_SIZE // (GRID * PARTS)
    parts = torch.from_numpy(mask.copy()).view(GRID, PARTS, cell, GRID, PARTS, cell).mean((2, 5))
    return parts.permute(0, 2, 1, 3).reshape(GRID * GRID, PARTS * PARTS)  # (64, 16)


class Hints(nn.Module):
    """The head and its right answers.

    :param width: the transformer's width.
    :param scenes: the training scenes, in the order of their indices.
    """

    def __init__(self, width: int, scenes: list[Scene]) -> None:
        super().__init__()
        colours = list(PALETTE)
        self.head = nn.Linear(width, PARTS * PARTS + 2 * len(colours))
        layouts = {(s.shape, s.size, s.place): s for s in scenes}
        numbers = {layout: index for index, layout in enumerate(layouts)}
        self._masks = torch.stack([coverage(s) for s in layouts.values()])  # (60, 64, 16)
        self._layout = torch.tensor([numbers[s.shape, s.size, s.place] for s in scenes])  # (N,)
        pairs = [[colours.index(s.colour), colours.index(s.background)] for s in scenes]
        self._colours = torch.tensor(pairs)  # (N, 2)

    def forward(
        self, hidden: torch.Tensor, scenes: torch.Tensor, said: torch.Tensor
    ) -> torch.Tensor:
        """Return the lessons' loss ().

        :param hidden: (B, 64, D) image tokens of an inner layer.
        :param scenes: (B,) indices of scenes.
        :param said: (B,) false where the caption was left empty; those count for nothing.
        """
        scale = hidden.square().mean(-1, keepdim=True).add(1e-5).rsqrt()  # (B, 64, 1)
        scores = self.head((hidden * scale)[said])  # (B', 64, 32)
        kept = scenes[said]  # (B',)
        sizes = [PARTS * PARTS, len(PALETTE), len(PALETTE)]
        parts, front, ground = torch.split(scores, sizes, dim=-1)
        cover = functional.binary_cross_entropy_with_logits(parts, self._masks[self._layout[kept]])
        loss = cover
        for index, guess in enumerate((front, ground)):
            wanted = self._colours[kept, index, None].expand(-1, guess.shape[1])  # (B', 64)
            flat = functional.cross_entropy(guess.flatten(0, 1), wanted.flatten())  # ()
            loss = loss + COLOUR_WEIGHT * flat
        return loss
