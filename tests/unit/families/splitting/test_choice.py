"""Which jobs are split, and what is said of the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from inline_core.devices.policy import DevicePolicy
from inline_core.errors import InvalidRequest
from inline_core.families.registry import open_catalog
from inline_core.families.splitting.choice import SplitChooser
from inline_core.loading.component import Role
from inline_core.sampling.job import SampleJob
from inline_core.sampling.patches import StepCache
from inline_core.sampling.values import Conditioning, Latent
from inline_core.settings import Settings
from tests.backends.splitting.models import FAMILIES, split_models


class Asked:
    """A chooser with a setting, and jobs to ask it about."""

    def __init__(self, parallel: str) -> None:
        self.settings = Settings(
            models_dir=split_models(), demo_model=False, profile="cpu", parallel=parallel
        )
        self.chooser = SplitChooser(DevicePolicy(self.settings))
        self.catalog = open_catalog(self.settings)

    def job(self, family: str, **changes: Any) -> SampleJob:
        model = self.catalog.find(Role.DIFFUSION_MODEL, "", family=family)
        prompt = Conditioning("a red circle", self.catalog.companions(model)[1])
        frames = 5 if family == "wan" else 1
        values: dict[str, Any] = {"latent": Latent(64, 64, frames=frames)}
        return SampleJob(
            model=model,
            positive=prompt,
            steps=4,
            cfg=1.0,
            sampler="euler",
            scheduler="simple",
            seed=1,
            **(values | changes),
        )


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_with_its_preferred_backend(family: str) -> None:
    asked = Asked("ulysses=2")
    choice = asked.chooser.choose(asked.job(family))
    assert choice.split is not None
    backend = "diffusers" if family == "qwen-image" else "xdit"
    assert choice.split.key == f"{backend}:ulysses=2"
    assert choice.gpus == ()


def test_off_says_nothing_has_been_asked_for() -> None:
    asked = Asked("off")
    assert asked.chooser.choose(asked.job("z-image")).split is None


@pytest.mark.parametrize(
    ("parallel", "family", "words"),
    [
        ("pipefusion=2", "z-image", "no PipeFusion"),
        ("pipefusion=2", "flux-2", "PipeFusion"),
        ("ring=2", "krea-2", "ring"),
        ("backend=xdit,ulysses=3", "flux-1", "4 heads"),
        ("backend=diffusers,ring=2", "wan", "ring"),
    ],
)
def test_what_cannot_be_had_is_refused_with_an_alternative(
    parallel: str, family: str, words: str
) -> None:
    asked = Asked(parallel)
    with pytest.raises(InvalidRequest, match=words) as caught:
        asked.chooser.choose(asked.job(family))
    assert "INLINE_PARALLEL" in caught.value.message
    assert "ulysses=" in caught.value.message


def test_a_step_cache_is_not_split() -> None:
    asked = Asked("ulysses=2")
    job = asked.job("z-image")
    cached = replace(job, model=replace(job.model, patches=(StepCache(0.2),)))
    choice = asked.chooser.choose(cached)
    assert (choice.split, choice.reason[:9]) == (None, "each rank")
    off = replace(job, model=replace(job.model, patches=(StepCache(0.0),)))
    assert asked.chooser.choose(off).split is not None


@pytest.mark.parametrize(("height", "fits"), [(64, True), (96, True), (80, False), (48, False)])
def test_pipefusion_cuts_the_picture_in_even_pieces(height: int, fits: bool) -> None:
    asked = Asked("pipefusion=2")
    choice = asked.chooser.choose(asked.job("flux-1", latent=Latent(64, height)))
    assert (choice.split is not None) is fits
    assert fits or f"cuts {height} pixels" in choice.reason
