"""What a rank does from its first message on: join the others, then lead or follow."""

from __future__ import annotations

import os
import queue
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist

from inline_core.devices.release import tune_allocator
from inline_core.devices.split import Split
from inline_core.engine.ranks.leader import Leader
from inline_core.engine.ranks.link import Link, RankPlace
from inline_core.engine.ranks.orders import Orders
from inline_core.engine.ranks.policy import RankPolicy, rank_machine
from inline_core.engine.ranks.splitting import Follower, GroupSplitting
from inline_core.families.modules import ModuleSource
from inline_core.families.options import ModuleOptions
from inline_core.families.registry import open_catalog
from inline_core.families.splitting.backend import ParallelBackend
from inline_core.loading.pool import ComponentPool
from inline_core.settings import Settings

# Longer than the server waits for a step: it is the server who says what has stalled.
_GROUP_PATIENCE: Final = timedelta(hours=24)


def work(place: RankPlace, link: Link, told: Mapping[str, Any]) -> None:
    """Work until the group is dissolved; `told` has the settings of the server."""
    settings = Settings(**told["settings"])
    messages: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    link.watch(messages.put)
    try:
        rank = _join(place, link, settings)
    except Exception as error:  # noqa: BLE001 - the border of a rank
        link.fail(error, "joining the group")
    link.send(kind="ready")
    with torch.inference_mode():
        if isinstance(rank, Leader):
            rank.lead(messages)
        else:
            rank.follow()


def _join(place: RankPlace, link: Link, settings: Settings) -> Leader | Follower:
    machine = rank_machine(settings, place.local_rank)
    policy = RankPolicy(settings, machine)
    device = policy.machine.device
    tune_allocator()
    threads = settings.threads or max(1, len(os.sched_getaffinity(0)) // place.world)
    torch.set_num_threads(threads)
    if machine.kind == "cuda":
        # Before the group is made: groups made later bind to the device that is set then.
        torch.cuda.set_device(place.local_rank)
    backend = "nccl" if machine.kind == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=_GROUP_PATIENCE)
    orders = Orders(place.world - 1, link)

    def make_backend(split: Split) -> ParallelBackend:
        return _backend(split, machine.kind, place)

    pool = ComponentPool(policy.room)
    splitting = GroupSplitting(orders, link, policy, make_backend, lambda: pool.free("asked"))
    # Compiled blocks and divided attention do not go together.
    options = ModuleOptions(attention=settings.attention)
    modules = ModuleSource(open_catalog(settings), pool, policy, None, options, splitting=splitting)
    if not place.leads:
        return Follower(orders, link, splitting, modules, device)
    return Leader(orders, link, splitting, modules, settings, device, pool)


def _backend(split: Split, kind: str, place: RankPlace) -> ParallelBackend:
    if split.backend == "xdit":
        from inline_core.families.splitting.xdit import XditBackend

        return XditBackend(split, kind, place.local_rank)
    from inline_core.families.splitting.context_parallel import ContextParallelBackend

    return ContextParallelBackend(split, kind)
