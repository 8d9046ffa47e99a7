"""What the sampler asks of a model family; families implement it, the sampler knows none."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from inline_core.devices.budget import Workload
from inline_core.devices.split import UNSPLIT, SplitTraits
from inline_core.errors import InvalidParam
from inline_core.loading.component import ComponentRef, Role
from inline_core.loading.rules import FamilyRules

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.sampling.job import SampleJob
    from inline_core.sampling.offer import Offer
    from inline_core.sampling.sigmas.tables import SigmaTable
    from inline_core.sampling.values import Latent, Region


@dataclass(frozen=True, slots=True)
class LatentSpace:
    """A space of latents.  Normalised = (raw - shift) * scaling; one latent is `factor` pixels.

    `frame_factor` is how many frames one latent frame stands for after the first one; 0 means that
    the space is one of pictures and has no time axis.  `words` are those by which names of files
    say that they are for it, where shapes do not, `alike` other spaces whose latents are the same
    and only decoded in another way.  Latents of other shapes (sound, several
    parts in one) are kinds of this class with a `shape` of their own.
    """

    name: str
    channels: int
    factor: int
    scaling: float = 1.0
    shift: float = 0.0
    frame_factor: int = 0
    words: tuple[str, ...] = ()
    alike: tuple[str, ...] = ()

    def shape(self, width: int, height: int, frames: int = 1, fps: float = 0.0) -> tuple[int, ...]:
        """Shape of the latents of one picture, or of one video if the space has a time axis."""
        del fps
        size = (height // self.factor, width // self.factor)
        if not self.frame_factor:
            return (self.channels, *size)
        return (self.channels, (frames - 1) // self.frame_factor + 1, *size)

    def normalised(self, raw: Tensor) -> Tensor:
        """What the sampler works on, from what a VAE encoded to; any shape."""
        return (raw - self.shift) * self.scaling

    @property
    def is_sound(self) -> bool:
        """Latents of this space become sounds, not pictures."""
        return False


@dataclass(frozen=True, slots=True)
class SoundSpace(LatentSpace):
    """A space of sounds, `rate_hz` latent frames a second; width and height are 1."""

    rate_hz: float = 25.0

    def shape(self, width: int, height: int, frames: int = 1, fps: float = 0.0) -> tuple[int, ...]:
        """(channels, frames), whatever the width and the height are."""
        del width, height, fps
        return (self.channels, frames)

    @property
    def is_sound(self) -> bool:
        """Always."""
        return True


@dataclass(frozen=True, slots=True)
class SoundtrackSpace(LatentSpace):
    """A space of videos with their sound, which are made in one pass.

    A latent is one row of values: those of the video (channels, t, h, w), then those of the sound
    (`sound_channels`, latent frames of sound), `sound_rate_hz` of them a second.  `fps` is that of
    videos that do not say theirs.
    """

    sound_channels: int = 0
    sound_rate_hz: float = 25.0
    fps: float = 24.0

    def sound_frames_of(self, frames: int, fps: float) -> int:
        """Latent frames of sound that last as long as `frames` of video."""
        return round(frames / (fps or self.fps) * self.sound_rate_hz)

    def video_shape(self, width: int, height: int, frames: int) -> tuple[int, ...]:
        """(channels, t, h, w) of the video."""
        return LatentSpace.shape(self, width, height, frames)

    def shape(self, width: int, height: int, frames: int = 1, fps: float = 0.0) -> tuple[int, ...]:
        """(values,) of the video and its sound."""
        video = math.prod(self.video_shape(width, height, frames))
        return (video + self.sound_channels * self.sound_frames_of(frames, fps),)

    def split(self, rows: Tensor, latent: Latent) -> tuple[Tensor, Tensor]:
        """Rows (n, values) -> videos (n, channels, t, h, w), sounds (n, channels, frames).

        `latent` tells their sizes.
        """
        shape = self.video_shape(latent.width, latent.height, latent.frames)
        count = math.prod(shape)
        video = rows[:, :count].reshape(-1, *shape)  # (n, channels, t, h, w)
        return video, rows[:, count:].reshape(len(rows), self.sound_channels, -1)

    def joined(self, video: Tensor, sound: Tensor) -> Tensor:
        """Videos (n, channels, t, h, w) and sounds (n, channels, frames) -> rows (n, values)."""
        count = video.shape[1:].numel()
        rows = video.new_empty((len(video), count + sound.shape[1:].numel()))  # (n, values)
        rows[:, :count] = video.flatten(1)
        rows[:, count:] = sound.flatten(1)
        return rows


def video_values(space: LatentSpace, latent: Latent) -> int:
    """How many values of a row belong to the video, where the rest is its sound; else 0."""
    if not isinstance(space, SoundtrackSpace):
        return 0
    return math.prod(space.video_shape(latent.width, latent.height, latent.frames))


@dataclass(frozen=True, slots=True)
class PassSize:
    """What one forward pass works on: sizes from the header, pixels, and members.

    `members` counts pictures (or videos), twice with classifier-free guidance; `decoder_channels`
    is how wide the decoder is at full resolution; `reference_pixels` are those of the pictures
    looked at; `frames` is 1 for a picture; `controls` counts ControlNets.
    """

    geometry: Mapping[str, int]
    width: int
    height: int
    members: int = 1
    decoder_channels: int = 256
    reference_pixels: int = 0
    frames: int = 1
    controls: int = 0


@dataclass(frozen=True, slots=True)
class ScheduleFor:
    """What the noise levels of a family may depend on; sizes in pixels.

    `steps` are those of the whole schedule, from pure noise.  `keyframes` counts the pictures that
    a video is held to beside its first frame.
    """

    variant: str = ""
    width: int = 1024
    height: int = 1024
    steps: int = 20
    frames: int = 1
    keyframes: int = 0


def _any_job(_: SampleJob, __: Mapping[str, int]) -> None:
    pass


@dataclass(frozen=True, slots=True)
class ModelFamily:
    """The torch-free description of an architecture.

    `table` gives the sigmas its noise schedules are laid over, `size_multiple` is what both sides
    must be multiples of (`frame_multiple`: what the frames of a video are a multiple of beside the
    first `frame_first`), `readers` are modules that load text encoders for it in another way than
    for others, by architecture,
    `runtime` the module with its torch code, imported on the device thread, and `workload` the
    values that one forward pass and its decode need beside the weights.  `guidance_input` names the
    constructor argument that says whether a model takes its guidance as an input ("": none does;
    with `ignores_guidance` one that is given is left out, as in ComfyUI).
    `looks_at_references` says that prompts may carry latents of pictures (`holds_loosely`: frames
    that are given may have a strength below 1), `reads_pictures` that its
    text encoder looks at pictures (see `families.references`).  `modules` names the modules that
    load text encoders and autoencoders of its own, by role and architecture.  `check` raises
    InvalidParam for a job that a model with these sizes cannot do; where prompts are read in
    another way for each variant (`prompts_by_variant`), they have it as option `variant`; where
    they name the length of what is made (`prompts_by_length`), they have it as option `seconds`.
    `comfyui_shifts` are the fixed shifts that ComfyUI gives its schedule, by variant ("": any).
    `refused` are variants that this release cannot run, and why; see `check_variant`.
    `controlled` says that it takes ControlNets (see `families.controls`), `control_latents` that
    these look at the latents of a picture, not at its pixels.  `splits` says how a pass of its
    model can be divided over several processes.  `offers` are its
    one-click nodes.  Of two families that could both be meant the one with the lower `rank` is.
    """

    rules: FamilyRules
    space: LatentSpace
    table: Callable[[ScheduleFor], SigmaTable]
    size_multiple: int
    runtime: str
    workload: Callable[[PassSize], Workload]
    guidance_input: str = ""
    ignores_guidance: bool = False
    looks_at_references: bool = False
    holds_loosely: bool = False
    reads_pictures: bool = False
    frame_multiple: int = 1
    frame_first: int = 1
    modules: Mapping[tuple[Role, str], str] = field(default_factory=dict)
    readers: Mapping[str, str] = field(default_factory=dict)
    check: Callable[[SampleJob, Mapping[str, int]], None] = _any_job
    prompts_by_variant: bool = False
    prompts_by_length: bool = False
    refused: Mapping[str, str] = field(default_factory=dict)
    comfyui_shifts: Mapping[str, float] = field(default_factory=dict)
    controlled: bool = False
    control_latents: bool = False
    splits: SplitTraits = UNSPLIT
    offers: tuple[Offer, ...] = ()
    rank: int = 100

    @property
    def name(self) -> str:
        """The family's name in references, e.g. `z-image`."""
        return self.rules.name

    def frames_below(self, wanted: int) -> int:
        """The largest number of frames that a video can have and that is not above `wanted`."""
        steps = (wanted - self.frame_first) // self.frame_multiple
        return max(steps, 0) * self.frame_multiple + self.frame_first

    def frames_above(self, wanted: int) -> int:
        """The smallest number of frames that a video can have and that is not below `wanted`."""
        steps = -(-(wanted - self.frame_first) // self.frame_multiple)
        return max(steps, 0) * self.frame_multiple + self.frame_first

    @property
    def frames_in_words(self) -> str:
        """What a number of frames has to be."""
        if self.frame_first == 1:
            return f"one more than a multiple of {self.frame_multiple}"
        return f"{self.frame_multiple} n + {self.frame_first}"

    def as_variant(self, model: ComponentRef, picked: str) -> ComponentRef:
        """The model as the variant that the user says it is, where its file does not tell.

        Raises: InvalidParam for a variant that files of this model cannot be, or that is unknown.
        """
        told = {one.value: one for offer in self.offers for one in offer.told}
        label = self.rules.label
        if picked not in told:
            names = ", ".join(told) or "none"
            message = f"{label} has no variant {picked!r} to be told; there are: {names}"
            raise InvalidParam(message, param="variant")
        of = told[picked].of
        if of and model.variant not in {"", of, picked}:
            message = f"{model.name} is {label} {model.variant}, not {picked}: pick another model"
            raise InvalidParam(f"{message} or variant", param="variant")
        return replace(model, variant=picked)

    def check_variant(self, model: ComponentRef) -> None:
        """Raise InvalidParam for a model of a variant that this release cannot run."""
        why = self.refused.get(model.variant)
        if why is not None:
            label = f"{self.rules.label} {model.variant}"
            message = f"{model.name} is {label}, which is not available in this release, as {why}"
            raise InvalidParam(message, param="variant", details={"model": model.name})


@dataclass(slots=True, eq=False)
class StepMemory:
    """What one row of one job may reuse of its earlier steps (see `families.blocks`).

    `threshold` is the relative change of the first block below which the rest is not run again;
    `first` is what the first block added when it was, `rest` what the others added then.
    """

    threshold: float
    first: Tensor | None = None
    rest: Tensor | None = None
    reused: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One row of a forward pass: an encoded prompt, and what is special about it.

    `key` names the job, the picture and the estimate that it belongs to: rows with one key follow
    each other from step to step.  `guidance` is for models that take their guidance as an input,
    `skipped_layers` are numbers of blocks that this row does not go through, `negative` is what
    guidance leads away from.
    """

    conditioning: Any
    guidance: float | None = None
    skipped_layers: tuple[int, ...] = ()
    memory: StepMemory | None = None
    negative: bool = False
    key: tuple[int, str, int, int] | None = None


class Denoiser(Protocol):
    """A loaded diffusion model of a family.  Used on the device thread only."""

    def predict(self, latents: Tensor, sigmas: Tensor, conditioning: Sequence[Any]) -> Tensor:
        """The denoised estimates of a batch.

        `latents` (members, channels, height, width) float32, `sigmas` (members,) float32 in 0..1,
        one encoded prompt for each member; members share nothing, and lengths may differ.
        """


class GuidedDenoiser(Protocol):
    """A `Denoiser` of a family with `guidance_input`.  Device thread only."""

    def predict(
        self,
        latents: Tensor,
        sigmas: Tensor,
        conditioning: Sequence[Any],
        guidance: Sequence[float | None] = (),
    ) -> Tensor:
        """As `Denoiser.predict`, with a guidance scale for each member; None: the usual one."""


class BatchDenoiser(Denoiser, Protocol):
    """A diffusion model as the sampler uses it.  Device thread only."""

    def estimate(
        self, latents: Tensor, sigmas: Tensor, rows: Sequence[Row], check: Callable[[], None]
    ) -> Tensor:
        """As `Denoiser.predict` with a row each; `check` is called between blocks and may raise."""


@dataclass(frozen=True, slots=True, eq=False)
class PromptPart:
    """One of several prompts that are combined: encoded, and where and when it counts."""

    encoded: Any
    region: Region
    guidance: float | None = None


@dataclass(slots=True)
class Prepared:
    """Everything loaded and encoded that one job needs; `release` gives the leases back.

    `max_pictures` is how many pictures of this size fit into one forward pass (`rows_apart`: not
    even one with all its estimates), `speed_key` says for
    which passes measured speeds hold (device, model, precision; empty: none are measured).
    `parts` are the prompts that positive, negative and second consist of, where that is more than
    one that counts everywhere.
    """

    denoiser: BatchDenoiser
    positive: Any
    negative: Any | None
    space: LatentSpace
    table: SigmaTable
    device: str
    dtype: str
    release: Callable[[], None]
    second: Any | None = None
    preview: Callable[[Tensor], bytes] | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    warnings: Callable[[], tuple[str, ...]] = tuple
    max_pictures: int = 1_000_000
    rows_apart: bool = False
    speed_key: str = ""
    vae_family: str = ""
    parts: Mapping[str, tuple[PromptPart, ...]] = field(default_factory=dict)


class ModelSource(Protocol):
    """Turns the references of a job into loaded modules.  Used on the device's threads only."""

    def prepare(self, job: SampleJob) -> Prepared:
        """Load and encode.  Raises: InlineError, RunCancelled."""

    def free_unleased(self) -> None:
        """Drop what nobody uses, after memory ran out."""
