"""Decoding beside the sampler: NaN is tried once more in float32, and cancel stops within a block."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from inline_core.errors import NotFinite, RunCancelled
from inline_core.loading.component import Role
from inline_core.sampling.values import Latent
from tests import tiny
from tests.backends.conftest import Bench, make_bench
from tests.backends.test_options import After

SPACE = "flux"


def latents() -> torch.Tensor:
    return torch.randn(1, 16, 8, 8, generator=torch.Generator().manual_seed(0))


def decode(bench: Bench, check: Any, *, tiled: bool = False) -> tuple[Any, tuple[str, ...]]:
    vae = bench.catalog.find(Role.VAE, "", family="z-image")
    found: tuple[Any, tuple[str, ...]] = bench.device.call(
        lambda: bench.modules.autoencoders.decode(
            vae, Latent(64, 64, space=SPACE), latents(), check, tiled=tiled
        )
    ).result(30)
    return found


def nothing() -> None:
    pass


def with_vae(folder: Path, factor: float) -> Path:
    """A models folder whose VAE has one large weight: too large for float16, fine in float32."""
    tiny.save_models(folder)
    vae = tiny.vae()
    vae.decoder.conv_in.weight.data.mul_(factor)
    path = folder / "vae/ae.safetensors"
    tiny.save(tiny.ldm_keys(vae.state_dict()), path, tiny.vae_metadata())
    tiny.settle(folder)
    return folder


def test_a_decode_that_gives_nan_is_done_in_float32(tmp_path: Path) -> None:
    folder = with_vae(tmp_path, 3e4)
    exact = make_bench(folder, dtype="float32")
    wanted, special = decode(exact, nothing)
    assert special == ()
    half = make_bench(folder, dtype="float16")
    pixels, special = decode(half, nothing)
    assert special == ("float32",)
    assert np.array_equal(pixels, wanted)
    assert exact.close()
    assert half.close()


def test_nan_in_float32_too_is_an_error(tmp_path: Path) -> None:
    for dtype in ("float16", "float32"):
        bench = make_bench(with_vae(tmp_path / dtype, float("nan")), dtype=dtype)
        with pytest.raises(NotFinite, match="decoded pixels"):
            decode(bench, nothing)
        assert bench.close()


@pytest.mark.parametrize("tiled", [False, True])
def test_cancel_stops_a_decode_within_a_block(tiled: bool) -> None:
    bench = make_bench(tiny.shared_models())
    decode(bench, nothing)
    whole = After(10_000)
    decode(bench, whole.check, tiled=tiled)
    assert whole.asked > 8
    some = After(whole.asked // 2)
    with pytest.raises(RunCancelled):
        decode(bench, some.check, tiled=tiled)
    assert some.asked == whole.asked // 2 + 1
    assert decode(bench, nothing)[0].shape == (64, 64, 3)
    assert bench.close()
