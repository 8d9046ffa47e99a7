"""What `INLINE_PARALLEL` asks for: `auto`, `off`, or degrees such as `ulysses=2,ring=2`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from inline_core.devices.split import BACKENDS, MODES, BackendName, Mode, Split
from inline_core.errors import InvalidRequest, shown_value

_NUMBERS: Final = (*MODES, "warmup", "patches")
_OF_PIPEFUSION: Final = ("warmup", "patches")
_MOST_DIGITS: Final = 6


@dataclass(frozen=True, slots=True)
class Wanted:
    """`INLINE_PARALLEL` as it was given; with `auto` nothing else is said.

    `degrees` are those that were named, `backend` None if none was.  `warmup` and `patches` are
    those of `Split`.
    """

    auto: bool
    backend: BackendName | None = None
    degrees: Mapping[Mode, int] = field(default_factory=dict)
    warmup: int = 1
    patches: int = 0

    @property
    def world(self) -> int:
        """How many ranks the degrees take."""
        return math.prod(self.degrees.values())

    def split_with(self, backend: BackendName) -> Split:
        """The degrees as a split by one backend."""
        degrees = {mode: self.degrees.get(mode, 1) for mode in MODES}
        return Split(backend, **degrees, warmup=self.warmup, patches=self.patches)

    @property
    def in_words(self) -> str:
        """`auto`, or the degrees as they are written in the setting."""
        if self.auto:
            return "auto"
        words = [f"{mode}={degree}" for mode, degree in self.degrees.items()]
        if self.degrees.get("pipefusion", 1) > 1:
            words.append(f"warmup={self.warmup}")
            words += [f"patches={self.patches}"] if self.patches else []
        words += [f"backend={self.backend}"] if self.backend else []
        return ",".join(words)


AUTO: Final = Wanted(auto=True)


def wanted_split(setting: str, *, multi_gpu: bool) -> Wanted | None:
    """What the setting asks for; None where nothing shall be split.

    An empty setting is `auto` with `--multi-gpu`, and off without it.
    Raises: InvalidRequest that names the setting and everything that is wrong with it.
    """
    text = setting.strip().lower()
    if text in {"", "off"}:
        return AUTO if multi_gpu and not text else None
    if text == "auto":
        return AUTO
    parts = [part.strip() for part in text.split(",") if part.strip()]
    given, problems = _named(parts)
    backend = given.pop("backend", None)
    chosen = next((name for name in BACKENDS if name == backend), None)
    if backend is not None and chosen is None:
        problems.append(f"backend={backend}: there are {' and '.join(BACKENDS)}")
    numbers, wrong = _numbers(given)
    problems += wrong
    problems += _left_out(given, numbers)
    if not problems and not numbers:
        problems.append(f"no degree is named ({', '.join(MODES)})")
    if problems:
        message = (
            f"INLINE_PARALLEL={shown_value(setting)} cannot be used: {'; '.join(problems)}. "
            "Use auto, off, or degrees such as ulysses=2,ring=2"
        )
        raise InvalidRequest(message)
    degrees = {mode: numbers[mode] for mode in MODES if mode in numbers}
    return Wanted(
        auto=False,
        backend=chosen,
        degrees=MappingProxyType(degrees),
        warmup=numbers.get("warmup", 1),
        patches=numbers.get("patches", 0),
    )


def _named(parts: list[str]) -> tuple[dict[str, str], list[str]]:
    """Values by name, and what is wrong with the names."""
    given: dict[str, str] = {}
    problems = []
    for part in parts:
        name, _, value = (piece.strip() for piece in part.partition("="))
        if name not in {*_NUMBERS, "backend"}:
            problems.append(f"{shown_value(part)} is none of {', '.join(_NUMBERS)}, backend")
        elif name in given:
            problems.append(f"{name} is given twice")
        else:
            given[name] = value
    return given, problems


def _numbers(given: Mapping[str, str]) -> tuple[dict[str, int], list[str]]:
    """The numbers, and those that are none or too small."""
    numbers: dict[str, int] = {}
    problems = []
    for name, value in given.items():
        smallest = 0 if name == "patches" else 1
        if not re.fullmatch(rf"-?[0-9]{{1,{_MOST_DIGITS}}}", value):
            problems.append(f"{name}={value}: not a whole number")
        elif int(value) >= smallest:
            numbers[name] = int(value)
        elif name == "warmup":
            problems.append(
                f"a warm-up of {value} steps cannot be, as the KV cache would be empty: "
                "use warmup=1 or more"
            )
        else:
            problems.append(f"{name}={value}: must be {smallest} or more")
    return numbers, problems


def _left_out(given: Mapping[str, str], numbers: Mapping[str, int]) -> list[str]:
    """What means nothing without something else."""
    without = [name for name in _OF_PIPEFUSION if name in given]
    if without and ("pipefusion" not in given or numbers.get("pipefusion") == 1):
        return [f"{' and '.join(without)} without pipefusion=2 or more"]
    return []
