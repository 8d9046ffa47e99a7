"""Switches, constants, arithmetic and conversions of values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from inline_core.importers.comfyui.mapping.step import Entry

ENTRIES: Final[Mapping[str, Entry]] = {}
