"""AutoencoderKLMiniMaxH3: videos of MiniMax H3 to latents and back.

Imports torch and diffusers, so it is imported on the device thread only.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from accelerate import init_empty_weights
from diffusers import AutoencoderKLMiniMaxH3
from diffusers.modular_pipelines.minimax_h3.encoders import encode_vae_condition

from inline_core.errors import ModelFileInvalid, NotFinite
from inline_core.families.autoencoders.videos import by_channel
from inline_core.families.transformer import place_buffers
from inline_core.loading.interruption import Interruption
from inline_core.loading.stream import LoadPlan, fill, prefixed_sources

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from inline_core.sampling.family import LatentSpace

# Of MiniMaxH3ModularPipeline: ImageNet's, and the seed every keyframe is encoded with.
_MEAN: Final = (0.485, 0.456, 0.406)
_DEVIATION: Final = (0.229, 0.224, 0.225)
_SEED: Final = 42
_PICTURE: Final = 3  # axes of a picture's array; a video has one more
_BYTE: Final = 255.0
STATISTICS: Final = ("latents_mean", "latents_std")


class H3VaeRuntime:
    """A loaded AutoencoderKLMiniMaxH3.  Any of the device's threads.

    It always works in tiles, which is how it was made to.
    """

    def __init__(self, model: Any, space: LatentSpace) -> None:
        self._model = model
        self._lock = threading.Lock()
        self.space = space
        self.scale = (space.scaling, space.shift)
        stages = [*model.encoder.down_blocks, *model.decoder.transformer_blocks]
        self.interruption = Interruption(stages)
        self._mean = by_channel(model.config.latents_mean, model.device)
        self._deviation = by_channel(model.config.latents_std, model.device)

    def in_space(self, _: LatentSpace | None) -> H3VaeRuntime:
        """The same: its statistics belong to it."""
        return self

    def decode(self, latents: Tensor, *, tiled: bool = False) -> NDArray[np.uint8]:
        """Normalised latents (1, c, t, h, w) -> uint8 (frames, H, W, 3).  Raises: NotFinite."""
        del tiled
        raw = latents.to(self._model.device, torch.float32) * self._deviation + self._mean
        with self._lock:
            pixels = self._model.decode(raw, return_dict=False)[0][0].float()  # (3, frames, H, W)
        if not bool(torch.isfinite(pixels).all()):
            message = "NaN or infinity in the decoded pixels: no video was made"
            raise NotFinite(message)
        shape = (-1, 1, 1)
        deviation = torch.tensor(_DEVIATION, device=pixels.device).view(shape)  # (3, 1, 1)
        mean = torch.tensor(_MEAN, device=pixels.device).view(shape)  # (3, 1, 1)
        frames = []
        for frame in pixels.unbind(1):  # (3, H, W)
            unit = (frame * deviation + mean).clamp(0, 1).permute(1, 2, 0)  # (H, W, 3)
            frames.append((unit.cpu().numpy() * _BYTE).round().astype(np.uint8))
        return np.stack(frames)

    def encode(self, pixels: NDArray[Any], *, tiled: bool = False) -> Tensor:
        """(H, W, 3) or (frames, H, W, 3), uint8 or float32 in 0..1 -> normalised (1, c, t, h, w).

        As the model was trained to be given it: a draw from the encoded distribution with one seed
        for all, rounded to half precision.
        """
        del tiled
        frames = pixels[None] if pixels.ndim == _PICTURE else pixels
        if frames.dtype != np.uint8:
            frames = (frames * _BYTE).round().astype(np.uint8)
        video = torch.from_numpy(np.array(frames)).permute(3, 0, 1, 2)[None]
        with self._lock:
            found: Tensor = encode_vae_condition(
                self._model, video.to(self._model.device), _MEAN, _DEVIATION, _SEED
            )
        return found  # (1, c, t, h, w)


def load_vae(plan: LoadPlan, space: LatentSpace) -> H3VaeRuntime:
    """The VAE, ready to decode and encode.  Raises: ModelFileInvalid, RunCancelled."""
    told = plan.files.config
    config = dict(plan.identity.config)
    if any(len(told.get(name) or ()) != config["latent_channels"] for name in STATISTICS):
        message = (
            f"{plan.label} does not tell how its latents are normalised: use the folder of the VAE "
            "with its config.json"
        )
        raise ModelFileInvalid(message)
    known = {key: value for key, value in told.items() if not key.startswith("_")}
    with init_empty_weights(include_buffers=False):
        model: Any = AutoencoderKLMiniMaxH3(**{**config, **known})
    place_buffers(model, plan.placement.storage)
    sources = prefixed_sources(plan.logical.tensors, plan.identity.prefix)
    precise = getattr(AutoencoderKLMiniMaxH3, "_keep_in_fp32_modules", None) or ()
    fill(model, sources, plan, precise=precise)
    return H3VaeRuntime(model.eval(), space)
