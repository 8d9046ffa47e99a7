"""What diffusers' own pipelines make of the same weights, for tests that compare with them."""

from __future__ import annotations

from typing import Any

import torch


def last_latents(pipe: Any, **call: Any) -> torch.Tensor:
    """The latents of the last step of a pipeline, as it keeps them between steps."""
    seen: dict[str, torch.Tensor] = {}

    def keep(_: Any, __: int, ___: Any, values: dict[str, Any]) -> dict[str, Any]:
        seen["latents"] = values["latents"]
        return values

    pipe.set_progress_bar_config(disable=True)
    with torch.inference_mode():
        pipe(callback_on_step_end=keep, output_type="latent", **call)
    return seen["latents"]


def generator(seed: int = 7) -> torch.Generator:
    """Noise of a seed as pipelines draw it: on the CPU, in float32."""
    return torch.Generator("cpu").manual_seed(seed)
