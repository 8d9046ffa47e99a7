"""All families in one server, one after the other: nothing grows, nothing stays, every take is as alone.

At full length it is 300 runs, which took two minutes when this was written.
"""

from __future__ import annotations

import gc
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from inline_core.loading.component import Role
from inline_core.settings import Settings
from tests import tiny
from tests.lengths import at_length
from tests.live import LiveServer, live_server
from tests.tiny_families import families
from tests.unit.server.test_family_runs import one_click, run

RUNS = at_length(300, 24)
FAMILIES = [module for module in families() if module.RUNS]
# They come with the VAE that is picked.
SOUND = {Role.AUDIO_VAE, Role.VOCODER, Role.VIDEO_DECODER}
CATEGORIES = {"model": "diffusion_models", "vae": "vae", "text_encoder": "text_encoders"}
# Fragments of the allocator and caches of the libraries; a leak of one model a run is far more.
GROWTH_BYTES = 300 * 1024 * 1024


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """Each family's files in subfolders of their own."""
    folder = tmp_path_factory.mktemp("families")
    for module in FAMILIES:
        alone = folder / "alone"
        module.save_models(alone)
        # An all-in-one file has its tokenizer beside it here, as those of others are near.
        if (alone / "checkpoints").is_dir():
            words = next((alone / "text_encoders").glob("*.tokenizer"))
            shutil.copytree(words, alone / "checkpoints/tokenizer")
        for category in sorted(alone.iterdir()):
            shutil.move(category, folder / f"models/{category.name}/{module.NAME}")
        shutil.rmtree(alone)
    tiny.settle(folder / "models")
    wanted = Settings(
        data_dir=folder / "data",
        models_dir=folder / "models",
        demo_model=False,
        threads=1,
        walkers=1,
    )
    with pytest.MonkeyPatch.context() as patch, live_server(wanted) as running:
        for module in FAMILIES:
            for name, value in getattr(module, "SMALLER", ()):
                patch.setattr(name, value)
        yield running


def named(server: LiveServer, module: Any) -> dict[str, str]:
    """The files of a family by the params that pick them, where there is one of a kind."""
    found: dict[str, str] = {}
    for param, category in CATEGORIES.items():
        categories = (category, "checkpoints") if param == "model" else (category,)
        files = [file for name in categories for file in server.services.catalog.files(name)]
        mine = [
            file.name
            for file in files
            if file.name.startswith(f"{module.NAME}/")
            and file.identity is not None
            and file.identity.role not in SOUND
        ]
        for index, name in enumerate(sorted(mine)):
            found[param if index == 0 else f"{param}_{index + 1}"] = name
    return found


def hashes(server: LiveServer, module: Any) -> list[str]:
    nodes, target = one_click(server, module.RUNS[0])
    known = {param["key"] for param in descriptor(server, nodes[-1]["type"])["params"]}
    picked = {key: name for key, name in named(server, module).items() if key in known}
    nodes[-1]["params"] |= picked
    takes = run(server, (nodes, target), force=True)["takes"]
    return [take["hash"] for take in takes]


def descriptor(server: LiveServer, node_type: str) -> dict[str, Any]:
    found: dict[str, Any] = server.http.get(f"/v1/models/{node_type}").json()
    return found


def resident() -> int:
    gc.collect()
    return int(psutil.Process().memory_info().rss)


@pytest.mark.timeout(1200)
def test_swapping_through_all_families(server: LiveServer) -> None:
    draw = random.Random(5)
    alone = {module.NAME: hashes(server, module) for module in FAMILIES}
    assert len({first for first, *_ in alone.values()}) == len(FAMILIES)
    server.services.render.free()
    before = resident()
    for _ in range(RUNS - len(FAMILIES)):
        module = draw.choice(FAMILIES)
        assert hashes(server, module) == alone[module.NAME], module.NAME
        if draw.random() < 0.2:
            server.services.render.free()
    stats = server.services.render.stats()["pool"]
    assert all(item["leases"] == 0 for item in stats["held"])
    freed = server.services.render.free()
    assert freed["bytesAfter"] == 0
    assert resident() - before < GROWTH_BYTES
    left = list(Path(server.settings.data_dir).rglob("*.tmp"))
    assert not left
