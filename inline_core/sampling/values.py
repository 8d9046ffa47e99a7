"""What flows into and out of the sampler.  Tensors are opaque here: torch is never needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from inline_core.loading.component import ComponentRef


@dataclass(frozen=True, slots=True)
class Conditioning:
    """A prompt for one text encoder: a recipe, encoded (and cached) where it is first needed.

    Holding the recipe instead of the tensors keeps the encoder out of memory until a model of a
    known family asks for it in that family's own format.
    """

    prompt: str
    encoder: ComponentRef


@dataclass(frozen=True, slots=True, eq=False)
class Latent:
    """Latents of `batch` pictures of `width` x `height` pixels.

    `samples` is None for an empty latent (the family of the model that samples it decides the
    channels), else an opaque float32 CPU tensor (batch, channels, height/f, width/f) in the
    *normalised* latent space of `space` (a family's latent space name, e.g. `flux`).
    `provenance` says what made each picture; `warnings` are carried into the take.
    """

    width: int
    height: int
    batch: int = 1
    samples: Any = None
    space: str | None = None
    size_bytes: int = 0
    provenance: Mapping[str, Any] = field(default_factory=dict)
