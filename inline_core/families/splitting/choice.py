"""Which jobs go to the group, and how their passes are divided; in the server, without torch."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from inline_core.devices.policy import DevicePolicy
from inline_core.devices.split import Split
from inline_core.errors import InvalidRequest
from inline_core.families.demand import OpenedFiles, demand_of_job, model_facts
from inline_core.families.registry import family_of
from inline_core.sampling.job import SampleJob
from inline_core.sampling.patches import StepCache, every

# The classes of networks that can be divided; others of the same families have parts beside their
# blocks (a second stream of control, cameras), which know nothing of ranks.
DIVIDED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "z-image": "ZImageTransformer2DModel",
        "flux-1": "FluxTransformer2DModel",
        "flux-2": "Flux2Transformer2DModel",
        "qwen-image": "QwenImageTransformer2DModel",
        "wan": "WanTransformer3DModel",
        "krea-2": "Krea2Transformer2DModel",
    }
)


@dataclass(frozen=True, slots=True)
class Choice:
    """The split of a job (None: one device makes it), why there is none, and the GPUs of ranks.

    `reason` is empty where nobody has asked for a split.
    """

    split: Split | None
    reason: str = ""
    gpus: tuple[str, ...] = ()


class SplitChooser:
    """Asks the device policy for each job.  Safe from any thread."""

    def __init__(self, policy: DevicePolicy) -> None:
        self._policy = policy
        self._opened = OpenedFiles()
        self._lock = threading.Lock()
        self._gpus: dict[str, tuple[str, ...]] = {}

    def choose(self, job: SampleJob) -> Choice:
        """How the passes of a job are divided.

        Raises: InvalidRequest for a split that was asked for and that the model cannot have, with
        everything that is wrong with it; ModelFileInvalid, ModelFileMissing.
        """
        family = family_of(job.model)
        model = self._opened.open(job.model)
        facts = model_facts(job.model, model.identity, family)
        demand = demand_of_job(family, self._opened.parts_of(job), job)
        decision = self._policy.split(family.splits, facts, demand)
        if decision.problems:
            message = f"INLINE_PARALLEL does not go with this model: {'; '.join(decision.problems)}"
            raise InvalidRequest(message)
        if decision.split is None:
            return Choice(None, "; ".join(decision.reasons))
        reason = self._why_whole(job, decision.split)
        if reason:
            return Choice(None, reason)
        gpus = tuple(self._named(index) for index in decision.gpus)
        with self._lock:
            self._gpus[decision.split.key] = gpus
        return Choice(decision.split, gpus=gpus)

    def gpus_of(self, split: Split) -> tuple[str, ...]:
        """The GPUs of the ranks of a split that `choose` gave, as CUDA_VISIBLE_DEVICES has them."""
        with self._lock:
            return self._gpus.get(split.key, ())

    def _named(self, index: int) -> str:
        """By uuid, which no mask changes."""
        gpu = next(gpu for gpu in self._policy.machine.gpus if gpu.index == index)
        return gpu.uuid or str(gpu.index)

    def _why_whole(self, job: SampleJob, split: Split) -> str:
        """What about this job cannot be divided, whatever the model could."""
        family = family_of(job.model)
        for reference in job.model.all:
            name = self._opened.open(reference).identity.class_name
            if name != DIVIDED.get(family.name):
                return f"{reference.name} is a {name}, whose passes cannot be divided"
        if job.controls:
            return "ControlNets look at the whole picture"
        if any(cache.threshold > 0 for cache in every(job.model.patches, StepCache)):
            return "each rank would decide by itself what its step cache reuses"
        if not split.exact:
            return _why_not_pipelined(job, split)
        return ""


def _why_not_pipelined(job: SampleJob, split: Split) -> str:
    """What PipeFusion cannot do: its stages see a picture in pieces."""
    if job.positive.references:
        return "PipeFusion cuts the picture into pieces, and the references are not part of it"
    if len(job.model.all) > 1:
        return "PipeFusion runs one model, not a pair"
    rows = job.latent.height // 16
    if rows % (split.pieces * split.sequence):
        needed = split.pieces * split.sequence * 16
        return f"PipeFusion cuts {job.latent.height} pixels into pieces of {needed} or a multiple"
    return ""
