"""Predictions of the memory beside the weights, and one real measurement of each kind."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from inline_core.devices.budget import Demand
from inline_core.devices.ladder import make_plan
from inline_core.families.autoencoders.kl import VaeRuntime
from inline_core.families.autoencoders.kl_spaces import FLUX as FLUX_SPACE
from inline_core.families.text_encoders.loaded import TextEncoder
from inline_core.families.z_image.denoise import ZImageDenoiser
from inline_core.families.z_image.family import workload
from inline_core.families.z_image.text import EncodedPrompt, encode_prompt
from inline_core.loading.interruption import Interruption
from inline_core.sampling.family import PassSize
from inline_core.sampling.footprint import (
    decode_values,
    encoder_values,
    picture_workload,
    tiled_decode_values,
    transformer_values,
)
from tests import tiny
from tests.live import ROOT
from tests.unit.devices.test_ladder import gpu, profile_of, weights_of

CPU = ProfilerActivity.CPU
Z_IMAGE = {"dim": 3840, "cap_feat_dim": 2560}
# Peaks of anonymous memory in values, of real widths in float32 on a processor.
MEASURED_DENOISE = [
    (256, 1, 48_834_560),
    (512, 1, 95_043_584),
    (512, 2, 188_010_496),
    (1024, 1, 280_718_336),
]
MEASURED_TEXT = [(4, 25_389_056), (12, 35_856_384)]
MEASURED_DECODE = [(256, 65_198_080), (512, 253_976_576), (1024, 1_009_152_000)]


@pytest.mark.parametrize(("side", "pictures", "measured"), MEASURED_DENOISE)
def test_a_pass_takes_what_was_predicted(side: int, pictures: int, measured: int) -> None:
    predicted = workload(PassSize(Z_IMAGE, side, side, pictures)).denoise_values
    assert measured <= predicted <= 2 * measured


@pytest.mark.parametrize(("layers", "measured"), MEASURED_TEXT)
def test_a_prompt_takes_what_was_predicted(layers: int, measured: int) -> None:
    predicted = encoder_values(512, 2560, layers)
    assert measured <= predicted <= 2.1 * measured


@pytest.mark.parametrize(("side", "measured"), MEASURED_DECODE)
def test_a_decode_takes_what_was_predicted(side: int, measured: int) -> None:
    assert measured <= decode_values(side, side) <= 2 * measured


def test_tiles_bound_a_large_decode() -> None:
    assert tiled_decode_values(512, 512) > decode_values(512, 512)
    small, large = tiled_decode_values(1024, 1024), tiled_decode_values(2048, 2048)
    assert large - small == 3 * 5 * (2048**2 - 1024**2)
    assert large < decode_values(2048, 2048) / 10


def test_more_work_never_takes_less() -> None:
    passes = [
        workload(PassSize(Z_IMAGE, side, side, members)).denoise_values
        for side, members in ((256, 1), (512, 1), (512, 2), (1024, 1), (1024, 2))
    ]
    assert passes == sorted(passes)
    # A matrix that is unpacked while it is used comes on top, once for all pictures.
    assert transformer_values(0, 3840, 10240) == 3840 * 10240
    text = [encoder_values(512, 2560, layers) for layers in (4, 12, 36)]
    assert text == sorted(text)


def test_a_workload_has_all_phases() -> None:
    work = picture_workload(tokens=100, width=64, ffn_width=170, text=(512, 64, 3), size=(128, 64))
    assert work.encode_values == encoder_values(512, 64, 3)
    assert work.denoise_values == transformer_values(100, 64, 170)
    assert work.decode_values == decode_values(128, 64)
    assert work.tiled_decode_values == tiled_decode_values(128, 64)


@pytest.mark.parametrize(("gib", "ram"), [(6, 16), (8, 16), (12, 32), (16, 32), (24, 64)], ids=str)
def test_the_table_of_the_docs_is_what_the_planner_says(gib: int, ram: int) -> None:
    machine = gpu(gib, ram=ram, compute=(8, 6))
    work = workload(PassSize(Z_IMAGE, 1024, 1024))
    demand = Demand(weights_of("z-image"), weights_of("qwen3-4b"), weights_of("vae"), work)
    plan = make_plan(machine, profile_of(machine), demand)
    text = (ROOT / "docs/explanation/memory.md").read_text(encoding="utf-8")
    (row,) = (line for line in text.splitlines() if line.startswith(f"| {gib} GB, {ram} GB |"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    sizes = [f"{plan.phases[phase] / 1e9:.2f}" for phase in ("encode", "denoise", "decode")]
    assert cells[1] == f"{plan.capacity_bytes / 1e9:.2f}"
    assert [cell.removesuffix(" tiled") for cell in cells[4:7]] == sizes
    assert cells[6].endswith("tiled") == plan.tiled_decode
    assert int(cells[7]) == plan.max_pictures
    assert plan.text_encoder is not None
    for cell, placement in zip(cells[2:4], (plan.model, plan.text_encoder), strict=True):
        assert ("int8" in cell) == (placement.quantization == "int8")
        assert ("streamed" in cell) == (placement.offload == "group")


def peak_bytes(work: Callable[[], object]) -> int:
    """Most bytes that torch's allocator had given out at once; exact, whatever else runs."""
    with torch.inference_mode(), profile(activities=[CPU], profile_memory=True) as seen:
        work()
    assert seen.profiler is not None
    events = seen.profiler.kineto_results.events()
    changes = sorted((int(e.start_ns()), int(e.nbytes())) for e in events if e.name() == "[memory]")
    return max(itertools.accumulate(size for _, size in changes))


@pytest.mark.parametrize(("side", "pictures"), [(128, 1), (256, 2)])
def test_a_small_transformer_really_takes_that(side: int, pictures: int) -> None:
    model = tiny.transformer(dim=256, n_heads=4, n_kv_heads=4, axes_dims=[16, 24, 24])
    latents = torch.randn(pictures, 16, side // 8, side // 8)
    prompts = [EncodedPrompt(torch.randn(512, tiny.CAP_FEAT_DIM))] * pictures
    denoiser, sigmas = ZImageDenoiser(model), torch.full((pictures,), 0.5)
    measured = peak_bytes(lambda: denoiser.predict(latents, sigmas, prompts))
    size = PassSize({"dim": 256, "cap_feat_dim": tiny.CAP_FEAT_DIM}, side, side, pictures)
    assert measured <= 4 * workload(size).denoise_values <= 1.5 * measured


def test_a_small_vae_really_takes_that() -> None:
    runtime = VaeRuntime(tiny.vae(block_out_channels=(16, 32, 32, 32)), FLUX_SPACE)
    latents = torch.randn(1, 16, 16, 16)
    decoding = peak_bytes(lambda: runtime.decode(latents))
    assert decoding <= 4 * decode_values(128, 128, 32) <= 1.5 * decoding
    encoding = peak_bytes(lambda: runtime.encode_raw(torch.zeros(1, 3, 128, 128)))
    assert encoding <= 4 * decode_values(128, 128, 32)


def test_a_small_text_encoder_really_takes_that() -> None:
    encoder = TextEncoder(tiny.text_encoder(), tiny.tokenizer(), "cpu", Interruption([]))
    measured = peak_bytes(lambda: encode_prompt(encoder, "a red circle " * 100))
    assert measured <= 4 * encoder_values(512, tiny.CAP_FEAT_DIM, 3) <= 2 * measured
