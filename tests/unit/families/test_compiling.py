"""Compiled blocks, traced by torch for real; only the slow code generator is left out here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from inline_core.engine.render import TorchRender
from inline_core.errors import NotFinite, OutOfMemory
from inline_core.families import compiling
from inline_core.families.adapted import AdaptedDenoiser, SharedDenoiser
from inline_core.families.compiling import CompiledBlocks
from inline_core.families.registry import open_catalog
from inline_core.families.z_image.denoise import ZImageDenoiser
from inline_core.families.z_image.text import EncodedPrompt
from inline_core.loading.component import Role
from inline_core.loading.deltas import LoadedAdapter, LoraDelta
from inline_core.sampling.family import Row
from inline_core.sampling.job import SampleJob
from inline_core.sampling.values import Conditioning, Latent
from inline_core.settings import Settings
from tests import tiny
from tests.unit.engine.test_render import Context

Forward = Callable[..., Any]


def traced(forward: Forward) -> Forward:
    """Everything but the code generator."""
    made: Forward = torch.compile(forward, dynamic=True, backend="eager")
    return made


def untranslatable(forward: Forward) -> Forward:
    """A code generator that fails, as one without a C++ compiler does."""

    def backend(*_: object) -> Forward:
        message = "no C++ compiler"
        raise RuntimeError(message)

    made: Forward = torch.compile(forward, backend=backend)
    return made


@pytest.fixture(autouse=True, scope="module")
def _forget_compiled_code() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def shared(compiled: bool) -> SharedDenoiser:
    return SharedDenoiser.around(ZImageDenoiser(tiny.transformer()), compiled=compiled)


def estimate(
    made: SharedDenoiser,
    lengths: tuple[int, ...] = (5, 6),
    side: int = 8,
    adapters: tuple[tuple[LoadedAdapter, float], ...] = (),
    **row: Any,
) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    latents = torch.randn((len(lengths), 16, side, side), generator=generator)
    rows = [
        Row(EncodedPrompt(torch.randn((count, tiny.CAP_FEAT_DIM), generator=generator)))
        for count in lengths
    ]
    rows[-1] = replace(rows[-1], **row)
    sigmas = torch.linspace(0.5, 0.9, len(lengths))
    denoiser = AdaptedDenoiser(made, adapters)
    with torch.inference_mode():
        return denoiser.estimate(latents, sigmas, rows, lambda: None)


@pytest.mark.slow
def test_compiled_blocks_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "_compile", traced)
    made, plain = shared(compiled=True), shared(compiled=False)
    for lengths, side in (((5, 6), 8), ((5, 40), 8), ((5, 6), 12)):
        expected = estimate(plain, lengths, side)
        assert torch.allclose(estimate(made, lengths, side), expected, atol=1e-4)
    assert made.notes == ()


def test_the_control_of_blocks_still_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "_compile", traced)
    made, plain = shared(compiled=True), shared(compiled=False)
    expected = estimate(plain, skipped_layers=(1,))
    assert torch.allclose(estimate(made, skipped_layers=(1,)), expected, atol=1e-4)
    assert not torch.allclose(estimate(made), expected, atol=1e-2)


def test_adapters_work_after_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "_compile", traced)
    made, plain = shared(compiled=True), shared(compiled=False)
    width = tiny.TRANSFORMER["dim"]
    delta = LoraDelta(torch.randn(4, width), torch.randn(width, 4), 0.1)
    adapter = LoadedAdapter("a", {"layers.0.attention.to_q": (delta,)})
    base = estimate(made)
    for strength in (1.0, 0.5):
        adapted = estimate(made, adapters=((adapter, strength),))
        assert torch.allclose(adapted, estimate(plain, adapters=((adapter, strength),)), atol=1e-4)
        assert not torch.allclose(adapted, base, atol=1e-3)
    assert torch.equal(estimate(made), base)
    assert torch.equal(estimate(made, adapters=((adapter, 0.0),)), base)


def test_what_cannot_be_compiled_runs_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "_compile", untranslatable)
    made = shared(compiled=True)
    assert torch.equal(estimate(made), estimate(shared(compiled=False)))
    (note,) = made.notes
    assert "not compiled" in note
    assert "no C++ compiler" in note


def test_errors_of_the_run_are_not_those_of_the_compiler() -> None:
    class Block:
        error: Exception = OutOfMemory("full")

        def forward(self) -> None:
            raise self.error

    block = Block()
    blocks = CompiledBlocks([block], compiler=lambda forward: forward)
    for error in (OutOfMemory("full"), NotFinite("NaN"), MemoryError()):
        block.error = error
        with pytest.raises(type(error)):
            block.forward()
    assert blocks.problem == ""


def test_a_run_is_told_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(compiling, "_compile", untranslatable)
    settings = Settings(
        models_dir=tiny.shared_models(),
        data_dir=tmp_path,
        demo_model=False,
        threads=1,
        profile="cpu",
        compile=True,
    )
    catalog = open_catalog(settings)
    render = TorchRender(settings, catalog)
    model = catalog.find(Role.DIFFUSION_MODEL, "", family="z-image")
    prompt = Conditioning("a red circle", catalog.companions(model)[1])
    job = SampleJob(model, prompt, Latent(64, 64), 2, 1.0, "euler", "simple", 7)
    try:
        result = render.sample(job, Context())
    finally:
        assert render.close(10)
    assert result.provenance["placement"]["compiled"] is True
    assert len([text for text in result.warnings if "not compiled" in text]) == 1
