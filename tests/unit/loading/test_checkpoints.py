"""All-in-one checkpoints: what is in them, and that their parts are found and loaded as files are."""

from __future__ import annotations

import string
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from transformers import T5Tokenizer

from inline_core.errors import ModelFileInvalid
from inline_core.families.demand import OpenedFiles
from inline_core.families.registry import open_catalog
from inline_core.loading.catalog import Catalog
from inline_core.loading.component import Role
from inline_core.loading.files import open_weights
from inline_core.loading.header import PACKED_LAYERS, Header, TensorInfo, part_of
from inline_core.loading.identify import identify
from inline_core.settings import Settings
from tests import checkpoints, tiny, tiny_encoders
from tests.backends.conftest import make_bench
from tests.tiny_families import sd3, sd15, sdxl


def catalog_of(folder: Path) -> Catalog:
    return open_catalog(Settings(models_dir=folder, demo_model=False))


def save_z_image(folder: Path) -> None:
    parts: Mapping[str, Mapping[str, torch.Tensor]] = {
        "model.diffusion_model.": tiny.original_keys(tiny.transformer().state_dict()),
        "vae.": tiny.ldm_keys(tiny.vae().state_dict()),
        "text_encoders.qwen3_4b.transformer.": {
            f"model.{name}": tensor for name, tensor in tiny.text_encoder().state_dict().items()
        },
        "text_encoders.qwen3_4b.": {"logit_scale": torch.tensor(1.0)},
    }
    tiny.save(checkpoints.joined(parts), folder / "checkpoints/z.safetensors")
    tiny.tokenizer().save_pretrained(folder / "checkpoints/z.tokenizer/tokenizer")
    tiny.settle(folder)


def t5_tokenizer() -> T5Tokenizer:
    """The usual one, with as many pieces as its text encoder has rows."""
    letters = [(letter, -2.0) for letter in string.ascii_letters + string.digits + ".,"]
    known = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0), *letters]
    more = [(f"<{number}>", -9.0) for number in range(tiny_encoders.T5_VOCABULARY - len(known))]
    return T5Tokenizer(vocab=[*known, *more], extra_ids=0, model_max_length=512)


def test_the_parts_of_a_file_are_told(tmp_path: Path) -> None:
    for name, keys in (("sd15", sd15.checkpoint_keys()), ("sdxl", sdxl.checkpoint_keys())):
        tiny.save(keys, tmp_path / f"{name}.safetensors")
    found = identify(open_weights(tmp_path / "sdxl.safetensors").headers)
    assert found.role is Role.CHECKPOINT
    assert found.problems == ()
    roles = {part: (item.role, item.family) for part, item in found.parts.items()}
    assert roles == {
        "model.diffusion_model.": (Role.DIFFUSION_MODEL, "sdxl"),
        "first_stage_model.": (Role.VAE, "autoencoder-kl"),
        "conditioner.embedders.0.transformer.": (Role.TEXT_ENCODER, "clip"),
        "conditioner.embedders.1.model.": (Role.TEXT_ENCODER, "clip"),
    }
    assert found.in_words() == (
        "an all-in-one SDXL checkpoint (diffusion model with VAE and text encoder)"
    )
    found = identify(open_weights(tmp_path / "sd15.safetensors").headers)
    assert "cond_stage_model.transformer." in found.parts


def test_its_own_parts_come_before_other_files(tmp_path: Path) -> None:
    sd15.save_models(tmp_path)
    tiny.save(tiny.ldm_keys(sd15.vae().state_dict()), tmp_path / "vae/other.safetensors")
    tiny_encoders.save_clip_file(tmp_path / "text_encoders/clip_l.safetensors", sd15.clip())
    tiny.save(sd15.unet_keys(sd15.unet()), tmp_path / "diffusion_models/unet.safetensors")
    tiny.settle(tmp_path)
    catalog = catalog_of(tmp_path)
    whole = catalog.find(Role.DIFFUSION_MODEL, "sd15.safetensors")
    vae, encoder = catalog.companions(whole)
    assert {whole.stamp, vae.stamp, encoder.stamp} == {whole.stamp}
    assert (vae.name, vae.part) == ("sd15.safetensors", "first_stage_model.")
    assert (encoder.name, encoder.part) == ("sd15.safetensors", "cond_stage_model.transformer.")
    split = catalog.find(Role.DIFFUSION_MODEL, "unet.safetensors")
    assert [item.part for item in (split, *catalog.companions(split))] == ["", "", ""]
    # What lies in a folder of its own may be named all the same.
    named = catalog.find(Role.VAE, "other.safetensors")
    catalog.check_fit(whole, named)


def test_a_split_model_takes_parts_of_a_checkpoint_when_there_is_nothing_else(
    tmp_path: Path,
) -> None:
    sd15.save_models(tmp_path)
    tiny.save(sd15.unet_keys(sd15.unet()), tmp_path / "diffusion_models/a.safetensors")
    tiny.settle(tmp_path)
    catalog = catalog_of(tmp_path)
    split = catalog.find(Role.DIFFUSION_MODEL, "a.safetensors")
    vae, encoder = catalog.companions(split)
    assert (vae.part, encoder.part) == ("first_stage_model.", "cond_stage_model.transformer.")
    assert catalog.find(Role.VAE, "", family="sd15").part == "first_stage_model."


def test_it_is_offered_where_diffusion_models_are(tmp_path: Path) -> None:
    sd15.save_models(tmp_path)
    catalog = catalog_of(tmp_path)
    assert catalog.options("diffusion_models") == ("sd15.safetensors",)
    assert catalog.options("diffusion_models", "sd15") == ("sd15.safetensors",)
    assert catalog.options("diffusion_models", "z-image") == ()
    assert catalog.options("checkpoints") == ("sd15.safetensors",)
    assert catalog.options("vae") == ()
    assert catalog.find(Role.CHECKPOINT, "").part == "model.diffusion_model."
    assert catalog.stamp("diffusion_models", "sd15.safetensors") != "missing"


def test_unknown_and_pickled_ones_are_refused_with_the_remedy(tmp_path: Path) -> None:
    odd = {
        "model.diffusion_model.odd.weight": torch.ones(2, 2),
        "first_stage_model.decoder.conv_in.weight": torch.ones(2, 2),
    }
    tiny.save(odd, tmp_path / "checkpoints/odd.safetensors")
    (tmp_path / "checkpoints/old.ckpt").write_bytes(b"PK\x03\x04" + bytes(64))
    tiny.settle(tmp_path)
    catalog = catalog_of(tmp_path)
    assert catalog.options("checkpoints") == ()
    for name, words in (("odd.safetensors", "unknown"), ("old.ckpt", "convert to safetensors")):
        with pytest.raises(ModelFileInvalid, match=words):
            catalog.find(Role.DIFFUSION_MODEL, name)


def test_each_part_is_opened_on_its_own(tmp_path: Path) -> None:
    sdxl.save_models(tmp_path)
    catalog, opened = catalog_of(tmp_path), OpenedFiles()
    model = catalog.find(Role.DIFFUSION_MODEL, "")
    vae, encoders = catalog.companions(model)
    sizes = []
    for reference in (model, vae, *encoders.all):
        found = opened.open(reference)
        assert found.files.stamp == model.stamp
        assert found.identity.family == reference.family
        assert not any(name.startswith(reference.part) for name in found.files.tensors)
        sizes.append(found.weights.values)
    assert len(set(sizes)) == 4
    assert opened.open(vae) is opened.open(vae)


def test_packed_layers_are_those_of_the_part() -> None:
    tensors = {
        "model.diffusion_model.a.weight": TensorInfo("I8", (2, 2), 0, 4),
        "text_encoders.x.b.weight": TensorInfo("I8", (2, 2), 4, 8),
    }
    told = '{"layers": {"model.diffusion_model.a": {"format": "int8"}, "text_encoders.x.b": {}}}'
    header = Header(Path("x"), 8, 0, tensors, {PACKED_LAYERS: told, "modelspec.title": "t"}, "d")
    part = part_of(header, "model.diffusion_model.")
    assert dict(part.tensors) == {"a.weight": tensors["model.diffusion_model.a.weight"]}
    assert part.metadata[PACKED_LAYERS] == '{"layers": {"a": {"format": "int8"}}}'
    assert part.metadata["modelspec.title"] == "t"
    assert PACKED_LAYERS not in part_of(header, "vae.").metadata


def test_z_image_in_one_file_gives_what_its_files_give(tmp_path: Path) -> None:
    save_z_image(tmp_path)
    found = []
    for folder in (tiny.shared_models(), tmp_path):
        bench = make_bench(folder)
        found.append(bench.latents(bench.job(cfg=2.0, negative="")))
        assert bench.close()
    assert (found[0] - found[1]).abs().max() <= 1e-5


def test_sd3_in_one_file_gives_what_its_files_give(tmp_path: Path) -> None:
    files, whole = tmp_path / "files", tmp_path / "whole"
    sd3.save_models(files)
    parts: Mapping[str, Mapping[str, torch.Tensor]] = {
        "model.diffusion_model.": sd3.original_keys(sd3.transformer().state_dict()),
        "first_stage_model.": tiny.ldm_keys(sd3.vae().state_dict()),
        "text_encoders.clip_l.transformer.": tiny_encoders.clip_keys(sd3.clip_l()),
        "text_encoders.clip_g.transformer.": tiny_encoders.clip_keys(sd3.clip_g()),
        "text_encoders.t5xxl.transformer.": sd3.t5().state_dict(),
    }
    tiny.save(checkpoints.joined(parts), whole / "checkpoints/sd3.safetensors")
    # Both tokenizers beside the file: each encoder takes the one of its size.
    beside = whole / "checkpoints/sd3.tokenizer"
    tiny_encoders.clip_tokenizer("!").save_pretrained(beside / "tokenizer")
    t5_tokenizer().save_pretrained(beside / "tokenizer_3")
    tiny_encoders.clip_tokenizer("!").save_pretrained(files / "text_encoders/clip_l.tokenizer")
    for folder in (files, whole):
        tiny.settle(folder)
    found = []
    for folder in (files, whole):
        bench = make_bench(folder)
        found.append(bench.latents(bench.job(family="sd3", cfg=2.0, negative="")))
        assert bench.close()
    assert (found[0] - found[1]).abs().max() <= 1e-5
