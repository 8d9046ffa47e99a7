"""Workflows over which other converters tripped, each with the prompt that ComfyUI's page makes."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as Pillow
from PIL.PngImagePlugin import PngInfo

from inline_core.importers.comfyui.flattening import flatten
from inline_core.importers.comfyui.node_table import builtin_table
from inline_core.importers.comfyui.reading import read_workflow
from inline_core.importers.comfyui.report import Severity
from tests.unit.importers.comfyui.workflows import bare

CASES = sorted((Path(__file__).parent / "cases").glob("*.json"))


def _bytes(given: dict[str, Any]) -> bytes:
    texts = given.get("png_text_chunks")
    if texts is None:
        return json.dumps(given).encode()
    info = PngInfo()
    for key, text in texts.items():
        info.add_text(key, text)
    buffer = io.BytesIO()
    Pillow.new("L", (4, 4)).save(buffer, "PNG", pnginfo=info)
    return buffer.getvalue()


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_prompt_of_a_known_trap(path: Path) -> None:
    case = json.loads(path.read_text("utf-8"))
    table = builtin_table().over(case.get("object_info", {}))
    result = flatten(read_workflow(_bytes(case["input"])), table=table)
    assert bare(result) == case["expected_prompt"]
    assert not [line for line in result.report if line.severity is Severity.ERROR]
    # What is not in the prompt has a line.
    named = {line.node_id for line in result.report}
    for node in case["input"].get("nodes", ()):
        assert str(node["id"]) in result.prompt or str(node["id"]) in named


def test_all_cases_are_there() -> None:
    assert len(CASES) == 14
