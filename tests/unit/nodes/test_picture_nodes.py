"""What holds for every node that makes pictures or masks of pictures or masks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from inline_core.graph.ports import PortKind
from inline_core.graph.spec import NodeSpec
from inline_core.media.values import Image, ImageBatch, Mask
from inline_core.nodes.registry import node_specs
from tests.unit.nodes.pictures import context, cutout, scene, spots

_TAKEN = {PortKind.IMAGE, PortKind.IMAGES, PortKind.MASK}
TOOLS = [
    spec
    for spec in node_specs().values()
    if spec.type.startswith(("image/", "mask/"))
    and not spec.needs
    and {port.kind for port in (*spec.inputs, *spec.outputs)} <= _TAKEN
]
SIZE = (530, 520)  # the default of a crop is 512


def values_of(spec: NodeSpec, image: Image | ImageBatch, mask: Mask) -> Mapping[str, Any]:
    kinds = {PortKind.IMAGE: image, PortKind.IMAGES: [image], PortKind.MASK: mask}
    return {port.id: kinds[port.kind] for port in spec.inputs if port.required}


def arrays_of(values: Mapping[str, Any]) -> Iterator[np.ndarray[Any, Any]]:
    for value in values.values():
        if isinstance(value, Mask):
            yield value.values
        else:
            images = value.images if isinstance(value, ImageBatch) else [value]
            yield from (image.pixels for image in images)


def pictures() -> dict[str, tuple[Image, Mask]]:
    # As an estimate makes them: no memory of their own, not to be written to.
    black = np.broadcast_to(np.zeros(3, np.uint8), (SIZE[1], SIZE[0], 3))
    nowhere = np.broadcast_to(np.zeros((), np.uint8), (SIZE[1], SIZE[0]))
    return {
        "opaque": (scene(*SIZE), spots(*SIZE)),
        "alpha": (cutout(*SIZE), spots(*SIZE)),
        "planned": (Image(black), Mask(nowhere)),
    }


def test_all_of_them_are_here() -> None:
    assert len(TOOLS) >= 40
    assert {"image/resize", "image/canny", "mask/grow"} <= {spec.type for spec in TOOLS}


@pytest.mark.parametrize("kind", ["opaque", "alpha", "planned"])
@pytest.mark.parametrize("spec", TOOLS, ids=lambda spec: spec.type)
def test_inputs_are_left_alone_and_outputs_are_well_formed(spec: NodeSpec, kind: str) -> None:
    image, mask = pictures()[kind]
    before = image.pixels.copy(), mask.values.copy()
    params = {param.key: param.default for param in spec.params}
    result = spec.run(context(), values_of(spec, image, mask), params)
    assert np.array_equal(image.pixels, before[0])
    assert np.array_equal(mask.values, before[1])
    for port in spec.outputs:
        assert isinstance(result[port.id], Mask if port.kind is PortKind.MASK else Image | ImageBatch)  # fmt: skip
    for array in arrays_of(result):
        assert array.dtype == np.uint8
        assert array.ndim == 2 or array.shape[2] in {3, 4}
        assert min(array.shape[:2]) > 0


# Of these a batch is not what its pictures are one by one.
_OF_MANY = {
    "image/from-batch",
    "image/repeat",
    "image/reverse",
    "image/join",
    "image/colour-match",
    "image/solid",
    "mask/to-image",
}
MAPPED = [spec for spec in TOOLS if spec.output_kind and spec.type not in _OF_MANY]


@pytest.mark.parametrize("spec", MAPPED, ids=lambda spec: spec.type)
def test_a_batch_is_what_each_of_its_pictures_is(spec: NodeSpec) -> None:
    first, second = scene(*SIZE), scene(*SIZE, shade=200)
    params = {param.key: param.default for param in spec.params}

    def run(image: Image | ImageBatch) -> list[np.ndarray[Any, Any]]:
        result = spec.run(context(), values_of(spec, image, spots(*SIZE)), params)
        return list(arrays_of({"image": result["image"]}))

    found = run(ImageBatch((first, second)))
    wanted = [*run(first), *run(second)]
    assert len(found) == 2
    assert all(np.array_equal(*pair) for pair in zip(found, wanted, strict=True))
