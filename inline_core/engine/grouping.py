"""The sampler of a server whose pictures are split over a group of processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from inline_core.devices.policy import DevicePolicy
from inline_core.devices.split import Split
from inline_core.engine.meeting import meeting_of
from inline_core.engine.ranks.link import versions
from inline_core.families.splitting.choice import SplitChooser
from inline_core.sampling.backends.parallel.group import GroupPlan
from inline_core.sampling.backends.parallel.routed import RoutedSampler
from inline_core.sampling.backends.parallel.sampler import GroupSampler
from inline_core.sampling.job import SampleJob
from inline_core.settings import Settings


def with_group(
    whole: Any, settings: Settings, policy: DevicePolicy, make_room: Callable[[], object]
) -> RoutedSampler:
    """The sampler of this process beside a group, which starts with its first job.

    `make_room` drops what this process holds of the devices and does not use.
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

    group = GroupSampler(settings, plan_group, versions())
    # A processor's memory is that of all processes, and they have room or have not.
    shares = policy.machine.kind == "cuda"
    return RoutedSampler(whole, group, choose, make_room if shares else None)
