"""Attention backends apply to one pass only, and say what is wrong where they do not work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.models.attention_dispatch import _AttentionBackendRegistry

from inline_core.engine.render import TorchRender
from inline_core.errors import RuntimeMissing
from inline_core.families.adapted import AdaptedDenoiser, SharedDenoiser
from inline_core.families.attending import attending, backend_names, check_backend
from inline_core.families.registry import open_catalog
from inline_core.families.z_image.denoise import ZImageDenoiser
from inline_core.families.z_image.text import EncodedPrompt
from inline_core.loading.component import Role
from inline_core.sampling.job import SampleJob
from inline_core.sampling.values import Conditioning, Latent
from inline_core.settings import Settings
from tests import tiny
from tests.unit.engine.test_render import Context

# torch tells why each of its kernels was left out before it fails.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def default_backend() -> str:
    return str(_AttentionBackendRegistry.get_active_backend()[0].value)


def predict(backend: str) -> torch.Tensor:
    """Two rows of different lengths, so that attention is asked for row by row."""
    shared = SharedDenoiser.around(ZImageDenoiser(tiny.transformer()), backend)
    generator = torch.Generator().manual_seed(1)
    latents = torch.randn((2, 16, 8, 8), generator=generator)
    prompts = [
        EncodedPrompt(torch.randn((count, tiny.CAP_FEAT_DIM), generator=generator))
        for count in (5, 40)
    ]
    with torch.inference_mode():
        return AdaptedDenoiser(shared, ()).predict(latents, torch.tensor([0.5, 0.9]), prompts)


@pytest.mark.parametrize("backend", ["native", "_native_math", "_native_flash"])
def test_backends_agree(backend: str) -> None:
    assert torch.allclose(predict(backend), predict("native"), atol=1e-4)
    assert default_backend() == "native"


def test_the_backend_reaches_the_attention_of_every_row() -> None:
    # It exists, but not on a processor: that it fails shows that it was asked.
    with pytest.raises(RuntimeError):
        predict("_native_cudnn")
    assert default_backend() == "native", "the next pass is not touched"


def test_a_pass_does_not_change_the_default_of_the_process() -> None:
    with attending("_native_math"):
        assert default_backend() == "_native_math"
    assert default_backend() == "native"


@pytest.mark.parametrize(
    ("backend", "words"),
    [
        ("fast", "INLINE_ATTENTION=fast: there is no such attention backend; there are"),
        ("sage", "INLINE_ATTENTION=sage does not work here .cpu, float32.: .*sageattention"),
        ("_native_cudnn", "INLINE_ATTENTION=_native_cudnn does not work here"),
    ],
)
def test_a_backend_that_does_not_work_is_named(backend: str, words: str) -> None:
    with pytest.raises(RuntimeMissing, match=words) as caught:
        check_backend(backend, "cpu", "float32")
    assert all(name in caught.value.message for name in backend_names())
    check_backend("native", "cpu", "float32")


# ---- in a run ----------------------------------------------------------------------------------


def sample(data: Path, attention: str) -> Any:
    settings = Settings(
        models_dir=tiny.shared_models(),
        data_dir=data,
        demo_model=False,
        threads=1,
        profile="cpu",
        attention=attention,
    )
    catalog = open_catalog(settings)
    render = TorchRender(settings, catalog)
    model = catalog.find(Role.DIFFUSION_MODEL, "", family="z-image")
    prompt = Conditioning("a red circle", catalog.companions(model)[1])
    job = SampleJob(model, prompt, Latent(64, 64), 2, 1.0, "euler", "simple", 7)
    try:
        return render.sample(job, Context())
    finally:
        assert render.close(10)


def test_the_setting_reaches_a_run(tmp_path: Path) -> None:
    result = sample(tmp_path, "_native_math")
    assert result.provenance["placement"]["attention"] == "_native_math"
    expected = sample(tmp_path, "native")
    assert torch.allclose(result.latent.samples, expected.latent.samples, atol=1e-4)


def test_a_wrong_setting_ends_the_run_and_nothing_else(tmp_path: Path) -> None:
    with pytest.raises(RuntimeMissing, match="INLINE_ATTENTION=fast"):
        sample(tmp_path, "fast")


def test_backends_that_fetch_code_are_refused() -> None:
    assert not any("hub" in name for name in backend_names())
    with pytest.raises(RuntimeMissing, match="no such attention backend"):
        check_backend("flash_hub", "cpu", "float32")
