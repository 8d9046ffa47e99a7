"""Which split a model's passes get on this hardware, and why."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from inline_core.devices.budget import Gpu, Machine
from inline_core.devices.split import (
    BackendName,
    ModelFacts,
    Split,
    SplitDecision,
    SplitTraits,
)
from inline_core.devices.split_rules import (
    Libraries,
    Model,
    Site,
    has_mode,
    heads_divide,
    library_problems,
    model_problems,
    modes_of,
    site_problems,
)
from inline_core.devices.split_setting import Wanted
from inline_core.devices.topology import Topology, gpus_in_words

# GPUs of one name whose memory differs by more are not alike.
_ALIKE: Final = 0.9
_FEWEST: Final = 2


def decide(
    wanted: Wanted | None,
    traits: SplitTraits,
    facts: ModelFacts,
    machine: Machine,
    topology: Topology,
    libraries: Libraries,
    hosts: int = 1,
    *,
    plan_fits_whole: bool = True,
    platform: str = sys.platform,
) -> SplitDecision:
    """The split of a model, or why there is none; None is wanted where the setting is off.

    `libraries` are installed versions by name, `plan_fits_whole` says that what a rank holds fits
    on each GPU.  A family that declares nothing runs on one device whatever is wanted: the setting
    is for the whole server, so that this is a reason and no problem.
    """
    model = Model(traits, facts)
    site = Site(machine, topology, libraries, hosts, platform)
    if wanted is None:
        return _off(model, site, fits=plan_fits_whole)
    if not traits.backends:
        return _none(f"passes of {facts.family} cannot be divided: one device makes each picture")
    if wanted.auto:
        return _automatic(model, site, fits=plan_fits_whole)
    return _explicit(wanted, model, site, fits=plan_fits_whole)


def _none(*reasons: str) -> SplitDecision:
    return SplitDecision(None, reasons)


def _off(model: Model, site: Site, *, fits: bool) -> SplitDecision:
    """Off, and what would be done otherwise where that could help."""
    count = len(site.machine.gpus)
    if count * site.hosts < _FEWEST or not model.traits.backends:
        return _none("off")
    other = _automatic(model, site, fits=fits)
    if other.split is None:
        return _none(f"off, also with --multi-gpu: {'; '.join(other.reasons)}")
    here = f"{count} GPUs are here" if count > 1 else "there are more hosts"
    would = f"--multi-gpu would use {other.split.in_words}"
    return _none(f"off: {here}; {would}: {'; '.join(other.reasons)}")


def _explicit(wanted: Wanted, model: Model, site: Site, *, fits: bool) -> SplitDecision:
    """The degrees of the setting, or everything that is wrong with them."""
    split, reason = _by_a_backend(wanted, model, site)
    if split.world == 1:
        return _none(f"INLINE_PARALLEL={wanted.in_words} is one rank: nothing is divided")
    asked = wanted.in_words
    problems = [*site_problems(split.world, asked, site), *model_problems(split, model, site)]
    if problems:
        return SplitDecision(None, problems=tuple(problems))
    pool, unequal = _pool_for(split, site)
    gpus = _seats(split, pool, site)
    reasons = [f"INLINE_PARALLEL={asked}", *reason, *_links(site, sorted(gpus)), *unequal]
    if not split.exact:
        reasons.append(
            "PipeFusion uses values of the step before, so that the picture is not quite that of "
            "one GPU"
        )
    if not fits:
        share = "the whole model" if split.exact else "a stage's share of the model"
        reasons.append(f"{share} does not fit on each GPU")
    return SplitDecision(split, tuple(reasons), gpus=gpus)


def _by_a_backend(wanted: Wanted, model: Model, site: Site) -> tuple[Split, tuple[str, ...]]:
    """The degrees by the first backend that can, and why it is not the preferred one.

    If none can, it is the one that has all of the modes, if any: its problems are to be told.
    """
    backends = (wanted.backend,) if wanted.backend else model.traits.backends
    splits = [wanted.split_with(backend) for backend in backends]
    wrong = [model_problems(split, model, site) for split in splits]
    for place, split in enumerate(splits):
        if not wrong[place]:
            return split, (f"not {backends[0]}: {wrong[0][0]}",) if place else ()
    able = (
        split
        for split in splits
        if all(has_mode(mode, split.backend, model, site.libraries) for mode in modes_of(split))
    )
    return next(able, splits[0]), ()


def _automatic(model: Model, site: Site, *, fits: bool) -> SplitDecision:
    """The best exact split: PipeFusion changes the picture, so that it has to be asked for."""
    why_not = _why_not(site)
    if why_not:
        return _none(why_not)
    pool = _best(_pools(site), site)
    reasons = [*_links(site, pool), *_left_out(site, pool)]
    if len(pool) * site.hosts < _FEWEST:
        return _none("no two GPUs are alike and can join a group", *reasons)
    if not fits:
        words = "the whole model does not fit on each GPU, as Ulysses and ring need it"
        return _none(words, *reasons, *_pipefusion_words(model, site, len(pool)))
    for backend in model.traits.backends:
        missing = library_problems(backend, site.libraries)
        split = None if missing else _layout(backend, pool, model, site)
        if split is None:
            reasons.append(f"not {backend}: {missing[0] if missing else _no_heads(model)}")
            continue
        reasons += _beside(split, pool, model, site)
        return SplitDecision(split, tuple(reasons), gpus=_seats(split, pool, site))
    return _none(*reasons)


def _why_not(site: Site) -> str:
    """Why nothing is split here, whatever the model; empty if something can be."""
    if site.platform != "linux":
        return f"a picture is split over processes on Linux only, not on {site.platform}"
    if site.machine.kind != "cuda":
        return f"there are no NVIDIA GPUs: one process makes each picture on {site.machine.kind}"
    if len(site.machine.gpus) * site.hosts < _FEWEST:
        return "there is one GPU"
    return ""


def _layout(backend: BackendName, pool: Sequence[int], model: Model, site: Site) -> Split | None:
    """Ulysses within what is linked by NVLink, and a ring over that; None without a divisor.

    Over PCIe alone it is Ulysses too, which sends less than a ring with more ranks: cache-dit
    measured 1.86x for Z-Image on two L20.
    """
    inside, islands = _islands(pool, site)
    over = islands * site.hosts
    can_ring = has_mode("ring", backend, model, site.libraries)
    ring = over if can_ring else 1
    most = inside if can_ring else inside * over
    if not has_mode("ulysses", backend, model, site.libraries):
        most = 1
    for ulysses in range(most, 1, -1):
        split = Split(backend, ulysses=ulysses, ring=ring)
        if split.world % site.hosts == 0 and heads_divide(split, model):
            return split
    return Split(backend, ring=inside * over) if can_ring else None


def _islands(pool: Sequence[int], site: Site) -> tuple[int, int]:
    """How many GPUs each island has, and how many islands there are on this host.

    An island is a set linked by NVLink; where there is none, all GPUs are one.
    """
    cliques = site.topology.cliques(pool)
    inside = len(cliques[0])
    if inside == 1:
        return len(pool), 1
    return inside, sum(len(clique) == inside for clique in cliques)


def _beside(split: Split, pool: Sequence[int], model: Model, site: Site) -> list[str]:
    """What else is to be said about a split that was chosen."""
    reasons = []
    used = split.world // site.hosts
    inside, islands = _islands(pool, site)
    if split.ring > 1 and split.ulysses == 1 < inside:
        reasons.append(f"a ring, as {_no_heads(model)}")
    elif split.ring > 1:
        where = "NVLink joins" if islands > 1 else "is in one host"
        reasons.append(f"Ulysses within what {where}, a ring over that")
    if used < inside * islands:
        reasons.append(f"{used} of {len(pool)} GPUs, as {_no_heads(model)} over more")
    elif used < len(pool):
        reasons.append(f"{used} of {len(pool)} GPUs, as the others have no NVLink to them")
    if has_mode("pipefusion", "xdit", model, site.libraries):
        reasons.append("PipeFusion is not chosen by itself, since it changes the picture")
    return reasons


def _pipefusion_words(model: Model, site: Site, count: int) -> list[str]:
    """What would hold a share of the model on each GPU, where the family can."""
    split = Split("xdit", pipefusion=count * site.hosts)
    if model_problems(split, model, site):
        return []
    asked = f"INLINE_PARALLEL=pipefusion={split.pipefusion}"
    return [f"{asked} would hold a share of it on each, and changes the picture a little"]


def _no_heads(model: Model) -> str:
    return f"{model.facts.heads} heads cannot be divided"


def _seats(split: Split, pool: Sequence[int], site: Site) -> tuple[int, ...]:
    """The GPUs of the ranks on a host, in their order.

    Ranks of one Ulysses group follow each other in both backends, so that what is linked by NVLink
    has to follow each other too.
    """
    ordered: list[int] = []
    rest: list[int] = []
    for clique in site.topology.cliques(pool):
        whole = len(clique) // split.ulysses * split.ulysses
        ordered += clique[:whole]
        rest += clique[whole:]
    return tuple([*ordered, *rest][: split.world // site.hosts])


def _pool_for(split: Split, site: Site) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """GPUs that are alike, enough for a split; else all, and that this is so."""
    if site.machine.kind != "cuda":
        return (), ()
    enough = [pool for pool in _pools(site) if len(pool) * site.hosts >= split.world]
    if enough:
        return _best(enough, site), ()
    return site.usable, ("the GPUs are not alike: the slowest and the smallest of them count",)


def _pools(site: Site) -> list[tuple[Gpu, ...]]:
    """The usable GPUs in sets that are alike, each with the one of most memory first."""
    usable = (gpu for gpu in site.machine.gpus if gpu.index in site.usable)
    left = sorted(usable, key=lambda gpu: (-gpu.total_bytes, gpu.index))
    found = []
    while left:
        first = left[0]
        alike = tuple(
            gpu
            for gpu in left
            if gpu.name == first.name and gpu.total_bytes >= _ALIKE * first.total_bytes
        )
        found.append(alike)
        left = [gpu for gpu in left if gpu not in alike]
    return found


def _best(pools: Sequence[tuple[Gpu, ...]], site: Site) -> tuple[int, ...]:
    """The set of most GPUs, then the best linked, then the one with most memory."""

    def worth(pool: tuple[Gpu, ...]) -> tuple[int, int, int]:
        cliques = site.topology.cliques([gpu.index for gpu in pool])
        return len(pool), len(cliques[0]), pool[0].total_bytes

    return tuple(sorted(gpu.index for gpu in max(pools, key=worth, default=())))


def _links(site: Site, gpus: Sequence[int]) -> list[str]:
    """How the GPUs are linked, where there are several."""
    return [site.topology.in_words(gpus)] if len(gpus) > 1 else []


def _left_out(site: Site, pool: Sequence[int]) -> list[str]:
    """GPUs that take no part."""
    reasons = []
    sliced = sorted(site.topology.mig)
    if sliced:
        reasons.append(f"GPU {gpus_in_words(sliced)} in MIG mode cannot join a group")
    unlike = sorted(set(site.usable) - set(pool))
    if unlike:
        reasons.append(f"GPU {gpus_in_words(unlike)} left out, as the others are not like it")
    return reasons
