"""What families share: an encoder is loaded once, prompts are read in each family's own way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import torch

from inline_core.devices.budget import GIB, Demand, Machine
from inline_core.devices.ladder import Plan
from inline_core.devices.policy import DevicePolicy
from inline_core.families import registry
from inline_core.families.z_image.family import Z_IMAGE
from inline_core.loading.component import Role
from inline_core.settings import Settings
from tests import tiny
from tests.unit.engine.test_render import Context, Studio


@pytest.fixture
def studio(tmp_path: Path) -> Iterator[Studio]:
    torch.set_num_threads(1)
    folder = tiny.save_models(tmp_path)
    tiny.save(tiny.transformer(seed=3).state_dict(), folder / "diffusion_models/zz.safetensors")
    tiny.settle(folder)
    made = Studio(folder)
    yield made
    assert made.render.close(10)


def test_two_families_with_one_encoder_load_it_once(
    studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = replace(Z_IMAGE, rules=replace(Z_IMAGE.rules, name="other-image"))
    both = MappingProxyType({"z-image": Z_IMAGE, "other-image": other})
    monkeypatch.setattr(registry, "FAMILIES", both)
    first = studio.job()
    found = studio.catalog.find(Role.DIFFUSION_MODEL, "zz.safetensors", family="z-image")
    second = replace(first, model=replace(found, family="other-image"))
    one, two = (studio.render.sample(job, Context()) for job in (first, second))
    assert (one.provenance["family"], two.provenance["family"]) == ("z-image", "other-image")
    stats = studio.render.stats()
    names = [item["name"] for item in stats["pool"]["held"]]
    assert sorted(names) == ["ae.safetensors", "qwen", "z.safetensors", "zz.safetensors"]
    assert stats["pool"]["misses"] == 4
    # Each family reads the same words in its own way, so they are encoded for each.
    assert (stats["prompts"]["misses"], stats["prompts"]["hits"]) == (2, 0)
    studio.render.sample(first, Context())
    assert studio.render.stats()["prompts"]["hits"] == 1


class Shrinking(DevicePolicy):
    """A machine whose memory is halved once."""

    small = False

    def plan(self, demand: Demand) -> Plan:
        plan = super().plan(demand)
        if not self.small:
            return plan
        return replace(plan, rung="int8", model=replace(plan.model, quantization="int8"))


def test_a_change_of_plan_is_told_and_shown(studio: Studio) -> None:
    policy = Shrinking(Settings(profile="cpu"), Machine("cpu", "x", 8 * GIB))
    made = Studio(studio.settings.models_dir, policy)
    try:
        first: Any = made.render.sample(made.job(), Context())
        assert not any("is now" in text for text in first.warnings)
        assert made.render.stats()["plans"]["z.safetensors"]["plan"] == "resident"
        policy.small = True
        second: Any = made.render.sample(made.job(), Context())
        assert any(
            "is now int8 (float32, int8), was resident (float32, none)" in text
            for text in second.warnings
        )
        assert second.provenance["placement"]["plan"] == "int8"
        assert made.render.stats()["plans"]["z.safetensors"]["quantization"] == "int8"
        third: Any = made.render.sample(made.job(), Context())
        assert not any("is now" in text for text in third.warnings)
    finally:
        made.render.close()
