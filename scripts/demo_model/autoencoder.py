"""The demo's AutoencoderKL: its training, and folding Flux's latent constants into its weights.

The encoder is trained with a fixed noise on its latents instead of a learnt variance, and a
penalty that holds each latent channel near mean 0 and deviation 1. So a decoder that shrugs off
small errors of the transformer comes out, and a latent space that is easy to normalise.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import numpy as np
import torch
from diffusers import AutoencoderKL
from torch.nn import functional

from .budget import WallClock, log, save_whole
from .captions import Scene, all_scenes
from .drawing import IMAGE_SIZE, Pixels, draw_detail, draw_scene

SCALING: Final = 0.3611
SHIFT: Final = 0.1159
POSTERIOR_DEVIATION: Final = 0.05
LATENT_NOISE: Final = 0.35
PEAK_RATE: Final = 2e-3
SHARPEN_RATE: Final = 1e-3
SHARPEN_NOISE: Final = 0.2
CONFIG: Final = {
    "in_channels": 3,
    "out_channels": 3,
    "block_out_channels": (16, 32, 64, 64),
    "down_block_types": ("DownEncoderBlock2D",) * 4,
    "up_block_types": ("UpDecoderBlock2D",) * 4,
    "layers_per_block": 1,
    "latent_channels": 16,
    "norm_num_groups": 2,
    "use_quant_conv": False,
    "use_post_quant_conv": False,
    "mid_block_add_attention": False,
    "scaling_factor": SCALING,
    "shift_factor": SHIFT,
    "sample_size": IMAGE_SIZE,
}


def build() -> AutoencoderKL:
    """Return an untrained autoencoder of 0.97M parameters."""
    return AutoencoderKL(**CONFIG)


def to_tensor(pictures: Iterable[Pixels]) -> torch.Tensor:
    """Return uint8 pictures (H, W, 3) as one (B, 3, H, W) float32 tensor in -1..1."""
    stack = torch.from_numpy(np.stack(list(pictures)))  # (B, H, W, 3) uint8
    floats = stack.permute(0, 3, 1, 2).float() / 127.5 - 1.0  # (B, 3, H, W)
    return floats.contiguous(memory_format=torch.channels_last)  # (B, 3, H, W)


def picture_loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return a scalar: distance of the pixels and of their differences (edges)."""
    error = output - target  # (B, 3, H, W)
    across = (error[..., :, 1:] - error[..., :, :-1]).abs().mean()  # ()
    down = (error[..., 1:, :] - error[..., :-1, :]).abs().mean()  # ()
    return error.abs().mean() + 2.0 * error.square().mean() + across + down  # ()


def moment_loss(mean: torch.Tensor) -> torch.Tensor:
    """Return a scalar that is 0 when each channel of (B, C, h, w) has mean 0 and deviation 1."""
    flat = mean.transpose(0, 1).flatten(1)  # (C, B*h*w)
    centre = flat.mean(1).square().mean()  # ()
    return centre + (flat.std(1) - 1.0).square().mean()  # ()


@torch.no_grad()
def _start_normalised(model: AutoencoderKL, pictures: torch.Tensor) -> None:
    """Give each latent channel mean 0 and deviation 1 in place, so that noise drowns nothing."""
    last = model.encoder.conv_out
    mean = model.encode(pictures).latent_dist.mean  # (B, 16, h, w)
    flat = mean.transpose(0, 1).flatten(1)  # (16, B*h*w)
    count, deviation = len(flat), flat.std(1)
    last.bias[:count] = (last.bias[:count] - flat.mean(1)) / deviation
    last.weight[:count] /= deviation[:, None, None, None]


def _batch(scenes: list[Scene], rng: random.Random, done: float) -> torch.Tensor:
    """Return a batch of details that grow with the training's progress `done`, 0..1."""
    if done > 0.85:
        return to_tensor(draw_scene(rng.choice(scenes), rng) for _ in range(3))  # (3, 3, 128, 128)
    size, count = (32, 12) if done < 0.55 else (64, 6)
    details = (draw_detail(rng.choice(scenes), rng, size) for _ in range(count))
    return to_tensor(details)  # (B, 3, S, S)


def train(minutes: float, seed: int, checkpoint: Path) -> AutoencoderKL:
    """Train the autoencoder for a wall-clock budget, save it, and return it unfolded."""
    torch.manual_seed(seed)
    rng = random.Random(seed)
    scenes = all_scenes(held_out=False)
    model = build().to(memory_format=torch.channels_last)
    optimiser = torch.optim.AdamW(model.parameters(), lr=PEAK_RATE, betas=(0.9, 0.97))
    _start_normalised(model, torch.cat([_batch(scenes, rng, 0.0) for _ in range(8)]))
    clock = WallClock(minutes)
    step = 0
    while clock.progress() < 1.0:
        for group in optimiser.param_groups:
            group["lr"] = PEAK_RATE * clock.rate()
        target = _batch(scenes, rng, clock.progress())  # (B, 3, S, S)
        mean = model.encode(target).latent_dist.mean  # (B, 16, S/8, S/8)
        ramp = min(1.0, 3.0 * clock.progress())
        level = torch.rand(len(mean), 1, 1, 1) * LATENT_NOISE * ramp  # (B, 1, 1, 1)
        output = model.decode(mean + level * torch.randn_like(mean)).sample  # (B, 3, S, S)
        loss = picture_loss(output, target) + 0.05 * moment_loss(mean)  # ()
        optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        step += 1
        if step % 50 == 0:
            quality = psnr(output, target)
            log(f"vae step {step} {100 * clock.progress():.0f}% loss {loss:.4f} psnr {quality:.1f}")
        if step % 500 == 0:
            save_whole(checkpoint, {"model": model.state_dict(), "step": step, "done": False})
    save_whole(checkpoint, {"model": model.state_dict(), "step": step, "done": True})
    return model


def psnr(output: torch.Tensor, target: torch.Tensor) -> float:
    """Return the peak signal-to-noise ratio in dB of pictures in -1..1."""
    error = float(functional.mse_loss(output.detach().float().clamp(-1, 1), target.float()))
    return 10.0 * math.log10(4.0 / max(error, 1e-10))


@torch.no_grad()
def fold(model: AutoencoderKL, pictures: torch.Tensor) -> None:
    """Rescale the latents in place so that (z - SHIFT) * SCALING has about unit deviation.

    Scaling a latent channel by s is exact: the encoder's last convolution is multiplied by s, the
    decoder's first one divided by it. Means stay where training left them, near 0, because the
    decoder pads with zeros. The posterior gets a small constant deviation.

    :param model: a trained autoencoder.
    :param pictures: (B, 3, 128, 128) in -1..1, to measure the latents' deviation on.
    """
    mean = model.encode(pictures).latent_dist.mean  # (B, 16, 16, 16)
    deviation = mean.transpose(0, 1).flatten(1).std(1)  # (16,)
    factor = 1.0 / (SCALING * deviation)  # (16,)
    channels = len(factor)
    last, first = model.encoder.conv_out, model.decoder.conv_in
    last.weight[:channels] *= factor[:, None, None, None]
    last.bias[:channels] *= factor
    first.weight /= factor[None, :, None, None]
    last.weight[channels:] = 0.0
    last.bias[channels:] = 2.0 * math.log(POSTERIOR_DEVIATION / SCALING)


def sharpen(model: AutoencoderKL, minutes: float, seed: int) -> None:
    """Train the decoder a little more, in place, on whole pictures; the latents stay as they are.

    :param model: a folded autoencoder.
    :param minutes: wall-clock budget.
    """
    torch.manual_seed(seed)
    rng = random.Random(seed)
    scenes = all_scenes(held_out=False)
    optimiser = torch.optim.AdamW(model.decoder.parameters(), lr=SHARPEN_RATE, betas=(0.9, 0.97))
    clock = WallClock(minutes)
    step = 0
    while clock.progress() < 1.0:
        for group in optimiser.param_groups:
            group["lr"] = SHARPEN_RATE * clock.rate()
        target = _batch(scenes, rng, 1.0)  # (3, 3, 128, 128)
        with torch.no_grad():
            mean = model.encode(target).latent_dist.mean  # (3, 16, 16, 16)
        level = torch.rand(len(mean), 1, 1, 1) * SHARPEN_NOISE / SCALING  # (3, 1, 1, 1)
        output = model.decode(mean + level * torch.randn_like(mean)).sample  # (3, 3, 128, 128)
        loss = picture_loss(output, target)  # ()
        optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.decoder.parameters(), 1.0)
        optimiser.step()
        step += 1
        if step % 50 == 0:
            log(f"sharpen step {step} loss {loss:.4f} psnr {psnr(output, target):.1f}")


@torch.no_grad()
def check_fold(plain: AutoencoderKL, folded: AutoencoderKL, pictures: torch.Tensor) -> float:
    """Return the greatest difference of the two autoencoders' reconstructions (0 is exact)."""
    before = plain.decode(plain.encode(pictures).latent_dist.mean).sample  # (B, 3, H, W)
    after = folded.decode(folded.encode(pictures).latent_dist.mean).sample  # (B, 3, H, W)
    return float((before - after).abs().max())


@torch.no_grad()
def encode_scenes(model: AutoencoderKL, scenes: list[Scene], seed: int) -> torch.Tensor:
    """Return normalised latents of one drawing of each scene, (N, 16, 16, 16) float16."""
    rng = random.Random(seed)
    parts = []
    for start in range(0, len(scenes), 16):
        pictures = to_tensor(draw_scene(scene, rng) for scene in scenes[start : start + 16])
        mean = model.encode(pictures).latent_dist.mean  # (16, 16, 16, 16)
        parts.append(((mean - SHIFT) * SCALING).half())
    return torch.cat(parts)  # (N, 16, 16, 16)


def load(checkpoint: Path) -> AutoencoderKL:
    """Return the autoencoder of a checkpoint."""
    model = build()
    model.load_state_dict(torch.load(checkpoint, weights_only=True)["model"])
    return model.to(memory_format=torch.channels_last)
