"""What can be wrong with a split, in words, as far as it is known before a group is started.

What depends on one picture (its size, its prompt) is not asked here.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from inline_core.devices.budget import Machine
from inline_core.devices.split import (
    MODE_WORDS,
    MODES,
    BackendName,
    Mode,
    ModelFacts,
    Split,
    SplitTraits,
)
from inline_core.devices.topology import Topology, gpus_in_words

Libraries = Mapping[str, str | None]

# Ranks of one machine without GPUs, which share its cores: as many as are any use in a test.
CPU_RANKS: Final = 16
INSTALL: Final = 'pip install "inline-core[parallel]"'
_NEEDS: Final[Mapping[BackendName, tuple[str, ...]]] = MappingProxyType(
    {"xdit": ("torch", "diffusers", "xfuser", "yunchang", "distvae"),
     "diffusers": ("torch", "diffusers")}
)  # fmt: skip
_LIBRARY: Final[Mapping[BackendName, str]] = MappingProxyType(
    {"xdit": "xfuser", "diffusers": "diffusers"}
)
_OLDEST_XFUSER: Final = "0.6"
_MOST_CFG: Final = 2


@dataclass(frozen=True, slots=True)
class Defect:
    """Something that a release of a backend cannot do for a model although it says so.

    `up_to` is the last version that was found to have it, so that a later one is tried.
    """

    up_to: str
    reason: str


# xfuser 0.7.0, read and run on 29 Nov 2026.
BROKEN: Final[Mapping[tuple[BackendName, Mode, str], Defect]] = MappingProxyType(
    {
        ("xdit", "pipefusion", "FLUX.2"): Defect(
            "0.7.0", "fails, as its asynchronous part updates the KV cache twice"
        ),
        ("xdit", "pipefusion", "Z-Image"): Defect("0.7.0", "does not exist"),
    }
)


@dataclass(frozen=True, slots=True)
class Site:
    """Where a group would run: the hardware of this host, and how many hosts are like it.

    `libraries` maps names of packages to the installed version, or None; `platform` is
    `sys.platform`.
    """

    machine: Machine
    topology: Topology
    libraries: Libraries
    hosts: int = 1
    platform: str = "linux"

    @property
    def usable(self) -> tuple[int, ...]:
        """The GPUs of this host that can join a group."""
        gpus = (gpu.index for gpu in self.machine.gpus)
        return tuple(index for index in gpus if index not in self.topology.mig)

    @property
    def ranks(self) -> int:
        """Most ranks that there can be, on all hosts."""
        here = {"cpu": CPU_RANKS, "cuda": len(self.usable)}.get(self.machine.kind, 1)
        return here * self.hosts


@dataclass(frozen=True, slots=True)
class Model:
    """A model: what its family can be split by, and its own numbers."""

    traits: SplitTraits
    facts: ModelFacts


def installed_libraries() -> dict[str, str | None]:
    """Versions of the libraries that groups need; None for one that is not installed."""
    names = {name for needed in _NEEDS.values() for name in needed}
    return {name: _version_of(name) for name in sorted(names)}


def _version_of(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def site_problems(world: int, asked: str, site: Site) -> list[str]:
    """What is wrong with so many ranks here, whatever the model; `asked` are the degrees."""
    problems = []
    if site.platform != "linux":
        problems.append(f"a picture is split over processes on Linux only, not on {site.platform}")
    if world > site.ranks:
        problems.append(f"{asked} needs {_ranks(world)}, and {_ranks_there(site)}")
    if world % site.hosts:
        problems.append(
            f"{_ranks(world)} cannot be divided evenly over {site.hosts} hosts: change the degrees "
            "or INLINE_PARALLEL_HOSTS"
        )
    return problems


def _ranks(count: int) -> str:
    return f"{count} {'rank' if count == 1 else 'ranks'}"


def _ranks_there(site: Site) -> str:
    """`there are 2 GPUs`, with what keeps others out."""
    if site.machine.kind == "cpu":
        return f"there are at most {site.ranks} on a processor"
    count = len(site.usable) if site.machine.kind == "cuda" else 1
    words = f"there {'is' if count == 1 else 'are'} {count} {'GPU' if count == 1 else 'GPUs'}"
    sliced = sorted(site.topology.mig)
    if sliced:
        words += f" that can join a group (GPU {gpus_in_words(sliced)} in MIG mode cannot)"
    return f"{words} on each of {site.hosts} hosts" if site.hosts > 1 else words


@dataclass(frozen=True, slots=True)
class _Problem:
    """Something wrong; `remedy` is what to do, None where another split is to be looked for."""

    text: str
    remedy: str | None = None


def model_problems(split: Split, model: Model, site: Site) -> list[str]:
    """What is wrong with a split of this model by its backend, in the order of the degrees."""
    found = library_problems(split.backend, site.libraries)
    for problem in _problems(split, model, site):
        remedy = _instead(split, model, site) if problem.remedy is None else problem.remedy
        found.append(f"{problem.text}: {remedy}" if remedy else problem.text)
    return found


def _problems(split: Split, model: Model, site: Site) -> list[_Problem]:
    return [one for mode in modes_of(split) for one in _mode_problems(mode, split, model, site)]


def library_problems(backend: BackendName, libraries: Libraries) -> list[str]:
    """What is not installed that a backend needs, and what is too old."""
    missing = [name for name in _NEEDS[backend] if libraries.get(name) is None]
    if missing:
        are = "is" if len(missing) == 1 else "are"
        return [f"{', '.join(missing)} {are} not installed: {INSTALL}"]
    version = libraries.get("xfuser") or ""
    if backend == "xdit" and _is_older(version, _OLDEST_XFUSER):
        return [f"xfuser {version} is too old, {_OLDEST_XFUSER} is needed: {INSTALL}"]
    return []


def has_mode(mode: Mode, backend: BackendName, model: Model, libraries: Libraries) -> bool:
    """Whether a backend can do something for a model, in the version that is installed."""
    return mode in model.traits.modes(backend) and _defect(mode, backend, model, libraries) is None


def _defect(mode: Mode, backend: BackendName, model: Model, libraries: Libraries) -> Defect | None:
    defect = BROKEN.get((backend, mode, model.facts.family))
    version = libraries.get(_LIBRARY[backend])
    if defect is None or version is None:
        return defect
    return None if _is_older(defect.up_to, version) else defect


def _mode_problems(mode: Mode, split: Split, model: Model, site: Site) -> Sequence[_Problem]:
    """What is wrong with one degree of a split."""
    family, words = model.facts.family, MODE_WORDS[mode]
    release = _release(split.backend, site.libraries)
    if mode not in model.traits.modes(split.backend):
        able = [
            name
            for name in model.traits.backends
            if name != split.backend and has_mode(mode, name, model, site.libraries)
        ]
        remedy = f"use backend={able[0]}" if able else None
        return [_Problem(f"{family} has no {words} in {release}", remedy)]
    defect = _defect(mode, split.backend, model, site.libraries)
    if defect is not None:
        return [_Problem(f"in {release} the {words} of {family} {defect.reason}")]
    return _RULES[mode](split, model, site)


def _release(backend: BackendName, libraries: Libraries) -> str:
    version = libraries.get(_LIBRARY[backend])
    return f"{_LIBRARY[backend]} {version}" if version else _LIBRARY[backend]


def _instead(split: Split, model: Model, site: Site) -> str:
    """`use ulysses=4`: the first right split over as many ranks, maybe fewer; else empty."""
    for world in range(split.world, 1, -1):
        for one in _exact_splits(split.backend, world):
            if one != split and not _problems(one, model, site):
                return f"use {degrees_in_words(one)}"
    return ""


def _exact_splits(backend: BackendName, world: int) -> Iterator[Split]:
    """Every division of the tokens over so many ranks; the most Ulysses first."""
    for ulysses in range(world, 0, -1):
        if world % ulysses == 0:
            yield Split(backend, ulysses=ulysses, ring=world // ulysses)


def modes_of(split: Split) -> tuple[Mode, ...]:
    """The modes that a split uses."""
    return tuple(mode for mode in MODES if split.degree(mode) > 1)


def degrees_in_words(split: Split) -> str:
    """`ulysses=2,ring=2`, as it is written in the setting."""
    return ",".join(f"{mode}={split.degree(mode)}" for mode in modes_of(split))


def heads_divide(split: Split, model: Model) -> bool:
    """Whether the heads of the model can be divided by Ulysses, as they are or padded."""
    heads = model.facts.heads
    padded = split.backend == "xdit" and model.traits.pads_heads
    # `ulysses_anything` of diffusers, which it does not have beside a ring.
    uneven = split.backend == "diffusers" and split.ring == 1
    return heads % split.ulysses == 0 or padded or uneven


def _ulysses_problems(split: Split, model: Model, _: Site) -> Sequence[_Problem]:
    if heads_divide(split, model):
        return ()
    facts = model.facts
    had = f"{facts.label} has {facts.heads} heads"
    return [_Problem(f"{had}, which cannot be divided over ulysses={split.ulysses}")]


def _ring_problems(split: Split, _: Model, site: Site) -> Sequence[_Problem]:
    if split.backend != "diffusers" or site.machine.kind != "cpu":
        return ()
    # `Native attention does not support return_lse=True`, and flash attention needs a GPU.
    return [_Problem("diffusers has no ring on a processor, as attention gives no LSE there")]


def _pipefusion_problems(split: Split, model: Model, _: Site) -> Sequence[_Problem]:
    facts, stages = model.facts, split.pipefusion
    problems = []
    if split.warmup < 1:
        problems.append(_Problem("PipeFusion without warm-up has no KV cache", "use warmup=1"))
    # Stages get as many layers as the first one, so that the last one may get none.
    each = -(-facts.layers // stages)
    if facts.layers and (stages - 1) * each >= facts.layers:
        had = f"{facts.label} has {facts.layers} layers"
        problems.append(_Problem(f"{had}, too few for the stages of pipefusion={stages}"))
    if facts.variant in model.traits.few_steps:
        name = f"{facts.family} {facts.variant}"
        problems.append(_Problem(f"{name} takes so few steps that PipeFusion is no use"))
    if split.cfg > 1:
        problems.append(_Problem("PipeFusion cannot be had together with cfg=2"))
    return problems


def _cfg_problems(split: Split, model: Model, _: Site) -> Sequence[_Problem]:
    facts = model.facts
    problems = []
    if split.cfg > _MOST_CFG:
        text = f"guidance has two estimates, which cannot be divided over cfg={split.cfg}"
        problems.append(_Problem(text, "cfg can be 1 or 2"))
    if facts.variant in model.traits.without_cfg:
        name = f"{facts.family} {facts.variant}"
        text = f"{name} takes no classifier-free guidance, so that cfg has nothing to divide"
        problems.append(_Problem(text))
    return problems


_Rule = Callable[[Split, Model, Site], Sequence[_Problem]]
_RULES: Final[Mapping[Mode, _Rule]] = MappingProxyType(
    {
        "ulysses": _ulysses_problems,
        "ring": _ring_problems,
        "pipefusion": _pipefusion_problems,
        "cfg": _cfg_problems,
    }
)


def _numbers(version: str) -> tuple[int, ...]:
    """`0.7.0.dev1` -> (0, 7, 0)."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in match.group().split(".")) if match else ()


def _is_older(version: str, than: str) -> bool:
    one, other = _numbers(version), _numbers(than)
    length = max(len(one), len(other))
    return one + (0,) * (length - len(one)) < other + (0,) * (length - len(other))
