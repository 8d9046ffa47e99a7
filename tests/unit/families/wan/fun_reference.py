"""Wan Fun written down once more, plainly: for tests that compare with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from diffusers import WanTransformer3DModel
from torch.nn import functional

from tests.reference import generator
from tests.tiny_families import wan

State = Mapping[str, torch.Tensor]


def plain_of(model: Any) -> WanTransformer3DModel:
    """diffusers' own class with the weights that it knows of."""
    extra = ("ref_channels", "camera_channels")
    config = {key: value for key, value in model.config.items() if key not in extra}
    plain = WanTransformer3DModel(**{k: v for k, v in config.items() if not k.startswith("_")})
    known = plain.state_dict().keys()
    plain.load_state_dict({k: v for k, v in model.state_dict().items() if k in known})
    return plain.eval()


@contextmanager
def patches_changed(plain: WanTransformer3DModel, change: Any) -> Any:
    """The plain model with something done to its patches (rows, dim, t, h, w)."""
    hook = plain.patch_embedding.register_forward_hook(lambda _, __, output: change(output))
    yield
    hook.remove()


def tokens_of_subject(state: State, subject: torch.Tensor) -> torch.Tensor:
    """(rows, c, h, w) to (rows, dim, h / 2, w / 2): each 2 x 2 block times the weights."""
    blocks = functional.unfold(subject, 2, stride=2)  # (rows, c * 4, places)
    flat = state["ref_conv.weight"].flatten(1)  # (dim, c * 4)
    made = flat @ blocks + state["ref_conv.bias"][:, None]  # (rows, dim, places)
    return made.reshape(*made.shape[:2], subject.shape[2] // 2, subject.shape[3] // 2)


def rays_of(numbers: np.ndarray, height: int, width: int) -> np.ndarray:
    """Pluecker coordinates (frames, 6, height, width), pixel by pixel."""
    made = np.zeros((len(numbers), 6, height, width))
    for frame, row in enumerate(numbers.astype(np.float64)):
        fx, fy, cx, cy = row[:4]
        pose = row[4:].reshape(3, 4)
        for y in range(height):
            for x in range(width):
                ahead = np.array([(x + 0.5 - cx) / fx, (y + 0.5 - cy) / fy, 1.0])
                ray = pose[:, :3] @ (ahead / np.linalg.norm(ahead))
                made[frame, :, y, x] = [*np.cross(pose[:, 3], ray), *ray]
    return made


def camera_patches(state: State, rays: np.ndarray) -> torch.Tensor:
    """(frames, 6, H, W) to what is added to the patches, (1, dim, t, H / 16, W / 16)."""
    video = torch.from_numpy(rays).float()
    made = []
    for start in range(0, len(video), 4):
        # The first frame four times, then four frames of each latent frame.
        four = video[:1].repeat(4, 1, 1, 1) if start == 0 else video[start - 3 : start + 1]
        channels = [four[frame, ray] for ray in range(6) for frame in range(4)]
        small = torch.nn.PixelUnshuffle(8)(torch.stack(channels))  # (24 * 64, h, w)
        adapter = "control_adapter."
        x = functional.conv2d(
            small[None], state[f"{adapter}conv.weight"], state[f"{adapter}conv.bias"], stride=2
        )
        inner, block = x, f"{adapter}residual_blocks.0."
        for name in ("conv1", "conv2"):
            weight, bias = state[f"{block}{name}.weight"], state[f"{block}{name}.bias"]
            inner = functional.conv2d(inner, weight, bias, padding=1)
            inner = inner.relu() if name == "conv1" else inner
        made.append(x + inner)
    return torch.stack(made, 2)


def encoded(vae: Any, pictures: Sequence[Any]) -> torch.Tensor:
    """Normalised latents (1, c, t, h, w) of frames of 0..255."""
    frames = np.stack([np.asarray(one) for one in pictures]).astype(np.float32) / 127.5 - 1.0
    video = torch.from_numpy(frames).permute(3, 0, 1, 2)[None]
    mean = torch.tensor(vae.config.latents_mean).view(1, -1, 1, 1, 1)
    std = torch.tensor(vae.config.latents_std).view(1, -1, 1, 1, 1)
    made: torch.Tensor = (vae.encode(video).latent_dist.mode() - mean) / std
    return made


def sampled(model: Any, beside: Any, channels: int, shift: float, **parts: Any) -> torch.Tensor:
    """Four steps of guided Euler, with `beside(noise)` put after the noise."""
    side = 4 if channels == 48 else 8
    latents = torch.randn((1, channels, 3, side, side), generator=generator())
    pipe = wan.pipeline("5b" if channels == 48 else "t2v")
    with torch.inference_mode():
        words = pipe.encode_prompt(
            "a red circle", "blurry", True, max_sequence_length=512, device="cpu"
        )
        schedule = wan.EvenSteps(shift=shift)
        schedule.set_timesteps(4)
        for time in schedule.timesteps:
            inputs = torch.cat([latents, *beside], 1)
            told, untold = (
                model(inputs, time[None], word, return_dict=False, **parts)[0] for word in words
            )
            velocity = untold + 5.0 * (told - untold)
            latents = schedule.step(velocity, time, latents, return_dict=False)[0]
    return latents
