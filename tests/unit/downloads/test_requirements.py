"""What is told to be there, for families that read their prompts with several text encoders."""

from __future__ import annotations

import shutil
from pathlib import Path

from inline_core.downloads.requirements import presence
from inline_core.families.flux1.family import FLUX_1
from inline_core.families.registry import open_catalog
from inline_core.settings import Settings
from tests import tiny, tiny_encoders
from tests.tiny_families import flux1


def found(folder: Path) -> dict[str, str | None]:
    catalog = open_catalog(Settings(models_dir=folder, demo_model=False))
    return {item.id: presence(item, "flux-1", catalog).found for item in FLUX_1.rules.requirements}


def test_each_text_encoder_and_tokenizer_is_looked_for_by_its_kind(tmp_path: Path) -> None:
    encoders = tmp_path / "text_encoders"
    tiny_encoders.save_clip_file(encoders / "clip_l.safetensors", flux1.clip())
    nothing = dict.fromkeys((item.id for item in FLUX_1.rules.requirements), None)
    clip = {"text_encoder": "clip_l.safetensors", "tokenizer": "clip_l.tokenizer"}
    assert found(tmp_path) == {**nothing, **clip}
    tiny_encoders.save_t5_file(encoders / "any.safetensors", flux1.t5())
    t5 = {"text_encoder_2": "any.safetensors", "tokenizer_2": "any.tokenizer"}
    assert found(tmp_path) == {**nothing, **clip, **t5}
    shutil.rmtree(encoders / "any.tokenizer")
    tiny.settle(tmp_path)
    assert found(tmp_path)["tokenizer_2"] is None
