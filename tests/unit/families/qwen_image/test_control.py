"""ControlNets of Qwen-Image against diffusers' pipelines, for edges and for inpainting.

Compared without guidance: theirs reuse for the negative prompt what the ControlNet made of the
positive one, which ours runs with both, as for all other families.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch
from diffusers import (
    QwenImageControlNetInpaintPipeline,
    QwenImageControlNetModel,
    QwenImageControlNetPipeline,
)

from inline_core.errors import InvalidParam
from inline_core.loading.component import Role
from inline_core.media.values import Image
from inline_core.sampling.patches import KeepLength, with_patch
from inline_core.sampling.values import Control, Latent
from tests import tiny
from tests.backends.conftest import Bench, make_bench
from tests.reference import generator, last_latents
from tests.tiny_families import qwen_image
from tests.tiny_families.qwen_image import controlnet

PIXELS: Final = np.random.default_rng(5).integers(0, 255, (64, 96, 3), dtype=np.uint8)
PICTURE: Final = torch.from_numpy(PIXELS).permute(2, 0, 1)[None] / 127.5 - 1
MASK: Final = np.zeros((64, 96), np.uint8)
MASK[16:48, 24:80] = 255


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder: Path = tmp_path_factory.mktemp("qwen-control")
    qwen_image.save_models(folder)
    for name, made in {
        "union": controlnet(),
        "two": controlnet(layers=2),
        "inpaint": controlnet(masked=True),
    }.items():
        tiny.save(made.state_dict(), folder / f"controlnet/{name}.safetensors")
    tiny.settle(folder)
    running = make_bench(folder)
    yield running
    assert running.close()


def job(bench: Bench, prompt: str = "a red circle", **changes: Any) -> Any:
    made = bench.job(
        prompt,
        **{
            "family": "qwen-image",
            "latent": Latent(96, 64),
            "cfg": 1.0,
            **changes,
        },
    )
    return replace(made, model=with_patch(made.model, KeepLength()))


def controlled(found: Any, bench: Bench, name: str, **changes: Any) -> Any:
    network = bench.catalog.find(Role.CONTROLNET, f"{name}.safetensors")
    control = Control(network, Image(PIXELS), **changes)
    prompts = {
        key: replace(item, controls=(*item.controls, control))
        for key in ("positive", "negative")
        if (item := getattr(found, key)) is not None
    }
    return replace(found, **prompts)


def reference(kind: Any, network: QwenImageControlNetModel, **call: Any) -> torch.Tensor:
    plain = qwen_image.pipeline()
    pipe = kind(controlnet=network, **plain.components)
    pipe.prompt_template_encode_start_idx = plain.prompt_template_encode_start_idx
    found = last_latents(
        pipe,
        prompt="a red circle",
        width=96,
        height=64,
        num_inference_steps=4,
        true_cfg_scale=1.0,
        controlnet_conditioning_scale=0.7,
        generator=generator(),
        **call,
    )
    unpacked: torch.Tensor = pipe._unpack_latents(found, 64, 96, 8)
    return unpacked


@pytest.fixture
def means(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipelines draw the latents of the control picture; ours are the mean."""
    monkeypatch.setattr(
        "diffusers.models.autoencoders.vae.DiagonalGaussianDistribution.sample",
        lambda self, generator=None: self.mean,
    )


@pytest.mark.usefixtures("means")
def test_the_latents_are_those_of_the_pipeline(bench: Bench) -> None:
    found = bench.latents(controlled(job(bench), bench, "union", strength=0.7))
    wanted = reference(QwenImageControlNetPipeline, controlnet(), control_image=PICTURE)
    assert (found - wanted).abs().max() <= 1e-4
    assert (found - bench.latents(job(bench))).abs().max() > 0.05


@pytest.mark.usefixtures("means")
def test_what_is_white_in_a_mask_is_made_anew(bench: Bench) -> None:
    found = bench.latents(controlled(job(bench), bench, "inpaint", strength=0.7, mask=MASK))
    wanted = reference(
        QwenImageControlNetInpaintPipeline,
        controlnet(masked=True),
        control_image=PICTURE,
        control_mask=torch.from_numpy(MASK)[None, None] / 255.0,
    )
    assert (found - wanted).abs().max() <= 1e-4
    assert (found - bench.latents(job(bench))).abs().max() > 0.05


def test_networks_of_other_depths_add_up(bench: Bench) -> None:
    plain = job(bench)
    once = controlled(plain, bench, "union", strength=0.5)
    both = controlled(once, bench, "two", strength=0.5)
    found = bench.latents(both)
    assert (found - bench.latents(once)).abs().max() > 1e-2
    nothing = controlled(once, bench, "two", strength=0.0)
    assert (bench.latents(nothing) - bench.latents(once)).abs().max() <= 1e-6
    twice = controlled(once, bench, "union", strength=0.5)
    whole = controlled(plain, bench, "union")
    assert (bench.latents(twice) - bench.latents(whole)).abs().max() <= 1e-4


def test_rows_with_and_without_one_give_what_they_give_alone(bench: Bench) -> None:
    jobs = [
        controlled(job(bench, "long " * 30), bench, "union"),
        job(bench, "a red circle", seed=9),
        controlled(job(bench, "a cat", cfg=2.0, negative="blurry"), bench, "two", strength=0.5),
        controlled(job(bench, "a blue star", seed=8), bench, "union", strength=0.4),
    ]
    alone = [bench.latents(made) for made in jobs]
    together = [bench.sampler.submit(made) for made in jobs]
    for future, wanted in zip(together, alone, strict=True):
        assert (future.result(30).latent.samples - wanted).abs().max() <= 1e-4


@pytest.mark.parametrize(
    ("name", "mask", "message"),
    [("inpaint", None, "wire a mask"), ("union", MASK, "takes no mask")],
)
def test_masks_are_for_inpainting(bench: Bench, name: str, mask: Any, message: str) -> None:
    with pytest.raises(InvalidParam, match=message):
        bench.latents(controlled(job(bench), bench, name, mask=mask))
