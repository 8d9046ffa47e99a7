"""Params that say which part of a video or of a sound is meant."""

from __future__ import annotations

from typing import Annotated, Final

from inline_core.nodes.base import Param

LONGEST_S: Final = 86_400.0
Start = Annotated[float, Param(label="Start (s)", min=0, max=LONGEST_S, step=0.01, on_face=True)]
Duration = Annotated[
    float,
    Param(
        label="Duration (s)",
        min=0,
        max=LONGEST_S,
        step=0.01,
        on_face=True,
        doc="0 takes everything to the end.",
    ),
]
