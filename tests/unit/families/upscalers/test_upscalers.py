"""Upscalers: every spelling of a file gives the same network, and tiles the same picture."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

from inline_core.devices.placement import Placement
from inline_core.devices.policy import DevicePolicy
from inline_core.errors import InvalidParam, NotFinite, RunCancelled, RuntimeMissing
from inline_core.families.demand import OpenedFiles
from inline_core.families.leasing import Leasing
from inline_core.families.upscalers.keys import scale_of, upscaler_shape
from inline_core.families.upscalers.networks import CompactNetwork, RrdbNetwork
from inline_core.families.upscalers.runtime import Upscaler, load_upscaler
from inline_core.families.upscalers.tiling import spans, weights
from inline_core.families.upscaling import Upscalers
from inline_core.loading.component import ComponentRef, Role
from inline_core.loading.files import open_weights
from inline_core.loading.header import TensorInfo
from inline_core.loading.identify import identify
from inline_core.loading.pool import ComponentPool
from inline_core.loading.stream import LoadPlan
from inline_core.settings import Settings
from tests.unit.nodes.pictures import Pixels, furthest, scene

State = dict[str, Tensor]
WIDTH, GROWTH, BLOCKS = 8, 4, 2


@pytest.fixture(autouse=True)
def _steady() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.inference_mode():
        yield
    torch.set_num_threads(threads)


def rrdb_state(ups: int = 2, fold: int = 1, blocks: int = BLOCKS, seed: int = 0) -> State:
    """Weights of an ESRGAN under the names of BasicSR."""
    generator = torch.Generator().manual_seed(seed)
    shapes = {"conv_first": (WIDTH, 3 * fold**2), "conv_body": (WIDTH, WIDTH)}
    for block in range(blocks):
        for dense in (1, 2, 3):
            for conv in range(1, 6):
                outputs = GROWTH if conv < 5 else WIDTH
                name = f"body.{block}.rdb{dense}.conv{conv}"
                shapes[name] = (outputs, WIDTH + (conv - 1) * GROWTH)
    shapes.update({f"conv_up{index + 1}": (WIDTH, WIDTH) for index in range(ups)})
    shapes.update({"conv_hr": (WIDTH, WIDTH), "conv_last": (3, WIDTH)})
    state: State = {}
    for name, (outputs, inputs) in shapes.items():
        size = (outputs, inputs, 3, 3)
        state[f"{name}.weight"] = torch.randn(size, generator=generator) * (1.3 / inputs / 9) ** 0.5
        state[f"{name}.bias"] = torch.randn(outputs, generator=generator) * 0.05
    return state


def compact_state(scale: int, convolutions: int = 3) -> State:
    generator = torch.Generator().manual_seed(4)
    state: State = {}
    sizes = [(WIDTH, 3), *[(WIDTH, WIDTH)] * convolutions, (3 * scale**2, WIDTH)]
    for index, (outputs, inputs) in enumerate(sizes):
        state[f"body.{2 * index}.weight"] = torch.randn(outputs, inputs, 3, 3, generator=generator) / (3 * inputs**0.5)  # fmt: skip
        state[f"body.{2 * index}.bias"] = torch.randn(outputs, generator=generator) * 0.05
        if index <= convolutions:
            state[f"body.{2 * index + 1}.weight"] = torch.rand(outputs, generator=generator)
    return state


def old_spelling(state: State, ups: int) -> State:
    """The names of the first ESRGAN code: `model.` and places in a sequence."""
    tops = {"conv_first": 0, **{f"conv_up{n + 1}": 3 * (n + 1) for n in range(ups)}}
    tops["conv_hr"] = 3 * ups + 2
    tops["conv_last"] = 3 * ups + 4
    count = len({name.split(".")[1] for name in state if name.startswith("body.")})
    found: State = {}
    for name, value in state.items():
        owner, leaf = name.rsplit(".", 1)
        block = re.fullmatch(r"body\.(\d+)\.rdb(\d)\.conv(\d)", owner)
        if block:
            owner = f"model.1.sub.{block[1]}.RDB{block[2]}.conv{block[3]}.0"
        elif owner == "conv_body":
            owner = f"model.1.sub.{count}"
        else:
            owner = f"model.{tops[owner]}"
        found[f"{owner}.{leaf}"] = value
    return found


def release_spelling(state: State) -> State:
    """The names of ESRGAN's own release."""
    pairs = (("conv_body", "trunk_conv"), ("body.", "RRDB_trunk."), (".rdb", ".RDB"), ("conv_up", "upconv"), ("conv_hr", "HRconv"))  # fmt: skip
    found: State = {}
    for name, value in state.items():
        for old, new in pairs:
            name = name.replace(old, new)  # noqa: PLW2901
        found[name] = value
    return found


def by_hand(state: State, pixels: Pixels, ups: int, fold: int) -> Pixels:
    """ESRGAN's generator written out, on BasicSR's names."""

    def conv(name: str, x: Tensor) -> Tensor:
        return functional.conv2d(x, state[f"{name}.weight"], state[f"{name}.bias"], padding=1)

    def lively(x: Tensor) -> Tensor:
        return torch.where(x > 0, x, x * 0.2)

    x = torch.from_numpy(pixels.astype(np.float32) / 255).permute(2, 0, 1)[None]
    if fold > 1:
        x = functional.pixel_unshuffle(x, fold)
    first = conv("conv_first", x)
    body = first
    for block in range(BLOCKS):
        entered = body
        for dense in (1, 2, 3):
            name = f"body.{block}.rdb{dense}.conv"
            seen = [body]
            seen.extend(lively(conv(f"{name}{n}", torch.cat(seen, 1))) for n in range(1, 5))
            body = body + 0.2 * conv(f"{name}5", torch.cat(seen, 1))
        body = entered + 0.2 * body
    x = first + conv("conv_body", body)
    for index in range(ups):
        x = lively(conv(f"conv_up{index + 1}", x.repeat_interleave(2, 2).repeat_interleave(2, 3)))
    x = conv("conv_last", lively(conv("conv_hr", x)))
    large: Pixels = (x[0].permute(1, 2, 0).clamp(0, 1) * 255).numpy()
    return large


def load(state: State, folder: Path) -> Upscaler:
    file = folder / "upscaler.safetensors"
    save_file({name: value.contiguous() for name, value in state.items()}, file)
    files = open_weights(file, file.name)
    plan = LoadPlan(files, identify(files.headers), Placement("cpu", "float32"), file.name, lambda: None)  # fmt: skip
    return load_upscaler(plan)


def upscale(loaded: Upscaler, pixels: Pixels, tile: int = 512, overlap: int = 32) -> Pixels:
    return loaded.upscale(pixels, tile=tile, overlap=overlap, report=lambda done, count: None)


@pytest.mark.parametrize(("ups", "fold"), [(2, 1), (1, 1), (0, 1), (3, 1), (2, 2), (2, 4)])
def test_all_spellings_give_the_network_that_is_written_out(
    ups: int, fold: int, tmp_path: Path
) -> None:
    state, pixels = rrdb_state(ups, fold), scene(24, 20).pixels
    wanted = by_hand(state, pixels, ups, fold)
    assert wanted.std() > 10
    for spelled in (state, old_spelling(state, ups), release_spelling(state)):
        loaded = load(spelled, tmp_path)
        assert loaded.scale == 2**ups // fold
        assert furthest(upscale(loaded, pixels), wanted) <= 0.51


def test_sides_that_cannot_be_folded_are_filled_up(tmp_path: Path) -> None:
    loaded = load(rrdb_state(2, 4), tmp_path)
    assert upscale(loaded, scene(23, 18).pixels).shape == (18, 23, 3)
    whole = upscale(loaded, scene(24, 20).pixels)
    part = upscale(loaded, np.ascontiguousarray(scene(24, 20).pixels[:, :23]))
    assert furthest(part[:, :1], whole[:, :1]) <= 1


@pytest.mark.parametrize("scale", [1, 2, 4])
def test_the_compact_network(scale: int, tmp_path: Path) -> None:
    state, pixels = compact_state(scale), scene(24, 20).pixels
    x = base = torch.from_numpy(pixels.astype(np.float32) / 255).permute(2, 0, 1)[None]
    for index in range(0, 9, 2):
        x = functional.conv2d(x, state[f"body.{index}.weight"], state[f"body.{index}.bias"], padding=1)  # fmt: skip
        slope = state.get(f"body.{index + 1}.weight")
        if slope is not None:
            x = torch.where(x > 0, x, x * slope[:, None, None])
    x = functional.pixel_shuffle(x, scale) + base.repeat_interleave(scale, 2).repeat_interleave(scale, 3)  # fmt: skip
    wanted = (x[0].permute(1, 2, 0).clamp(0, 1) * 255).numpy()
    loaded = load(state, tmp_path)
    assert loaded.scale == scale
    assert furthest(upscale(loaded, pixels), wanted) <= 0.51


def published(state_names: dict[str, tuple[int, ...]]) -> dict[str, TensorInfo]:
    return {name: TensorInfo("F32", shape, 0, 0) for name, shape in state_names.items()}


def test_the_published_files_are_known() -> None:
    """Names and shapes of RealESRGAN_x4plus, x2plus, 4x_foolhardy-like files, animevideov3."""

    def rrdb(inputs: int) -> dict[str, tuple[int, ...]]:
        shapes: dict[str, tuple[int, ...]] = {"conv_first": (64, inputs), "conv_last": (3, 64)}
        for name in ("conv_body", "conv_up1", "conv_up2", "conv_hr"):
            shapes[name] = (64, 64)
        for block in range(23):
            for dense in (1, 2, 3):
                for conv in range(1, 6):
                    outputs = 64 if conv == 5 else 32
                    shapes[f"body.{block}.rdb{dense}.conv{conv}"] = (outputs, 64 + 32 * (conv - 1))
        weights_ = {f"{name}.weight": (*shape, 3, 3) for name, shape in shapes.items()}
        return weights_ | {f"{name}.bias": shape[:1] for name, shape in shapes.items()}

    for inputs, scale in ((3, 4), (12, 2)):
        shape = upscaler_shape(published(rrdb(inputs)))
        assert shape is not None
        assert len(shape.sources) == 702
        assert (shape.scale, shape.blocks, shape.width, shape.growth) == (scale, 23, 64, 32)
        with torch.device("meta"):
            network = RrdbNetwork(shape)
        assert {n: tuple(p.shape) for n, p in network.named_parameters()} == {
            module: rrdb(inputs)[name] for module, name in shape.sources.items()
        }
    row: dict[str, tuple[int, ...]] = {"body.34.weight": (48, 64, 3, 3), "body.34.bias": (48,)}
    for index in range(17):
        row[f"body.{2 * index}.weight"] = (64, 64 if index else 3, 3, 3)
        row[f"body.{2 * index}.bias"] = row[f"body.{2 * index + 1}.weight"] = (64,)
    shape = upscaler_shape(published(row))
    assert shape is not None
    assert (shape.kind, shape.scale, shape.blocks) == ("compact", 4, 16)
    with torch.device("meta"):
        assert set(dict(CompactNetwork(shape).named_parameters())) == row.keys()
    for broken in ("conv_hr.weight", "body.0.rdb1.conv1.weight"):
        other = {n: s for n, s in rrdb(3).items() if n != broken} | {"attention.weight": (3, 3)}
        assert upscaler_shape(published(other)) is None


@pytest.mark.parametrize("size", [(70, 50), (64, 100), (33, 33), (200, 20)])
def test_tiles_give_the_picture_that_the_whole_gives(size: tuple[int, int], tmp_path: Path) -> None:
    loaded = load(rrdb_state(1, blocks=1), tmp_path)
    pixels = scene(*size).pixels
    whole = upscale(loaded, pixels, tile=512)
    tiled = upscale(loaded, pixels, tile=64, overlap=32)
    assert furthest(tiled, whole) <= 1
    assert furthest(upscale(loaded, pixels, tile=32, overlap=0), whole) > 1


@pytest.mark.parametrize("length", [1, 31, 32, 33, 63, 64, 65, 100, 1000])
@pytest.mark.parametrize("overlap", [0, 8, 16])
def test_tiles_cover_everything_once(length: int, overlap: int) -> None:
    parts = spans(length, 32, overlap)
    total = np.zeros(length)
    for (start, end), weight in zip(parts, weights(parts, overlap), strict=True):
        assert 0 <= start < end <= length
        assert end - start == min(32, length)
        assert (weight >= 0).all()
        total[start:end] += weight
    assert np.abs(total - 1).max() < 1e-6
    assert all(a[1] - b[0] >= overlap for a, b in itertools.pairwise(parts))
    assert len(parts) == max(1, -(-(length - overlap) // (32 - overlap)))


def test_a_cancelled_run_stops_between_tiles(tmp_path: Path) -> None:
    loaded = load(rrdb_state(0), tmp_path)
    seen: list[tuple[int, int]] = []

    def report(done: int, count: int) -> None:
        seen.append((done, count))
        if done == 2:
            raise RunCancelled

    with pytest.raises(RunCancelled):
        loaded.upscale(scene(90, 60).pixels, tile=32, overlap=8, report=report)
    assert seen == [(1, 12), (2, 12)]


def test_nan_makes_no_picture(tmp_path: Path) -> None:
    state = rrdb_state(1)
    state["conv_last.bias"][0] = float("nan")
    with pytest.raises(NotFinite, match=r"upscaler\.safetensors"):
        upscale(load(state, tmp_path), scene(20, 20).pixels)


def test_other_architectures_ask_for_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "spandrel", None)
    with pytest.raises(RuntimeMissing, match=r"inline-core\[upscale\]") as caught:
        load({"layers.0.weight": torch.zeros(3, 3)}, tmp_path)
    assert caught.value.details == {"missing": ["spandrel"]}


def test_leased_once_and_refused_when_too_large(tmp_path: Path) -> None:
    file = tmp_path / "x4.safetensors"
    save_file(rrdb_state(2), file)
    files, opened = open_weights(file, file.name), OpenedFiles()
    reference = ComponentRef(Role.UPSCALER, "upscaler", "", file.name, file, files.stamp)
    policy = DevicePolicy(Settings(data_dir=tmp_path / "data", models_dir=tmp_path, threads=1))
    pool = ComponentPool(policy.room)
    upscalers, pixels = Upscalers(Leasing(opened, pool, policy)), scene(40, 30).pixels
    for _ in range(2):
        large = upscalers.upscale(
            reference, pixels, lambda: None, tile=512, overlap=32, report=lambda done, count: None
        )
    assert large.shape == (120, 160, 3)
    assert (pool.stats()["hits"], pool.stats()["misses"]) == (1, 1)
    assert scale_of(opened.open(reference).files.headers) == 4
    wide = np.broadcast_to(np.zeros(3, np.uint8), (4, 5000, 3))
    with pytest.raises(InvalidParam, match=r"4 times as large.*20000x16"):
        upscalers.upscale(
            reference, wide, lambda: None, tile=512, overlap=32, report=lambda done, count: None
        )
