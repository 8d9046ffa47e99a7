"""Write the node table of the ComfyUI importer: `python scripts/make_comfyui_table.py TABLE.json`.

TABLE.json lists facts of node types (name -> required, optional, outputs, ...).  The result has the
form of ComfyUI's `/object_info`; lists of files are left out, as they are those of a machine.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from inline_core.importers.comfyui.node_table import DYNAMIC_COMBO, owns_widget  # noqa: E402

TARGET = ROOT / "inline_core" / "importers" / "comfyui" / "node_table.json"
_KEPT = (
    "default",
    "min",
    "max",
    "step",
    "multiline",
    "advanced",
    "lazy",
    "template",
    "control_after_generate",
    "image_upload",
    "video_upload",
    "audio_upload",
    "dynamicPrompts",
    "socketless",
    "widgetType",
    "forceInput",
    "hidden",
)


def compact(nodes: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of all node types whose inputs are known."""
    return {name: _entry(entry) for name, entry in nodes.items() if "required" in entry}


def _entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    kept = ("outputs", "hidden", "output_node", "is_input_list", "module")
    return {"input": _groups(entry)} | {key: entry[key] for key in kept if entry.get(key)}


def _groups(entry: Mapping[str, Any]) -> dict[str, Any]:
    groups = {}
    for part in ("required", "optional"):
        inputs = {name: _input(facts) for name, facts in entry.get(part, {}).items()}
        if inputs:
            groups[part] = inputs
    return groups


def _input(facts: Mapping[str, Any]) -> list[Any]:
    kind = facts["type"]
    options: dict[str, Any] = {key: facts[key] for key in _KEPT if key in facts}
    choices = facts.get("options", [])
    if kind == DYNAMIC_COMBO:
        options["options"] = [
            {"key": choice["key"], "inputs": _groups(choice["inputs"])} for choice in choices
        ]
    elif isinstance(choices, list) and choices:
        options["options"] = choices
    if owns_widget(kind, options) != facts["widget"]:
        options["widget"] = facts["widget"]
    return [kind, options] if options else [kind]


def main() -> None:
    """Read the table named on the command line and write the compact one."""
    nodes = json.loads(Path(sys.argv[1]).read_text("utf-8"))["nodes"]
    lines = (
        f"{json.dumps(name)}:{json.dumps(entry, separators=(',', ':'))}"
        for name, entry in sorted(compact(nodes).items())
    )
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    TARGET.write_text(text, "utf-8")
    print(f"{TARGET.relative_to(ROOT)}: {len(text)} bytes")


if __name__ == "__main__":
    main()
