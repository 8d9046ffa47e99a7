"""The forward pass of Stable Diffusion's U-Net as an estimate of the clean latents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import torch

from inline_core.families.denoiser import NetworkDenoiser
from inline_core.families.encoded_prompt import padded
from inline_core.families.sd.control import residuals
from inline_core.families.sd.family import V_ZSNR, V
from inline_core.sampling.sigmas.tables import EpsTable

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.families.sd.text import SdPrompt

_FACTOR: Final = 8  # pixels of one latent


class UNetDenoiser(NetworkDenoiser):
    """A loaded UNet2DConditionModel.  Device thread only."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self._logs = {
            zero_snr: torch.tensor(
                [EpsTable(zero_snr=zero_snr)[place] for place in range(len(EpsTable()))]
            ).log()  # (timesteps,)
            for zero_snr in (False, True)
        }

    # No blocks could be left out: each one of a U-Net works at a size of its own.

    @property
    def other_blocks(self) -> Sequence[Any]:
        """The residual and the transformer blocks of all levels."""
        return inner_blocks(self._model)

    def predict(self, latents: Tensor, sigmas: Tensor, conditioning: Sequence[SdPrompt]) -> Tensor:
        """See `Denoiser.predict`.

        The model takes x / sqrt(sigma^2 + 1).  Where it predicts the noise, clean is
        x - sigma * output; where it predicts v (Salimans and Ho 2022), clean is
        x / (sigma^2 + 1) - output * sigma / sqrt(sigma^2 + 1).
        """
        dtype = self._model.dtype
        sigma = sigmas.view(-1, 1, 1, 1)  # (rows, 1, 1, 1)
        spread = (sigma**2 + 1).sqrt()
        inputs = (latents / spread).to(dtype)  # (rows, channels, h, w)
        times = self._times(sigmas, conditioning)  # (rows,)
        how = conditions(conditioning, latents, dtype)
        added = how.get("added_cond_kwargs")
        more = residuals(conditioning, sigmas, inputs, times, added)
        fills = [prompt.fill for prompt in conditioning if prompt.fill is not None]
        if fills:
            inputs = torch.cat([inputs, torch.stack(fills).to(dtype)], dim=1)
        output = self._model(inputs, times, **how, **more, return_dict=False)[0].float()
        variants = [prompt.variant in (V, V_ZSNR) for prompt in conditioning]
        predicts_v = torch.tensor(variants, device=latents.device).view(-1, 1, 1, 1)
        from_noise = latents - sigma * output
        from_v = latents / spread**2 - output * sigma / spread
        return torch.where(predicts_v, from_v, from_noise)

    def _times(self, sigmas: Tensor, conditioning: Sequence[SdPrompt]) -> Tensor:
        """The timestep of each row: the one whose sigma is nearest in the logarithm."""
        tables = [self._logs[prompt.variant == V_ZSNR] for prompt in conditioning]
        logs = torch.stack(tables).to(sigmas.device)  # (rows, timesteps)
        return (logs - sigmas.log()[:, None]).abs().argmin(dim=1)


def conditions(
    conditioning: Sequence[SdPrompt], latents: Tensor, dtype: torch.dtype
) -> dict[str, Any]:
    """What the U-Net and its ControlNets are given beside the latents."""
    features, mask = padded(conditioning)  # (rows, tokens, width), (rows, tokens)
    lengths = {len(prompt.features) for prompt in conditioning}
    found: dict[str, Any] = {
        "encoder_hidden_states": features.to(dtype),
        # Prompts of one length go the faster way without a mask.
        "encoder_attention_mask": mask if len(lengths) > 1 else None,
    }
    pooled = [prompt.pooled for prompt in conditioning if prompt.pooled is not None]
    if pooled:
        height, width = (side * _FACTOR for side in latents.shape[-2:])
        usual = (height, width, 0, 0, height, width)
        sizes = [_numbers(prompt, usual) for prompt in conditioning]
        found["added_cond_kwargs"] = {
            "text_embeds": torch.stack(pooled).to(dtype),  # (rows, width)
            # (rows, 6), of the refiner (rows, 5)
            "time_ids": torch.tensor(sizes, device=latents.device, dtype=dtype),
        }
    return found


def _numbers(prompt: SdPrompt, usual: Sequence[int]) -> list[float]:
    """What SDXL is told of the picture, where nothing is set the usual; its refiner a score."""
    numbers: list[float] = [told or own for told, own in zip(prompt.sizes, usual, strict=True)]
    return numbers if prompt.score is None else [*numbers[:4], prompt.score]


def inner_blocks(model: Any) -> list[Any]:
    """Residual and transformer blocks, between which a pass may stop."""
    kinds = ("ResnetBlock2D", "BasicTransformerBlock")
    return [module for module in model.modules() if type(module).__name__ in kinds]
