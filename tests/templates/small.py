"""A converted template made small: 64 pixels, two steps, few frames, pictures of its own."""

from __future__ import annotations

import wave
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from PIL import Image

from inline_core.media.values import Clip
from inline_core.media.video import encode_mp4

SIDE: Final = 64
FRAMES: Final = 9
STEPS: Final = 2
_SIDES: Final = ("width", "height", "side")
_VALUES: Final = {
    "steps": STEPS,
    "megapixels": 4 * SIDE * SIDE / 1024**2,
    "frames": FRAMES,
    "seconds": 1.0,
    "max_tokens": 6,
    "batch": 1,
}


def shrunk(graph: Mapping[str, Any]) -> dict[str, Any]:
    """The graph with small sizes; what is wired is computed from these."""
    nodes = [{**node, "params": dict(_small(node))} for node in graph["nodes"]]
    return {**graph, "nodes": [_of_any_size(node) for node in nodes]}


def _of_any_size(node: dict[str, Any]) -> dict[str, Any]:
    """A node that makes pictures of about a megapixel gives small ones instead."""
    if node["type"] == "image/fibo-size":
        return {**node, "params": {"width": SIDE, "height": SIDE}}
    if node["type"] != "image/kontext-size":
        return node
    return {**node, "type": "image/resize", "params": {"width": SIDE, "height": SIDE}}


def _small(node: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in node["params"].items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if key in _SIDES and number:
            yield key, min(SIDE, value)
        elif key in _VALUES and number:
            yield key, min(value, _VALUES[key])
        elif key == "start_step" and number:
            yield key, min(value, 1)
        elif key == "end_step" and number:
            last = value >= node["params"].get("steps", 0)
            yield key, 10_000 if last else 1
        elif key == "layers":
            yield key, "0"
        elif key == "sigmas" and isinstance(value, str):
            parts = value.replace(",", " ").split()
            yield key, ", ".join([*parts[:STEPS], parts[-1]])
        else:
            yield key, value


def input_names(graph: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The (kind, name) of every file of the input folder that a graph reads."""
    for node in graph["nodes"]:
        asset = node["params"].get("asset")
        if isinstance(asset, Mapping) and asset.get("ref") == "input":
            yield node["type"].partition("/")[2], asset["name"]


def save_inputs(graph: Mapping[str, Any], folder: Path) -> None:
    """A small picture, video or sound for each of them."""
    for kind, name in input_names(graph):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        _MAKERS[kind](target)


def _pixels(seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)


def _picture(target: Path) -> None:
    Image.fromarray(_pixels()).save(target, "PNG")


def _sound(target: Path) -> None:
    with wave.open(str(target), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(44_100)
        times = np.arange(44_100) / 44_100
        tone = (np.sin(times * 2 * np.pi * 440) * 8000).astype("<i2")
        file.writeframes(np.repeat(tone[:, None], 2, axis=1).tobytes())


def _video(target: Path) -> None:
    frames = np.stack([_pixels(seed) for seed in range(FRAMES)])
    encode_mp4(Clip(frames, 8.0), target)


_MAKERS: Final = {"image": _picture, "mask": _picture, "video": _video, "audio": _sound}
