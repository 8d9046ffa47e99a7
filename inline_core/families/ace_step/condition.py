"""The condition encoder of ACE-Step: words, lyrics and timbre to what the model attends to.

Imports torch and diffusers, so it is imported on the device thread only.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from diffusers.pipelines.ace_step import AceStepConditionEncoder

from inline_core.families.text_encoders import loaded
from inline_core.families.text_encoders.loaded import TextEncoder
from inline_core.loading.stream import LoadPlan

_SILENCE: Final = "silence_latent"
# What the shapes do not tell; from the published configs, where the file's own does not say.
_USUAL: Final = ("rope_theta", "rms_norm_eps", "sliding_window", "layer_types")


def load_text_encoder(plan: LoadPlan, tokenizer: Any) -> TextEncoder:
    """The condition encoder; it reads features, so that it has no tokenizer.

    Raises: ModelFileInvalid, RunCancelled.
    """
    told = {key: plan.files.config[key] for key in _USUAL if plan.files.config.get(key) is not None}
    config = {**plan.identity.config, **told}

    def build() -> Any:
        model = AceStepConditionEncoder(**config)
        # The latents of silence lie in the file like a weight, as long as they are there.
        info = plan.logical.tensors.get(plan.identity.prefix + _SILENCE)
        shape = model.silence_latent.shape if info is None else info.shape
        del model.silence_latent
        empty = torch.empty(shape, device="meta")  # (1, frames, channels)
        model.register_parameter(_SILENCE, torch.nn.Parameter(empty, requires_grad=False))
        return model

    return loaded.load_encoder(
        plan,
        tokenizer,
        build,
        lambda model: [*model.lyric_encoder.layers, *model.timbre_encoder.layers],
    )
