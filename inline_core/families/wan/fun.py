"""Wan Fun: Wan with tokens of a reference picture, or with a camera that moves along a path.

diffusers has no class for either.  Source of both: `WanTransformer3DModel` of VideoX-Fun.
Imports torch and diffusers, so it is imported on the device thread only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch
from diffusers import WanTransformer3DModel
from torch import nn
from torch.nn import functional

if TYPE_CHECKING:
    from torch import Tensor

_GROUP: Final = 4  # frames of a latent frame
_VIEW: Final = 4  # numbers of the lens, before those of the place


def camera_rays(cameras: Tensor, height: int, width: int) -> Tensor:
    """The ray through the middle of each pixel as Pluecker coordinates (o x d, d).

    `cameras` (rows, frames, 16) as `sampling.camera_paths` has them; the result is
    (rows, frames, 6, height, width).  Source: `ray_condition` of CameraCtrl.
    """
    fx, fy, cx, cy = (one[..., None, None] for one in cameras[..., :_VIEW].unbind(-1))
    poses = cameras[..., _VIEW:].reshape(*cameras.shape[:2], 3, 4)  # (rows, frames, 3, 4)
    across = torch.arange(width, device=cameras.device, dtype=cameras.dtype) + 0.5  # (width,)
    down = torch.arange(height, device=cameras.device, dtype=cameras.dtype) + 0.5  # (height,)
    shape = (*cameras.shape[:2], height, width)
    x = ((across - cx) / fx).expand(shape)  # (rows, frames, height, width)
    y = ((down[:, None] - cy) / fy).expand(shape)  # (rows, frames, height, width)
    ahead = torch.stack([x, y, torch.ones_like(x)], 2)  # (rows, frames, 3, height, width)
    ahead = functional.normalize(ahead, dim=2)  # (rows, frames, 3, height, width)
    rays = torch.einsum("rfij,rfjhw->rfihw", poses[..., :3], ahead)
    start = poses[..., 3, None, None].expand_as(rays)  # (rows, frames, 3, height, width)
    moments = torch.cross(start, rays, dim=2)  # (rows, frames, 3, height, width)
    return torch.cat([moments, rays], 2)  # (rows, frames, 6, height, width)


class _Residual(nn.Module):
    """Two convolutions beside a skip."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, kernel_size=3, padding=1)
        self.conv2 = nn.Conv2d(width, width, kernel_size=3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """(rows, width, h, w) to the same."""
        inner = self.conv2(functional.relu(self.conv1(x)))  # (rows, width, h, w)
        summed: Tensor = x + inner
        return summed  # (rows, width, h, w)


class CameraAdapter(nn.Module):
    """The rays of four frames to what is added to the patches of one latent frame."""

    def __init__(self, channels: int, side: int, blocks: int, width: int) -> None:
        """`channels` of the rays of four frames; `side` in pixels is that of a latent."""
        super().__init__()
        self._side = side
        self.conv = nn.Conv2d(channels * side * side, width, kernel_size=2, stride=2)
        self.residual_blocks = nn.Sequential(*[_Residual(width) for _ in range(blocks)])

    def forward(self, cameras: Tensor, height: int, width: int, dtype: torch.dtype) -> Tensor:
        """(rows, width, t, height / 2, width / 2), of `cameras` (rows, 4 t - 3, 16).

        `height` and `width` are in latents.  The first frame stands for four.  The rays of one
        latent frame are held at a time: those of a whole video are gigabytes.
        """
        first = cameras[:, :1].expand(-1, _GROUP - 1, -1)  # (rows, 3, 16)
        made = []
        for four in torch.split(torch.cat([first, cameras], 1), _GROUP, 1):
            rays = camera_rays(four, height * self._side, width * self._side)
            folded = rays.transpose(1, 2).flatten(1, 2).to(dtype)  # (rows, 24, H, W)
            small = functional.pixel_unshuffle(folded, self._side)  # (rows, 24 side^2, h, w)
            made.append(self.residual_blocks(self.conv(small)))
        return torch.stack(made, 2)  # (rows, width, t, h / 2, w / 2)


class WanFunTransformer3DModel(WanTransformer3DModel):  # type: ignore[misc]
    """Wan with the parts of Fun; without any it is Wan itself."""

    def __init__(
        self,
        ref_channels: int = 0,
        camera_channels: int = 0,
        camera_side: int = 8,
        camera_blocks: int = 1,
        **config: Any,
    ) -> None:
        """`ref_channels` are those of a reference picture's latent; the others of its camera's.

        0 leaves a part out.
        """
        super().__init__(**config)
        width = self.config.num_attention_heads * self.config.attention_head_dim
        self.ref_conv: Any = None
        self.control_adapter: Any = None
        if ref_channels:
            self.ref_conv = nn.Conv2d(ref_channels, width, kernel_size=2, stride=2)
        if camera_channels:
            self.control_adapter = CameraAdapter(camera_channels, camera_side, camera_blocks, width)
        self.register_to_config(ref_channels=ref_channels, camera_channels=camera_channels)

    def forward(
        self,
        hidden_states: Tensor,
        timestep: Tensor,
        encoder_hidden_states: Tensor,
        encoder_hidden_states_image: Tensor | None = None,
        subject: Tensor | None = None,
        cameras: Tensor | None = None,
        *,
        return_dict: bool = False,
    ) -> tuple[Tensor]:
        """One pass; as that of WanTransformer3DModel, with times (rows,) only.

        `subject` (rows, c, h, w) is the latent of a reference picture: a frame of tokens before
        the first one, which is cut off again.  `cameras` (rows, frames, 16) are where the camera
        is.
        """
        del return_dict
        rows, _, frames, height, width = hidden_states.shape
        patches = self.patch_embedding(hidden_states)  # (rows, dim, t, h / 2, w / 2)
        if cameras is not None:
            moved = self.control_adapter(cameras, height, width, patches.dtype)
            patches = patches + moved  # (rows, dim, t, h / 2, w / 2)
        tokens = patches.flatten(2).transpose(1, 2).contiguous()  # (rows, tokens, dim)
        before = 0
        if subject is not None:
            shown = self.ref_conv(subject).flatten(2).transpose(1, 2)  # (rows, before, dim)
            before = shown.shape[1]
            tokens = torch.cat([shown, tokens], 1)  # (rows, before + tokens, dim)
        # Of the positions only the shape counts.
        places = torch.empty((1, 1, frames + bool(before), height, width), device="meta")
        rotary = self.rope(places)
        time, scales, words, seen = self.condition_embedder(
            timestep, encoder_hidden_states, encoder_hidden_states_image
        )
        scales = scales.unflatten(1, (6, -1))  # (rows, 6, dim)
        if seen is not None:
            words = torch.cat([seen, words], 1)  # (rows, places + 512, dim)
        for block in self.blocks:
            tokens = block(tokens, words, scales, rotary)
        return (self._unpatched(tokens[:, before:], time, (rows, frames, height, width)),)

    def _unpatched(self, tokens: Tensor, time: Tensor, size: tuple[int, int, int, int]) -> Tensor:
        """Tokens (rows, tokens, dim) to latents (rows, c, t, h, w)."""
        rows, frames, height, width = size
        deep, tall, wide = self.config.patch_size
        table = self.scale_shift_table.to(time.device) + time[:, None]  # (rows, 2, dim)
        shift, scale = (part.to(tokens.device) for part in table.chunk(2, 1))
        made = (self.norm_out(tokens.float()) * (1 + scale) + shift).type_as(tokens)
        made = self.proj_out(made)  # (rows, tokens, c * patch)
        shape = (rows, frames // deep, height // tall, width // wide, deep, tall, wide, -1)
        made = made.reshape(shape).permute(0, 7, 1, 4, 2, 5, 3, 6)
        latents: Tensor = made.flatten(6, 7).flatten(4, 5).flatten(2, 3)
        return latents  # (rows, c, t, h, w)
