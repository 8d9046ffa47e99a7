"""Widget values by name: order, extra slots, dynamic combos, defaults, files that do not fit."""

from __future__ import annotations

from typing import Any

import pytest
from make_comfyui_table import compact

from inline_core.importers.comfyui.node_table import builtin_entries, builtin_table, owns_widget
from inline_core.importers.comfyui.report import Reason
from tests.unit.importers.comfyui.workflows import flat, inputs, node, places, workflow


def one(
    kind: str, values: Any, info: dict[str, Any] | None = None, **more: Any
) -> tuple[dict[str, Any], dict[Reason, list[str | None]]]:
    """The inputs of a single node, and the input names of the report's lines by reason."""
    result = flat(workflow([node(1, kind, values, **more)], []), info)
    lines: dict[Reason, list[str | None]] = {}
    for line in result.report:
        lines.setdefault(line.reason, []).append(line.input)
    return inputs(result, "1"), lines


def test_the_control_slot_is_passed_over_only_where_it_is() -> None:
    values = [7, "randomize", 20, 8.0, "euler", "normal", 1.0]
    found, lines = one("KSampler", values)
    assert found == {
        "seed": 7,
        "steps": 20,
        "cfg": 8.0,
        "sampler_name": "euler",
        "scheduler": "normal",
        "denoise": 1.0,
    }
    assert len(lines[Reason.INTERFACE_VALUE]) == 1
    assert one("KSampler", [values[0], *values[2:]]) == (found, {})


def test_a_dynamic_combo_brings_the_widgets_of_its_choice() -> None:
    found, _ = one("ResizeImageMaskNode", ["scale by multiplier", 0.5, "area"])
    assert found == {
        "resize_type": "scale by multiplier",
        "resize_type.multiplier": 0.5,
        "scale_method": "area",
    }
    found, _ = one("ResizeImageMaskNode", ["scale dimensions", 640, 480, "center", "lanczos"])
    assert found["resize_type.height"] == 480
    assert found["scale_method"] == "lanczos"
    # The child `match` of this choice is a socket.
    found, _ = one("ResizeImageMaskNode", ["match size", "disabled", "area"])
    assert found["resize_type.crop"] == "disabled"


def test_nested_dynamic_combos() -> None:
    found, _ = one("SaveVideo", ["video/x", "mp4", "h264", "re-encode", 18.0])
    assert found == {
        "filename_prefix": "video/x",
        "format": "mp4",
        "format.codec": "h264",
        "format.codec.encoding": "re-encode",
        "format.codec.encoding.crf": 18.0,
    }


def test_sockets_of_autogrow_and_dynamic_combos_keep_their_dotted_names() -> None:
    nodes = [
        node(1, "LoadImage", ["x", "image"], outputs=["IMAGE", "MASK"]),
        node(
            2,
            "BatchImagesNode",
            [],
            inputs=[("images.image0", "IMAGE", 1), ("images.image1", "IMAGE", 2)],
        ),
        node(
            3,
            "ResizeImageMaskNode",
            ["match size", "center", "area"],
            inputs=[("input", "IMAGE", 3), ("resize_type.match", "IMAGE", 4)],
        ),
    ]
    links = [[n, 1, 0, 2 + (n > 2), 0, "IMAGE"] for n in range(1, 5)]
    result = flat(workflow(nodes, links))
    assert inputs(result, "2") == {"images.image0": ["1", 0], "images.image1": ["1", 0]}
    assert inputs(result, "3")["resize_type.match"] == ["1", 0]


@pytest.mark.parametrize(
    ("kind", "values", "wanted"),
    [
        ("LoadImage", ["x.png", "image"], {"image": "x.png"}),
        ("LoadAudio", ["x.flac", None, None], {"audio": "x.flac"}),
        ("PreviewAny", ["shown before"], {}),
    ],
)
def test_values_of_the_page_are_not_sent(kind: str, values: list[Any], wanted: Any) -> None:
    found, lines = one(kind, values)
    assert found == wanted
    assert set(lines) == {Reason.INTERFACE_VALUE}
    assert len(lines[Reason.INTERFACE_VALUE]) == len(values) - len(wanted)


def test_a_choice_keeps_its_list_since_its_place_is_an_output() -> None:
    wanted = {"choice": "b", "index": 1, "option1": "a", "option2": "b", "option3": ""}
    assert one("CustomCombo", list(wanted.values())) == (wanted, {})
    named = node(1, "CustomCombo", list(wanted.values()), widgets_values_named=wanted)
    assert inputs(flat(workflow([named], [])), "1") == wanted
    assert one("CustomCombo", ["b"]) == ({"choice": "b"}, {})


def test_an_input_newer_than_the_file_gets_its_default() -> None:
    found, lines = one("ModelSamplingAuraFlow", [3.0])
    assert found == {"shift": 3.0, "sampling": "flow"}
    assert lines == {Reason.DEFAULT_VALUE: ["sampling"]}


def test_names_come_from_the_names_and_values_from_the_list() -> None:
    named = {"seed": 1, "control_after_generate": "fixed", "steps": 9}
    found, lines = one("KSampler", [2, "fixed", 10], widgets_values_named=named)
    assert (found["seed"], found["steps"], found["cfg"]) == (2, 10, 8.0)
    assert "control_after_generate" not in found
    assert Reason.INTERFACE_VALUE in lines
    found, lines = one("KSampler", [2], widgets_values_named=named)
    assert found["seed"] == 1
    assert Reason.VALUE_COUNT in lines


def test_an_object_of_values_is_used_as_it_is() -> None:
    found, lines = one(
        "VHS_VideoCombine", {"frame_rate": 8, "format": "video/h264-mp4"}, inputs=[("x", "Y", None)]
    )
    assert found == {"frame_rate": 8, "format": "video/h264-mp4"}
    assert not lines


def test_an_unknown_type_is_named_by_its_slots_or_not_at_all() -> None:
    slots = [("seed", "INT", None, "seed"), ("name", "STRING", None, "name")]
    found, _ = one("Custom", [5, "randomize", "x"], inputs=slots)
    assert found == {"seed": 5, "name": "x"}
    found, lines = one("Custom", [5, "x", 1.0], inputs=slots)
    assert found == {}
    assert set(lines) == {Reason.UNNAMED_VALUES}


INFO = {
    "Buttons": {
        "input": {
            "required": {"a": ["INT", {}], "b": [["x", "y"]], "c": ["STRING", {"default": "c"}]},
            "optional": {"d": ["BOOLEAN", {"default": True}]},
        },
        "input_order": {"required": ["b", "a", "c"]},
    }
}


def test_an_unnamed_button_in_between_is_told_by_its_type() -> None:
    assert one("Buttons", ["x", 3, "t", False], INFO)[0] == {"b": "x", "a": 3, "c": "t", "d": False}
    found, lines = one("Buttons", ["x", {"button": 1}, 3, "t", False], INFO)
    assert found == {"b": "x", "a": 3, "c": "t", "d": False}
    assert Reason.VALUE_COUNT in lines
    # An input that came into the middle later.
    found, lines = one("Buttons", ["x", "t", False], INFO)
    assert found == {"b": "x", "a": 0, "c": "t", "d": False}
    assert lines[Reason.DEFAULT_VALUE] == ["a"]


def test_values_left_over_are_told() -> None:
    _, lines = one("Buttons", ["x", 3, "t", False, "more"], INFO)
    assert lines == {Reason.VALUE_COUNT: [None]}


def test_lists_are_wrapped_so_that_they_are_no_links() -> None:
    info = {
        "Boxes": {
            "input": {
                "required": {
                    "a": ["COLORS", {"socketless": True}],
                    "b": ["CURVE", {"socketless": True}],
                }
            }
        }
    }
    found, _ = one("Boxes", [["1", 0], [[0, 0], [1, 1]]], info)
    assert found == {
        "a": {"__value__": ["1", 0]},
        "b": {"__type__": "CURVE", "__value__": [[0, 0], [1, 1]]},
    }


def test_a_number_that_json_does_not_have() -> None:
    result = flat(workflow([node(1, "ImageScaleBy", ["area", float("nan")])], []))
    assert inputs(result, "1") == {"upscale_method": "area"}
    assert places(result, Reason.NOT_FINITE) == [None, "1"]


def test_rules_of_widgets() -> None:
    assert owns_widget("INT", {})
    assert owns_widget(["a", "b"], {})
    assert not owns_widget("INT", {"forceInput": True})
    assert owns_widget("FLOAT,INT", {"widgetType": "FLOAT"})
    assert not owns_widget("FLOAT,INT,BOOLEAN", {})
    assert owns_widget("COLOR", {"socketless": True})
    assert not owns_widget("MODEL", {})


def test_the_shipped_table_is_read_whole() -> None:
    table = builtin_table()
    assert len(builtin_entries()) == 342
    for name in builtin_entries():
        spec = table.find(name)
        assert spec is not None
        assert all(entry.options for entry in spec.inputs if "DYNAMICCOMBO" in entry.type)
    assert table.find("Unheard of") is None
    assert table.over({"KSampler": {"input": 3}}).find("KSampler") is None


def test_the_script_keeps_what_decides_over_widgets() -> None:
    combo = {"type": "COMBO", "options": ["a", "b"], "widget": True, "advanced": True}
    odd = {"type": "LOAD_3D", "widget": True}
    files = {"type": "COMBO", "options": "FILES", "widget": True}
    outputs = [["MODEL", "MODEL", False]]
    facts = {
        "N": {
            "required": {"x": combo, "y": odd, "z": files},
            "optional": {},
            "outputs": outputs,
            "output_node": False,
            "templates": 3,
        },
        "Unknown": {"templates": 1},
    }
    assert compact(facts) == {
        "N": {
            "input": {
                "required": {
                    "x": ["COMBO", {"advanced": True, "options": ["a", "b"]}],
                    "y": ["LOAD_3D", {"widget": True}],
                    "z": ["COMBO"],
                }
            },
            "outputs": outputs,
        }
    }


def test_control_words_are_values_where_no_control_can_be() -> None:
    info = {
        "Words": {
            "input": {
                "required": {
                    "count": ["INT", {}],
                    "mode": [["fixed", "free"]],
                    "seed": ["INT", {"control_after_generate": True}],
                    "name": ["STRING", {}],
                }
            }
        }
    }
    wanted = {"count": 1, "mode": "fixed", "seed": 2, "name": "x"}
    assert one("Words", [1, "fixed", 2, "x"], info)[0] == wanted
    assert one("Words", [1, "fixed", 2, "increment", "x"], info)[0] == wanted


def test_a_slot_with_a_name_of_its_own_feeds_its_widget() -> None:
    nodes = [
        node(1, "PrimitiveInt", [3, "fixed"], outputs=["INT"]),
        node(2, "EmptyLatentImage", [8, 8, 1], inputs=[("Breite", "INT", 1, "width")]),
    ]
    result = flat(workflow(nodes, [[1, 1, 0, 2, 0, "INT"]]))
    assert inputs(result, "2") == {"width": ["1", 0], "height": 8, "batch_size": 1}
