"""LoRA files with one module, and what a job makes with one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from inline_core.loading.component import LoraRef
from inline_core.loading.files import open_weights
from inline_core.sampling.job import SampleJob
from tests import tiny
from tests.backends.conftest import Bench

_ALPHA = 3.0
_RANK = 2


def save_lora(path: Path, stem: str, shape: tuple[int, int]) -> torch.Tensor:
    """Write a LoRA of one module (kohya's spelling with alpha, or diffusers'); gives its change."""
    generator = torch.Generator().manual_seed(5)
    down = torch.randn((_RANK, shape[1]), generator=generator)
    up = torch.randn((shape[0], _RANK), generator=generator) * 0.5
    if stem.startswith("lora_"):
        keys = {f"{stem}.lora_down.weight": down, f"{stem}.lora_up.weight": up}
        tiny.save({**keys, f"{stem}.alpha": torch.tensor(_ALPHA)}, path)
        return up @ down * (_ALPHA / _RANK)  # (out, in)
    tiny.save({f"{stem}.lora_A.weight": down, f"{stem}.lora_B.weight": up}, path)
    return up @ down  # (out, in)


def latents_with(bench: Bench, job: SampleJob, path: Path) -> torch.Tensor:
    """The latents of a job whose model has a LoRA."""
    lora = LoraRef(path, path.name, open_weights(path).stamp, 1.0, strict=True)
    return bench.latents(replace(job, model=replace(job.model, adapters=(lora,))))
