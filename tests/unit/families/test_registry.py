from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from inline_core.errors import ModelFileInvalid
from inline_core.families.registry import (
    FAMILIES,
    family_decoding,
    family_of,
    family_reading,
    model_roots,
)
from inline_core.loading.component import ComponentRef, Role
from inline_core.sampling.family import ScheduleFor
from inline_core.sampling.sigmas.tables import FlowTable
from inline_core.settings import Settings

WITHOUT_TORCH = """
import importlib, sys
for name in ("torch", "diffusers", "transformers", "safetensors", "numpy"):
    sys.modules[name] = None
for name in ("engine.render", "families.registry", "loading.catalog", "loading.identify",
             "loading.header", "sampling.sigmas.schedules", "sampling.solvers",
             "sampling.job", "devices.policy"):
    importlib.import_module("inline_core." + name)
from inline_core.engine.render import TorchRender, missing_libraries
from inline_core.errors import RuntimeMissing
from inline_core.families.registry import open_catalog
from inline_core.settings import Settings
assert "torch" in missing_libraries()
settings = Settings(demo_model=False)
render = TorchRender(settings, open_catalog(settings))
render.warm_up()
assert render.stats()["device"]["kind"] == "cpu"
try:
    render.encode_text(None, None)
except RuntimeMissing as error:
    assert 'pip install "inline-core[runtime]"' in error.message
else:
    raise AssertionError
freed = render.free()
assert freed["bytesBefore"] == freed["bytesAfter"] == 0
assert render.close()
"""


def reference(role: Role, family: str) -> ComponentRef:
    return ComponentRef(role, family, "", "x", Path("x"), "s")


def test_everything_but_the_render_works_without_torch() -> None:
    subprocess.run([sys.executable, "-c", WITHOUT_TORCH], check=True, timeout=50)


def test_families_are_found_by_their_parts() -> None:
    z_image = FAMILIES["z-image"]
    assert family_of(reference(Role.DIFFUSION_MODEL, "z-image")) is z_image
    assert family_reading(reference(Role.TEXT_ENCODER, "qwen3")) is z_image
    assert family_reading(reference(Role.TEXT_ENCODER, "qwen2.5")) is None
    assert family_decoding(reference(Role.VAE, "autoencoder-kl"), "flux") is z_image
    with pytest.raises(ModelFileInvalid, match=r"only Z-Image, FLUX\.2"):
        family_of(reference(Role.DIFFUSION_MODEL, "omnigen-2"))
    with pytest.raises(ModelFileInvalid, match="does not read latents"):
        family_decoding(reference(Role.VAE, "autoencoder-kl"), "wan")


def test_roots_in_order(tmp_path: Path) -> None:
    settings = Settings(
        models_dir=tmp_path / "a", extra_models_dirs=[tmp_path / "b"], demo_model=False
    )
    assert [(root.path.name, root.source) for root in model_roots(settings)] == [
        ("a", "models"),
        ("b", "extra"),
    ]


def test_defaults_of_the_variants() -> None:
    family = FAMILIES["z-image"]
    assert family.rules.defaults["turbo"] == {
        "width": 1024,
        "height": 1024,
        "steps": 8,
        "guidance": 0.0,
        "shift": 3.0,
    }
    assert family.table(ScheduleFor()) == FlowTable(3.0)
    assert (family.space.scaling, family.space.shift) == (0.3611, 0.1159)
