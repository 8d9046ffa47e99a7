"""Previews by tiny autoencoders of the real architecture, in every layout they are published in."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import AutoencoderTiny
from PIL import Image as PillowImage
from safetensors.torch import save_file

from inline_core.devices.placement import Placement
from inline_core.engine.render import TorchRender
from inline_core.errors import ModelFileInvalid, NotFinite
from inline_core.families import previews
from inline_core.families.autoencoders.kl_spaces import FLUX as FLUX_SPACE
from inline_core.families.autoencoders.kl_spaces import SD15, SDXL
from inline_core.families.autoencoders.tiny import TinyDecoder, load_tiny
from inline_core.families.demand import describe
from inline_core.families.previews import TinyFiles, careful
from inline_core.families.registry import open_catalog
from inline_core.loading.component import Role
from inline_core.loading.files import open_weights
from inline_core.loading.stream import LoadPlan
from inline_core.sampling.job import SampleJob
from inline_core.sampling.values import Conditioning, Latent
from inline_core.settings import Settings
from tests import tiny
from tests.unit.engine.test_render import Context

State = dict[str, torch.Tensor]
CONFIG: dict[str, Any] = {
    "latent_channels": 16,
    "encoder_block_out_channels": (8, 8, 8, 8),
    "decoder_block_out_channels": (8, 8, 8, 8),
    "num_encoder_blocks": (1, 1, 2, 1),
    "num_decoder_blocks": (2, 1, 3, 1),
}


def autoencoder(seed: int = 0, **changes: Any) -> AutoencoderTiny:
    torch.manual_seed(seed)
    return AutoencoderTiny(**{**CONFIG, **changes}).eval()


def original(state: State, prefix: str = "") -> State:
    """The decoder as TAESD numbers it: a clamp without weights comes first."""
    made = {}
    for name, tensor in state.items():
        part, _, rest = name.partition(".layers.")
        number, _, leaf = rest.partition(".")
        if part == "decoder":
            made[f"{prefix}{int(number) + 1}.{leaf}"] = tensor.contiguous()
    return made


def with_encoder(state: State) -> State:
    """Both halves in one original file."""
    encoder = {
        name.replace("encoder.layers.", "encoder."): tensor
        for name, tensor in state.items()
        if name.startswith("encoder.")
    }
    return {**encoder, **original(state, "decoder.")}


LAYOUTS: dict[str, Callable[[State], State]] = {
    "diffusers": lambda state: state,
    "diffusers decoder": lambda state: {n: t for n, t in state.items() if n.startswith("decoder")},
    "original decoder": original,
    "original": with_encoder,
}


def load(path: Path) -> TinyDecoder:
    opened = describe(open_weights(path))
    placement = Placement("cpu", "float32")
    return load_tiny(LoadPlan(opened.files, opened.identity, placement, path.name, lambda: None))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_decodes_as_diffusers_does(layout: str, tmp_path: Path) -> None:
    model = autoencoder()
    path = tmp_path / "some.safetensors"
    save_file(LAYOUTS[layout](model.state_dict()), path)
    latents = torch.randn(2, 16, 6, 5)
    with torch.inference_mode():
        expected = model.decode(latents, return_dict=False)[0]
        assert torch.equal(load(path).decode(latents), expected)


def test_a_folder_as_published_with_its_config(tmp_path: Path) -> None:
    model = autoencoder(scaling_factor=0.5, shift_factor=0.25, upsample_fn="bilinear")
    model.save_pretrained(tmp_path / "taef1")
    latents = torch.randn(1, 16, 6, 5)
    with torch.inference_mode():
        expected = model.decode(latents / 0.5 + 0.25, return_dict=False)[0]
        assert torch.equal(load(tmp_path / "taef1").decode(latents), expected)
    assert fitting(tmp_path) == "taef1"


def test_a_preview_is_no_larger_than_512(tmp_path: Path) -> None:
    path = tmp_path / "some.safetensors"
    save_file(autoencoder().state_dict(), path)
    decoder = load(path)
    for size, shown in (((12, 8), (64, 96)), ((128, 64), (256, 512))):
        data = decoder.jpeg(torch.randn(16, *size))
        picture = PillowImage.open(io.BytesIO(data))
        assert (picture.format, picture.size) == ("JPEG", shown)


def test_weights_that_do_not_fit_are_an_error(tmp_path: Path) -> None:
    state = autoencoder().state_dict()
    del state["decoder.layers.3.conv.2.bias"]
    save_file(state, tmp_path / "some.safetensors")
    with pytest.raises(ModelFileInvalid, match=r"layers\.3\.conv\.2\.bias"):
        load(tmp_path / "some.safetensors")


# ---- which one ---------------------------------------------------------------------------------


def fitting(folder: Path) -> str | None:
    file = TinyFiles([folder / "missing", folder]).fitting(FLUX_SPACE)
    return None if file is None else file.name


def test_told_by_content_not_by_name(tmp_path: Path) -> None:
    save_file(autoencoder(latent_channels=4).state_dict(), tmp_path / "taef1.safetensors")
    save_file(tiny.vae().state_dict(), tmp_path / "taef1_decoder.safetensors")
    (tmp_path / "taef1_broken.safetensors").write_bytes(b"no weights")
    (tmp_path / "taesd_decoder.pth").write_bytes(b"PK\x03\x04")
    assert fitting(tmp_path) is None
    save_file(original(autoencoder().state_dict()), tmp_path / "anything.safetensors")
    assert fitting(tmp_path) == "anything.safetensors"


def test_where_several_fit_the_name_breaks_the_tie(tmp_path: Path) -> None:
    state = autoencoder().state_dict()
    save_file(state, tmp_path / "a-taesd3.safetensors")
    assert fitting(tmp_path) == "a-taesd3.safetensors", "nothing says that it does not fit"
    save_file(state, tmp_path / "plain.safetensors")
    assert fitting(tmp_path) == "plain.safetensors"
    save_file(state, tmp_path / "z.safetensors", {"modelspec.title": "TAEF1 for FLUX.1"})
    assert fitting(tmp_path) == "z.safetensors"


def test_the_tiny_autoencoders_of_sd_are_told_apart(tmp_path: Path) -> None:
    state = autoencoder(latent_channels=4).state_dict()
    for name in ("a-taesdxl", "b-taesd"):
        save_file(state, tmp_path / f"{name}.safetensors")
    files = TinyFiles([tmp_path])
    found = {space.name: files.fitting(space) for space in (SD15, SDXL)}
    names = {space: file and file.name for space, file in found.items()}
    assert names == {"sd15": "b-taesd.safetensors", "sdxl": "a-taesdxl.safetensors"}


def test_a_file_that_changes_is_looked_at_again(tmp_path: Path) -> None:
    path = tmp_path / "some.safetensors"
    files = TinyFiles([tmp_path])
    save_file(autoencoder(latent_channels=4).state_dict(), path)
    assert files.fitting(FLUX_SPACE) is None
    save_file(autoencoder().state_dict(), path)
    first = files.fitting(FLUX_SPACE)
    assert first is not None
    assert files.fitting(FLUX_SPACE) is first, "read once"
    path.unlink()
    assert files.fitting(FLUX_SPACE) is None


# ---- in a run ----------------------------------------------------------------------------------


class Server:
    """A render with a models folder and a data folder; every VAE counts as a large one."""

    def __init__(self, folder: Path, data: Path) -> None:
        settings = Settings(
            models_dir=folder, data_dir=data, demo_model=False, threads=1, profile="cpu"
        )
        catalog = open_catalog(settings)
        self.render = TorchRender(settings, catalog)
        self.model = catalog.find(Role.DIFFUSION_MODEL, "", family="z-image")
        self.vae, encoder = catalog.companions(self.model)
        self._prompt = Conditioning("a red circle", encoder)

    def sample(self) -> tuple[Any, Context]:
        context = Context()
        job = SampleJob(self.model, self._prompt, Latent(64, 96), 4, 1.0, "euler", "simple", 7)
        return self.render.sample(job, context), context


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(previews, "SMALL_VAE_BYTES", 0)
    torch.set_num_threads(1)
    folder = tiny.save_models(tmp_path / "models")
    (folder / "vae_approx").mkdir(exist_ok=True)
    made: list[Server] = []

    def start() -> Server:
        made.append(Server(folder, tmp_path / "data"))
        return made[-1]

    yield folder / "vae_approx", start
    for one in made:
        assert one.render.close(10)


def held(made: Server) -> list[str]:
    return [item["name"] for item in made.render.stats()["pool"]["held"]]


def test_a_run_is_previewed_by_the_tiny_autoencoder(server: Any) -> None:
    folder, start = server
    model = autoencoder()
    save_file(original(model.state_dict()), folder / "some.safetensors")
    made = start()
    result, context = made.sample()
    assert len(context.previews) == 4
    # The last estimate is the result, so the last preview is its rough decode.
    with torch.inference_mode():
        pixels = model.decode(result.latent.samples, return_dict=False)[0]  # (1, 3, h, w)
    expected = ((pixels[0] * 0.5 + 0.5).clamp(0, 1) * 255).round().permute(1, 2, 0).numpy()
    with PillowImage.open(io.BytesIO(context.previews[-1])) as picture:
        shown = np.asarray(picture).astype(np.float32)
    assert np.abs(shown - expected).mean() < 8  # what JPEG leaves of noise
    assert "some.safetensors" in held(made)
    leases = [item["leases"] for item in made.render.stats()["pool"]["held"]]
    assert not any(leases)
    assert result.warnings == ()


def test_a_tiny_autoencoder_that_does_not_load_is_said_once(server: Any) -> None:
    folder, start = server
    state = original(autoencoder().state_dict())
    del state["4.conv.0.bias"]
    save_file(state, folder / "some.safetensors")
    result, context = start().sample()
    assert len(context.previews) == 4
    told = [text for text in result.warnings if "vae_approx/some.safetensors" in text]
    assert len(told) == 1
    assert "1 weights missing" in told[0]


def test_colours_are_learnt_and_kept(server: Any, tmp_path: Path) -> None:
    _, start = server
    first = start()
    result, before = first.sample()
    first.render.decode(first.vae, result.latent, Context())
    (file,) = (tmp_path / "data/previews").iterdir()
    assert json.loads(file.read_text())["pictures"] == 1
    _, after = start().sample()
    assert before.previews[-1] != after.previews[-1]
    _, again = first.sample()
    one, other = (
        np.asarray(PillowImage.open(io.BytesIO(context.previews[-1])), np.int16)
        for context in (after, again)
    )
    assert np.abs(one - other).max() <= 8


def test_drawing_falls_back_for_good_after_one_failure() -> None:
    told: list[str] = []
    calls: list[str] = []

    def better(_: torch.Tensor) -> bytes:
        calls.append("better")
        if len(calls) == 2:
            message = "NaN or infinity in the preview"
            raise NotFinite(message)
        return b"better"

    encode = careful(better, lambda _: b"rough", lambda error: told.append(str(error)))
    picture, video = torch.zeros(4, 2, 2), torch.zeros(4, 3, 2, 2)
    assert [encode(picture) for _ in range(4)] == [b"better", b"rough", b"rough", b"rough"]
    assert len(calls) == 2
    assert told == ["NaN or infinity in the preview"]
    assert encode(video) == b"rough"


def test_nan_is_no_preview(tmp_path: Path) -> None:
    state = autoencoder().state_dict()
    state["decoder.layers.0.bias"].fill_(torch.nan)
    save_file(state, tmp_path / "some.safetensors")
    with pytest.raises(NotFinite):
        load(tmp_path / "some.safetensors").jpeg(torch.zeros(16, 4, 4))
