"""The sound of videos that are made with it, from its latents: which parts, where.

Lives on the device's threads; the modules with torch code are imported when first needed.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from inline_core.errors import ModelFileMissing, NotFinite
from inline_core.families.leasing import Check, Leasing
from inline_core.families.registry import SOUND_PARTS
from inline_core.loading.component import ComponentRef, Role
from inline_core.loading.rules import ROLE_IN_WORDS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from inline_core.loading.pool import Lease


class Soundtracks:
    """Decodes sounds with the audio VAE, and the vocoder, that go with a VAE of videos."""

    def __init__(self, leasing: Leasing) -> None:
        self._leasing = leasing

    def decode(
        self, vae: ComponentRef, samples: Tensor, check: Check
    ) -> tuple[NDArray[np.float32], int]:
        """Latents (1, channels, frames) of a sound -> samples (channels, n), and their rate in Hz.

        Raises: ModelFileMissing, ModelFileInvalid, NotFinite, OutOfMemory, RunCancelled.
        """
        parts = {part.role: part for part in vae.others}
        if Role.AUDIO_VAE not in parts:
            message = (
                f"{vae.name} comes with no sound here: {ROLE_IN_WORDS[Role.AUDIO_VAE]} of the same "
                "model is needed in models/vae"
            )
            raise ModelFileMissing(message)
        found, rate = samples, 0
        for role in (Role.AUDIO_VAE, Role.VOCODER):
            if role in parts:
                with self._lease(parts[role], check) as runtime, runtime.interruption.asking(check):
                    # Latents, then a spectrogram if there is a vocoder, then (1, channels, n).
                    found, rate = runtime.decode(found), runtime.sample_rate_hz
        sound = found[0].float().cpu()  # (channels, n)
        if not bool(sound.isfinite().all()):
            message = "NaN or infinity in the decoded sound: no sound was made"
            raise NotFinite(message)
        made: NDArray[np.float32] = sound.numpy()
        return made, rate

    def _lease(self, part: ComponentRef, check: Check) -> Lease[Any]:
        weights = self._leasing.opened.open(part).weights
        # They are small, and half precision is heard.
        placement = replace(self._leasing.policy.place_vae(weights), dtype="float32")
        plan = self._leasing.plan(part, placement, check)
        runtime = importlib.import_module(SOUND_PARTS[part.family, part.role])
        load = runtime.load_vocoder if part.role is Role.VOCODER else runtime.load_audio_vae
        return self._leasing.lease(part, plan, load)
