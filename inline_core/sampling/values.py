"""What flows into and out of the sampler.  Tensors are opaque here: torch is never needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from inline_core.loading.component import ComponentRef
from inline_core.media.values import Image


@dataclass(frozen=True, slots=True, eq=False)
class Control:
    """A ControlNet on a prompt, and the picture it looks at (edges, depth, a pose, ...).

    `strength` is how much of what it gives is added (0: nothing).  It counts between two percents
    of the sampling, as ComfyUI counts them: 0 is pure noise, 1 the end.  `vae` encodes the picture
    where a ControlNet looks at latents (None: the one that belongs to the model).  `mask` uint8
    (height, width) of any size is 255 where a ControlNet for inpainting makes the picture anew.
    """

    model: ComponentRef
    image: Image
    strength: float = 1.0
    start_percent: float = 0.0
    end_percent: float = 1.0
    vae: ComponentRef | None = None
    mask: Any = None


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """Where, when and how much a conditioning counts beside others that it is combined with.

    `area` is (x, y, width, height), in pixels or as `shares` of the picture: the model then makes
    that part as a picture of its own.  `mask` uint8 (height, width) of any size weighs its estimate
    instead.  It counts from `start_percent` to `end_percent` of the sampling.
    """

    strength: float = 1.0
    area: tuple[float, float, float, float] | None = None
    shares: bool = False
    mask: Any = None
    start_percent: float = 0.0
    end_percent: float = 1.0


@dataclass(frozen=True, slots=True)
class Mix:
    """A change of encoded prompts: `zero` them, `join` another one's, or `average` with it.

    Of an average the `weight` (0..1) is the first one's share.
    """

    kind: Literal["zero", "join", "average"]
    other: Conditioning | None = None
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Conditioning:
    """A prompt for one text encoder: a recipe, encoded (and cached) where it is first needed.

    Holding the recipe instead of the tensors keeps the encoder out of memory until a model of a
    known family asks for it in that family's own format.  `guidance` is for distilled models that
    take their guidance scale as an input (FLUX.1 dev); None leaves it to the model's default.
    `references` are latents that the model looks at while it makes its own, in order; `pictures`
    are what the text encoder looks at beside the words.  `options` are choices of the family for
    its text encoder (clip skip, ...), as sorted (name, value) pairs.  `controls` are ControlNets;
    what several of them give is added up.  `mixes` change what was encoded, in order.  `region`
    says where it counts, `beside` are further ones that it is combined with: their estimates are
    averaged, by strength.
    """

    prompt: str
    encoder: ComponentRef
    guidance: float | None = None
    references: tuple[Latent, ...] = ()
    pictures: tuple[Image, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()
    controls: tuple[Control, ...] = ()
    mixes: tuple[Mix, ...] = ()
    region: Region | None = None
    beside: tuple[Conditioning, ...] = ()

    @property
    def every(self) -> tuple[Conditioning, ...]:
        """This one alone, and those that it is combined with."""
        return (self, *self.beside)

    def mapped(self, change: Callable[[Conditioning], Conditioning]) -> Conditioning:
        """The same with `change` made to it and to all that it is mixed and combined with."""
        changed = change(self)
        mixes = tuple(
            mix if mix.other is None else replace(mix, other=mix.other.mapped(change))
            for mix in self.mixes
        )
        beside = tuple(other.mapped(change) for other in self.beside)
        return replace(changed, mixes=mixes, beside=beside)

    def option(self, name: str, usual: Any = None) -> Any:
        """The value of an option, or the usual one."""
        return dict(self.options).get(name, usual)


@dataclass(frozen=True, slots=True, eq=False)
class Latent:
    """Latents of `batch` pictures of `width` x `height` pixels, or of videos of `frames` frames.

    `samples` is None for an empty latent (the family of the model that samples it decides the
    channels), else an opaque float32 CPU tensor (batch, channels, [frames,] height/f, width/f) in
    the *normalised* latent space of `space` (a family's latent space name, e.g. `flux`).  Not
    `normalised` are those of a VAE whose file does not say how; then `space` is the VAE's
    architecture, and the model that samples them knows.  `fps` is 0 where time does not count.
    `mask` is None or uint8 (height, width) in pixels of any size: where it is 255 the sampler makes
    the picture anew, where it is 0 it keeps `samples`, in between it does a part.
    `strength` (0..1) is how far a given frame is held to, where it is a reference; `purpose` is
    what it is there for, where a family has several: `control` (a video to go by), `subject` (a
    picture of what is to be seen), `camera` (rows of `sampling.camera_paths`, no latents) or `vace`
    (all that this is shown).
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
    frames: int = 1
    fps: float = 0.0
    normalised: bool = True
    strength: float = 1.0
    purpose: str = ""
