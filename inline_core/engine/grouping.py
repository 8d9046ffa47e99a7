"""The sampler of a server whose pictures are split over a group of processes."""

from __future__ import annotations

from typing import Any

from inline_core.devices.policy import DevicePolicy
from inline_core.devices.split import Split
from inline_core.engine.ranks.link import versions
from inline_core.errors import InvalidRequest
from inline_core.families.splitting.choice import SplitChooser
from inline_core.sampling.backends.parallel.group import GroupPlan
from inline_core.sampling.backends.parallel.processes import Meeting
from inline_core.sampling.backends.parallel.routed import RoutedSampler
from inline_core.sampling.backends.parallel.sampler import GroupSampler
from inline_core.sampling.job import SampleJob
from inline_core.settings import Settings


def with_group(whole: Any, settings: Settings, policy: DevicePolicy) -> RoutedSampler:
    """The sampler of this process beside a group, which starts with its first job.

    Raises: InvalidRequest for a place to meet that cannot be read.
    """
    chooser = SplitChooser(policy)
    meeting = meeting_of(settings)

    def plan_group(job: SampleJob) -> GroupPlan:
        assert job.split is not None
        return GroupPlan(job.split.world, chooser.gpus_of(job.split), meeting)

    def choose(job: SampleJob) -> tuple[Split | None, str]:
        choice = chooser.choose(job)
        return choice.split, choice.reason

    return RoutedSampler(whole, GroupSampler(settings, plan_group, versions()), choose)


def meeting_of(settings: Settings) -> Meeting | None:
    """Where the ranks of several hosts meet, by the settings.

    Raises: InvalidRequest if the address or the key is missing or cannot be read.
    """
    if settings.parallel_hosts == 1:
        return None
    host, _, port = settings.parallel_address.rpartition(":")
    if not host or not port.isdigit():
        message = (
            f"INLINE_PARALLEL_HOSTS is {settings.parallel_hosts}, so INLINE_PARALLEL_ADDRESS must "
            f"be HOST:PORT, reachable by all of them, not {settings.parallel_address!r}"
        )
        raise InvalidRequest(message)
    if not settings.parallel_key:
        message = "ranks of other hosts need INLINE_PARALLEL_KEY, the same secret on all hosts"
        raise InvalidRequest(message)
    return Meeting(host, int(port), settings.parallel_key, settings.parallel_hosts)
