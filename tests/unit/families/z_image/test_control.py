"""Union ControlNets of Z-Image against diffusers' pipeline; every generation and layout of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch
from diffusers import (
    FlowMatchEulerDiscreteScheduler,
    ZImageControlNetModel,
    ZImageControlNetPipeline,
)

from inline_core.devices.budget import Demand
from inline_core.devices.ladder import Plan
from inline_core.devices.policy import DevicePolicy
from inline_core.errors import InvalidParam
from inline_core.families.z_image.family import Z_IMAGE
from inline_core.loading.component import Role
from inline_core.media.values import Image
from inline_core.sampling.family import PassSize
from inline_core.sampling.values import Control, Latent
from tests import tiny
from tests.backends.conftest import Bench, make_bench
from tests.plans import plan_of
from tests.reference import generator, last_latents
from tests.tiny_families import sd15

PIXELS: Final = np.random.default_rng(5).integers(0, 255, (64, 96, 3), dtype=np.uint8)
HINT: Final = torch.from_numpy(PIXELS).permute(2, 0, 1)[None] / 127.5 - 1
HOW: Final = {
    "1": (16, None),
    "2.0": (33, "control_layers"),
    "2.1": (33, "control_noise_refiner"),
}


def controlnet(kind: str, **changes: Any) -> Any:
    """A ControlNet with one block for the tiny transformer, whose outputs move the picture."""
    channels, how = HOW[kind]
    torch.manual_seed(3)
    config = {
        "control_layers_places": [0],
        "control_refiner_layers_places": [0] if how else None,
        "control_in_dim": channels,
        "add_control_noise_refiner": how,
        "dim": 64,
        "n_refiner_layers": 1,
        "n_heads": 2,
        "n_kv_heads": 2,
    }
    model = ZImageControlNetModel(**{**config, **changes})
    tiny.randomise(model, 0.25)
    return model.eval()


def file_of(kind: str) -> dict[str, torch.Tensor]:
    """A released single file: those of 2.0 have refiners that were never trained."""
    state: dict[str, torch.Tensor] = controlnet(kind).state_dict()
    if kind == "2.0":
        more = controlnet("2.1").state_dict()
        more = {name: value for name, value in more.items() if "noise_refiner" in name}
        more["control_noise_refiner.0.before_proj.weight"].zero_()
        state |= more
    return state


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tiny.save_models(tmp_path_factory.mktemp("control"))
    for kind in HOW:
        tiny.save(file_of(kind), made / f"model_patches/{kind}.safetensors")
        controlnet(kind).save_pretrained(made / f"controlnet/{kind}")
    tiny.save(controlnet("1", dim=32).state_dict(), made / "controlnet/narrow.safetensors")
    return made


@pytest.fixture(scope="module")
def bench(folder: Path) -> Iterator[Bench]:
    tiny.settle(folder)
    made = make_bench(folder)
    yield made
    assert made.close()


def controlled(found: Any, bench: Bench, name: str = "1.safetensors", **changes: Any) -> Any:
    network = bench.catalog.find(Role.CONTROLNET, name)
    control = Control(network, Image(PIXELS), **changes)
    prompts = {
        key: replace(item, controls=(*item.controls, control))
        for key in ("positive", "negative")
        if (item := getattr(found, key)) is not None
    }
    return replace(found, **prompts)


def job(bench: Bench, prompt: str = "a red circle", **changes: Any) -> Any:
    return bench.job(prompt, **{"latent": Latent(96, 64), "cfg": 2.0, "negative": "", **changes})


def reference(network: Any, **call: Any) -> torch.Tensor:
    pipe = ZImageControlNetPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0),
        vae=tiny.vae(),
        text_encoder=tiny.text_encoder(),
        tokenizer=tiny.tokenizer(),
        transformer=tiny.transformer(),
        controlnet=network,
    )
    values = {
        "prompt": "a red circle",
        "negative_prompt": "",
        "width": 96,
        "height": 64,
        "num_inference_steps": 4,
        "guidance_scale": 1.0,
        "control_image": HINT,
        "controlnet_conditioning_scale": 0.7,
        "generator": generator(),
    }
    return last_latents(pipe, **{**values, **call})


@pytest.mark.parametrize("kind", HOW)
def test_the_latents_are_those_of_the_pipeline(bench: Bench, kind: str) -> None:
    found = bench.latents(controlled(job(bench), bench, f"{kind}.safetensors", strength=0.7))
    wanted = reference(controlnet(kind))
    assert (found - wanted).abs().max() <= 1e-4
    assert (found - bench.latents(job(bench))).abs().max() > 0.05
    in_diffusers = bench.latents(controlled(job(bench), bench, kind, strength=0.7))
    assert (found - in_diffusers).abs().max() <= 1e-5


def test_it_counts_only_in_its_share_of_the_sampling(bench: Bench) -> None:
    plain = job(bench)
    whole, none = bench.latents(controlled(plain, bench)), bench.latents(plain)
    nothing = bench.latents(controlled(plain, bench, start_percent=0.9, end_percent=0.9))
    assert torch.equal(nothing, none)
    assert torch.equal(bench.latents(controlled(plain, bench, strength=0.0)), none)
    half = bench.latents(controlled(plain, bench, end_percent=0.5))
    assert (half - whole).abs().max() > 1e-3
    assert (half - none).abs().max() > 1e-3


def test_several_add_up_and_one_keeps_nothing_of_the_model(bench: Bench) -> None:
    plain = job(bench)
    once = bench.latents(controlled(plain, bench))
    twice = controlled(controlled(plain, bench, strength=0.5), bench, strength=0.5)
    assert (bench.latents(twice) - once).abs().max() <= 1e-4
    held = [
        item.value.module for item in bench.pool._held.values() if hasattr(item.value, "module")
    ]
    networks = [item for item in held if isinstance(item, ZImageControlNetModel)]
    assert networks
    assert all(item.noise_refiner is None and item.x_pad_token is None for item in networks)


def test_rows_with_and_without_one_give_what_they_give_alone(bench: Bench) -> None:
    # Prompts of different lengths, one row without a ControlNet, and two strengths.
    plain = job(bench, "long " * 30)
    one = controlled(plain, bench)
    assert torch.isfinite(bench.latents(replace(one, negative=plain.negative))).all()
    jobs = [
        controlled(job(bench, text, seed=seed), bench, strength=strength)
        for text, seed, strength in (("long " * 30, 7, 1.0), ("a red circle", 8, 0.4))
    ]
    alone = [bench.latents(made) for made in jobs]
    together = [bench.sampler.submit(made) for made in jobs]
    for future, wanted in zip(together, alone, strict=True):
        assert (future.result(30).latent.samples - wanted).abs().max() <= 1e-4


class Streamed(DevicePolicy):
    """The policy of this machine, with the diffusion model streamed."""

    def plan(self, demand: Demand) -> Plan:
        plan = super().plan(demand)
        return replace(plan, model=replace(plan.model, offload="group"))


def test_streaming_changes_nothing(
    bench: Bench, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.backends.conftest.DevicePolicy", Streamed)
    streamed = make_bench(folder)
    try:
        for name in ("1.safetensors", "2.1"):
            found, wanted = (
                made.latents(controlled(job(made), made, name)) for made in (streamed, bench)
            )
            assert torch.equal(found, wanted)
    finally:
        assert streamed.close()


def test_what_it_adds_is_counted() -> None:
    geometry = {"dim": 3840, "cap_feat_dim": 2560, "n_layers": 30}
    plain, more = (
        Z_IMAGE.workload(PassSize(geometry, 1024, 1024, 1, controls=count)).denoise_values
        for count in (0, 1)
    )
    assert more - plain == (4096 + 512) * 3840 * 30


def wrong_width(bench: Bench, _: Path) -> Any:
    return controlled(job(bench), bench, "narrow.safetensors")


def wrong_family(bench: Bench, tmp_path: Path) -> Any:
    path = tmp_path / "canny.safetensors"
    tiny.save(sd15.controlnet().state_dict(), path)
    plain = controlled(job(bench), bench)
    stamp = plan_of(path).files.stamp
    network = replace(plain.positive.controls[0].model, path=path, family="sd15", stamp=stamp)
    control = Control(replace(network, name=path.name), Image(PIXELS))
    return replace(plain, positive=replace(plain.positive, controls=(control,)))


def wrong_vae(bench: Bench, tmp_path: Path) -> Any:
    small = tiny.vae(latent_channels=4)
    path = tmp_path / "small.safetensors"
    tiny.save(tiny.ldm_keys(small.state_dict()), path)
    vae = bench.catalog.companions(job(bench).model)[0]
    vae = replace(vae, path=path, name=path.name, stamp=plan_of(path).files.stamp)
    return controlled(job(bench), bench, vae=vae)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (wrong_width, "needs a ControlNet that was made for it"),
        (wrong_family, "canny.safetensors is an SD1.5 ControlNet"),
        (wrong_vae, "small.safetensors does not encode to the latents of Z-Image (flux)"),
    ],
)
def test_what_cannot_be_is_refused(
    bench: Bench, tmp_path: Path, made: Callable[[Bench, Path], Any], words: str
) -> None:
    error = bench.sampler.submit(made(bench, tmp_path)).exception(30)
    assert isinstance(error, InvalidParam)
    assert words in error.message


def test_files_of_model_patches_are_offered(bench: Bench) -> None:
    offered = bench.catalog.options("controlnet", "z-image")
    assert {"1", "1.safetensors", "2.1.safetensors", "narrow.safetensors"} <= set(offered)
    assert "1.safetensors" not in bench.catalog.options("controlnet", "sdxl")
