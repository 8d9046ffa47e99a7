"""What the sampler asks of a model family; families implement it, the sampler knows none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from inline_core.devices.budget import Workload
from inline_core.loading.rules import FamilyRules

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.sampling.job import SampleJob


@dataclass(frozen=True, slots=True)
class LatentSpace:
    """A space of latents.  Normalised = (raw - shift) * scaling; one latent is `factor` pixels."""

    name: str
    channels: int
    factor: int
    scaling: float
    shift: float


@dataclass(frozen=True, slots=True)
class PassSize:
    """What one forward pass works on: sizes from the header, pixels, and members.

    `members` counts pictures, twice with classifier-free guidance; `decoder_channels` is how wide
    the decoder is at full resolution.
    """

    geometry: Mapping[str, int]
    width: int
    height: int
    members: int = 1
    decoder_channels: int = 256


@dataclass(frozen=True, slots=True)
class ModelFamily:
    """The torch-free description of an architecture.

    `schedule_shift` is the shift of its flow schedule, `size_multiple` what width and height must
    be multiples of, `runtime` the module with its torch code, imported on the device thread, and
    `workload` the values that one forward pass and its decode need beside the weights.
    """

    rules: FamilyRules
    space: LatentSpace
    schedule_shift: float
    size_multiple: int
    runtime: str
    workload: Callable[[PassSize], Workload]

    @property
    def name(self) -> str:
        """The family's name in references, e.g. `z-image`."""
        return self.rules.name


class Denoiser(Protocol):
    """A loaded diffusion model.  Used on the device thread only."""

    def predict(self, latents: Tensor, sigmas: Tensor, conditioning: Sequence[Any]) -> Tensor:
        """The denoised estimates of a batch.

        `latents` (members, channels, height, width) float32, `sigmas` (members,) float32 in 0..1,
        one encoded prompt for each member; members share nothing, and lengths may differ.
        """


@dataclass(slots=True)
class Prepared:
    """Everything loaded and encoded that one job needs; `release` gives the leases back.

    `max_pictures` is how many pictures of this size fit into one forward pass.
    """

    denoiser: Denoiser
    positive: Any
    negative: Any | None
    space: LatentSpace
    schedule_shift: float
    device: str
    dtype: str
    release: Callable[[], None]
    preview: Callable[[Tensor], bytes] | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    max_pictures: int = 1_000_000


class ModelSource(Protocol):
    """Turns the references of a job into loaded modules.  Used on the device thread only."""

    def prepare(self, job: SampleJob) -> Prepared:
        """Load and encode.  Raises: InlineError, RunCancelled."""

    def free_unleased(self) -> None:
        """Drop what nobody uses, after memory ran out."""
