from __future__ import annotations

import shutil
from pathlib import Path

from inline_core.families.registry import FAMILIES
from inline_core.loading.catalog import Catalog
from inline_core.loading.component import Role
from inline_core.loading.scan import ModelRoot
from tests import tiny

RULES = {name: family.rules for name, family in FAMILIES.items()}


def chosen(folder: Path, *names: str) -> tuple[str, str]:
    """The VAE that Z-Image gets (a FLUX VAE) with these in models/vae, and what is doubted."""
    vae = tiny.save_models(folder) / "vae/ae.safetensors"
    for name in names:
        (vae.parent / name).parent.mkdir(exist_ok=True)
        shutil.copy(vae, vae.parent / name)
    vae.unlink()
    tiny.settle(folder)
    catalog = Catalog([ModelRoot(folder, "models")], RULES)
    model = catalog.find(Role.DIFFUSION_MODEL, "z.safetensors")
    found = catalog.companion(Role.VAE, model)
    return found.name, catalog.doubt(model, found)


def test_the_one_named_for_the_family(tmp_path: Path) -> None:
    names = ("a_sd3_vae.safetensors", "b_other.safetensors", "c_FLUX_vae.safetensors")
    assert chosen(tmp_path, *names) == ("c_FLUX_vae.safetensors", "")


def test_a_short_word_stands_alone(tmp_path: Path) -> None:
    # "aesthetic" is not "ae".
    names = ("aesthetic.safetensors", "z-ae.safetensors")
    assert chosen(tmp_path, *names) == ("z-ae.safetensors", "")


def test_the_only_one_is_taken(tmp_path: Path) -> None:
    assert chosen(tmp_path, "mine.safetensors") == ("mine.safetensors", "")


def test_the_only_one_is_named_for_another_family(tmp_path: Path) -> None:
    name, doubt = chosen(tmp_path, "sd3_vae.safetensors")
    assert name == "sd3_vae.safetensors"
    assert "sd3_vae.safetensors fits, but its name says Stable Diffusion 3" in doubt
    assert "add the VAE of Z-Image" in doubt


def test_several_that_tell_nothing(tmp_path: Path) -> None:
    name, doubt = chosen(tmp_path, "one.safetensors", "two.safetensors", "sd3_vae.safetensors")
    assert name == "one.safetensors"
    assert "two.safetensors" in doubt
