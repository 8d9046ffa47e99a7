"""The files of a job, and whether another host has the same ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inline_core.errors import InlineError
from inline_core.loading.component import ComponentRef, LoraRef
from inline_core.loading.files import open_weights
from inline_core.sampling.job import SampleJob


def files_of(job: SampleJob) -> list[tuple[Path, str, str, str]]:
    """Path, name, part and stamp of every file of weights that a job names, each once."""
    found: dict[tuple[Path, str], tuple[Path, str, str, str]] = {}
    _collect(job, found)
    return list(found.values())


def differing(files: list[tuple[Path, str, str, str]]) -> list[str]:
    """What is wrong here with files that another host has, in words."""
    problems = []
    for path, name, part, stamp in files:
        try:
            found = open_weights(path, name, part).stamp
        except InlineError as error:
            problems.append(error.message)
            continue
        if found != stamp:
            problems.append(
                f"{path} is not the file that the server has (its size, time or header differs): "
                "copy it again, with its time, as `rsync -a` does"
            )
    return problems


def _collect(value: Any, found: dict[tuple[Path, str], tuple[Path, str, str, str]]) -> None:
    if isinstance(value, ComponentRef):
        found[value.path, value.part] = (value.path, value.name, value.part, value.stamp)
    elif isinstance(value, LoraRef):
        found[value.path, ""] = (value.path, value.name, "", value.stamp)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            _collect(getattr(value, field.name), found)
    elif isinstance(value, Mapping):
        for item in value.values():
            _collect(item, found)
    elif isinstance(value, tuple | list):
        for item in value:
            _collect(item, found)
