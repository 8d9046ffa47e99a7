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
    known family asks for it in that family's own format.  `guidance` is for distilled models that
    take their guidance scale as an input (FLUX.1 dev); None leaves it to the model's default.
    `references` are pictures that the model looks at while it makes its own, in order.
    """

    prompt: str
    encoder: ComponentRef
    guidance: float | None = None
    references: tuple[Latent, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Latent:
    """Latents of `batch` pictures of `width` x `height` pixels.

    `samples` is None for an empty latent (the family of the model that samples it decides the
    channels), else an opaque float32 CPU tensor (batch, channels, height/f, width/f) in the
    *normalised* latent space of `space` (a family's latent space name, e.g. `flux`).
    `mask` is None or uint8 (height, width) in pixels of any size: where it is 255 the sampler makes
    the picture anew, where it is 0 it keeps `samples`, in between it does a part.
    `provenance` says what made each picture; `warnings` are carried into the take.
    """

    width: int
    height: int
    batch: int = 1
    samples: Any = None
    space: str | None = None
    size_bytes: int = 0
    mask: Any = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
