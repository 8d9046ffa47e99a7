"""The official templates that this was built with: read, flattened, converted, run.

Others of the package are left for acceptance.  The shares are those of templates all of whose
families diffusers has a pipeline for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from inline_core.graph.spec import NodeSpec
from inline_core.graph.validate import check_graph
from inline_core.importers.comfyui.converting import Conversion, convert
from inline_core.importers.comfyui.exporting import export_prompt
from inline_core.importers.comfyui.flattening import FlatWorkflow, flatten
from inline_core.importers.comfyui.reading import read_workflow
from inline_core.nodes.registry import node_specs
from inline_core.settings import Settings
from tests.lengths import at_length
from tests.live import live_server
from tests.templates import small, stand_ins

NAMES = json.loads(Path(__file__).with_name("dev_templates.json").read_text("utf-8"))
WITH_A_PIPELINE: list[str] = NAMES["with_a_pipeline"]
LEAST_CONVERTED = 0.80
LEAST_RUN = 0.90
LEAST_BACK = 0.95


def template(name: str) -> bytes:
    folder = files("comfyui_workflow_templates_json") / "templates"
    return (folder / f"{name}.json").read_bytes()


@cache
def specs() -> Mapping[str, NodeSpec]:
    return node_specs()


@cache
def flat(name: str) -> FlatWorkflow:
    return flatten(read_workflow(template(name)))


@cache
def conversion(name: str) -> Conversion:
    return convert(flat(name), specs(), lambda _, __: True)


def is_converted(name: str) -> bool:
    found = conversion(name)
    return not found.unsupported and bool(found.targets)


CONVERTED = [name for name in WITH_A_PIPELINE if is_converted(name)]


@pytest.mark.parametrize("name", NAMES["dev"])
def test_every_template_is_read_and_each_of_its_nodes_accounted_for(name: str) -> None:
    workflow, found = flat(name), conversion(name)
    assert workflow.prompt
    assert [node.node_id for node in found.nodes] == list(workflow.prompt)
    for node in found.nodes:
        assert node.nodes or node.reason, node
    saved = {str(node["id"]) for node in json.loads(template(name))["nodes"]}
    told = {line.node_id for line in workflow.report} | {node.node_id for node in found.nodes}
    # What is in no line is inside of something that is: a subgraph's node starts with its id.
    assert saved <= told | {place.partition(":")[0] for place in told if place}


def test_most_are_converted() -> None:
    assert len(CONVERTED) >= LEAST_CONVERTED * len(WITH_A_PIPELINE)


@pytest.mark.parametrize("name", CONVERTED)
def test_what_is_converted_is_a_valid_graph(name: str) -> None:
    found = conversion(name)
    names = [file.name for file in found.files]
    check_graph(found.graph, found.targets, specs(), lambda _: names, strict=True)


def test_most_go_back_to_the_prompt_that_they_came_from() -> None:
    back = 0
    for name in CONVERTED:
        export = export_prompt(json.loads(json.dumps(conversion(name).graph)))
        back += export.prompt == flat(name).prompt and not export.left_out
    assert back >= LEAST_BACK * len(CONVERTED)


def outcome(name: str, folder: Path) -> str:
    """`ok` if a template runs twice with the same bytes, else why it does not."""
    found = conversion(name)
    try:
        stand_ins.lay_out(found.files, folder / "models")
    except stand_ins.NoStandIn as missing:
        return f"no tiny model of the family of {missing}"
    small.save_inputs(found.graph, folder / "data/input")
    wanted = Settings(
        data_dir=folder / "data",
        models_dir=folder / "models",
        demo_model=False,
        threads=1,
        walkers=1,
    )
    body: dict[str, Any] = {"graph": small.shrunk(found.graph), "targets": list(found.targets)}
    made = []
    with live_server(wanted) as server:
        for force in (False, True):
            reply = server.http.post("/v1/runs", json={**body, "force": force})
            if reply.status_code != 201:
                return reply.text
            run = server.wait_until_final(reply.json()["runId"])
            if run["status"] != "done":
                return json.dumps(run["error"])
            takes = [take for take in run["takes"] if take["nodeId"] in body["targets"]]
            made.append(
                [server.http.get(f"/v1/takes/{take['id']}/bytes").content for take in takes]
            )
    return "ok" if made[0] == made[1] else "not the same bytes twice"


# One of each kind: text to picture, edit, fill, ControlNet-like, video, sound, no model at all.
FEW = [
    "image_z_image_turbo",
    "flux_fill_inpaint_example",
    "image_qwen_image_edit_2511",
    "sdxl_simple_example",
    "video_wan2_2_14B_t2v",
    "video_ltx2_i2v",
    "audio_ace_step1_5_xl_turbo",
    "basic_mask_operations_and_compositing",
]


@pytest.mark.timeout(1800)
def test_what_is_converted_runs(tmp_path: Path) -> None:
    names = at_length(CONVERTED, FEW)
    found = {name: outcome(name, tmp_path / name) for name in names}
    failed = {name: why for name, why in found.items() if why != "ok"}
    assert len(names) - len(failed) >= LEAST_RUN * len(names), failed
