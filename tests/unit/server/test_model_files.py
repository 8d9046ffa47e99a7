from __future__ import annotations

from pathlib import Path

from inline_core.doctor import model_table
from inline_core.settings import Settings
from tests import tiny
from tests.live import LiveServer


def test_files_are_listed_with_what_they_are(tiny_server: LiveServer) -> None:
    files = tiny_server.http.get("/v1/model-files").json()["files"]
    found = {file["name"]: file for file in files}
    model, vae = found["z.safetensors"], found["ae.safetensors"]
    assert (model["role"], model["family"], model["layout"]) == (
        "diffusion_model",
        "z-image",
        "original",
    )
    assert model["className"] == "ZImageTransformer2DModel"
    assert model["geometry"]["cap_feat_dim"] == tiny.CAP_FEAT_DIM
    assert (vae["label"], vae["problems"]) == ("a VAE (decoder.* keys)", [])
    assert vae["geometry"] == {"latent_channels": 16, "factor": 8}


def test_the_command_lists_them_in_words(tmp_path: Path) -> None:
    tiny.save_models(tmp_path / "models")
    settings = Settings(models_dir=tmp_path / "models", data_dir=tmp_path / "data")
    table = model_table(settings)
    assert "a VAE (decoder.* keys)" in table
    assert "a Z-Image diffusion model (cap_embedder and x_pad_token keys), tiny" in table
