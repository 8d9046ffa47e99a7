"""ControlNets of FLUX.1 against diffusers' pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch
from diffusers import FluxControlNetModel, FluxControlNetPipeline

from inline_core.loading.component import Role
from inline_core.media.values import Image
from inline_core.sampling.values import Control, Latent
from tests import tiny
from tests.backends.conftest import Bench, make_bench
from tests.reference import generator, last_latents
from tests.tiny_families import flux1

PIXELS: Final = np.random.default_rng(5).integers(0, 255, (64, 96, 3), dtype=np.uint8)
PICTURE: Final = torch.from_numpy(PIXELS).permute(2, 0, 1)[None] / 127.5 - 1


def controlnet(**changes: Any) -> FluxControlNetModel:
    """A ControlNet whose outputs move the picture."""
    torch.manual_seed(3)
    config = {name: value for name, value in flux1.TRANSFORMER.items() if name != "out_channels"}
    model = FluxControlNetModel(**{**config, "num_layers": 1, "num_single_layers": 1, **changes})
    tiny.randomise(model, 0.2)
    return model.eval()


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder: Path = tmp_path_factory.mktemp("flux-control")
    flux1.save_models(folder)
    for name, made in {
        "both": controlnet(),
        "double": controlnet(num_layers=2, num_single_layers=0),
        "union": controlnet(num_mode=10),
    }.items():
        tiny.save(made.state_dict(), folder / f"controlnet/{name}.safetensors")
    tiny.settle(folder)
    running = make_bench(folder)
    yield running
    assert running.close()


def job(bench: Bench, prompt: str = "a red circle", **changes: Any) -> Any:
    values = {"family": "flux-1", "latent": Latent(96, 64), "cfg": 1.0, **changes}
    made = bench.job(prompt, **values)
    return replace(made, positive=replace(made.positive, guidance=3.5))


def controlled(found: Any, bench: Bench, name: str, **changes: Any) -> Any:
    network = bench.catalog.find(Role.CONTROLNET, f"{name}.safetensors")
    control = Control(network, Image(PIXELS), **changes)
    positive = replace(found.positive, controls=(*found.positive.controls, control))
    return replace(found, positive=positive)


@pytest.mark.parametrize("name", ["both", "double"])
def test_the_latents_are_those_of_the_pipeline(
    bench: Bench, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Theirs draws the latents of the control picture; ours are the mean.
    monkeypatch.setattr(
        "diffusers.models.autoencoders.vae.DiagonalGaussianDistribution.sample",
        lambda self, generator=None: self.mean,
    )
    layers: dict[str, int] = {} if name == "both" else {"num_layers": 2, "num_single_layers": 0}
    pipe = FluxControlNetPipeline(controlnet=controlnet(**layers), **flux1.pipeline().components)
    wanted = last_latents(
        pipe,
        prompt="a red circle",
        control_image=PICTURE,
        controlnet_conditioning_scale=0.7,
        width=96,
        height=64,
        num_inference_steps=4,
        guidance_scale=3.5,
        generator=generator(),
    )
    wanted = pipe._unpack_latents(wanted, 64, 96, 8)
    found = bench.latents(controlled(job(bench), bench, name, strength=0.7))
    assert wanted.std() > 0.3
    assert (found - wanted).abs().max() <= 1e-4
    assert (found - bench.latents(job(bench))).abs().max() > 1e-2


def test_networks_of_other_depths_add_up(bench: Bench) -> None:
    once = controlled(job(bench), bench, "both", strength=0.5)
    both = controlled(once, bench, "double", strength=0.5)
    assert (bench.latents(both) - bench.latents(once)).abs().max() > 1e-3
    nothing = controlled(once, bench, "double", strength=0.0)
    assert (bench.latents(nothing) - bench.latents(once)).abs().max() <= 1e-6
    twice = controlled(once, bench, "both", strength=0.5)
    whole = controlled(job(bench), bench, "both")
    assert (bench.latents(twice) - bench.latents(whole)).abs().max() <= 1e-4


def test_rows_give_what_they_give_alone_a_union_too(bench: Bench) -> None:
    jobs = [
        controlled(job(bench, "long " * 30), bench, "union"),
        job(bench, "a red circle", seed=9),
        controlled(job(bench, "a blue star", seed=8), bench, "both", strength=0.4),
    ]
    alone = [bench.latents(made) for made in jobs]
    together = [bench.sampler.submit(made) for made in jobs]
    for future, wanted in zip(together, alone, strict=True):
        assert (future.result(60).latent.samples - wanted).abs().max() <= 1e-4
