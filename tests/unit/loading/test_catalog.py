from __future__ import annotations

import time
import unicodedata
from pathlib import Path

import pytest
import torch

from inline_core.errors import ModelFileInvalid, ModelFileMissing
from inline_core.families.registry import FAMILIES, open_catalog
from inline_core.loading.catalog import Catalog
from inline_core.loading.component import Role
from inline_core.loading.scan import ModelRoot
from inline_core.settings import Settings
from tests import tiny

Z = "z-image"
MODEL, VAE, TEXT = Role.DIFFUSION_MODEL, Role.VAE, Role.TEXT_ENCODER
RULES = {name: family.rules for name, family in FAMILIES.items()}


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return tiny.save_models(tmp_path / "models")


def catalog(*folders: Path) -> Catalog:
    return Catalog([ModelRoot(folder, "models") for folder in folders], RULES)


def lora(path: Path) -> Path:
    keys = {
        f"diffusion_model.layers.{i}.attention.to_q.lora_A.weight": torch.ones(2, 4)
        for i in range(3)
    }
    return tiny.save(keys, path)


def test_finds_and_pairs_the_pieces(models: Path) -> None:
    found = catalog(models)
    model = found.find(MODEL, "z.safetensors")
    vae, encoder = found.companions(model)
    assert (vae.name, encoder.name) == ("ae.safetensors", "qwen")
    assert found.find(MODEL, "", family=Z) == model
    assert found.find(VAE, "", family=Z) == vae
    assert found.find(TEXT, "", family=Z) == encoder
    assert found.find(MODEL, "") == model
    assert found.options("diffusion_models", Z) == ("z.safetensors",)
    assert found.tokenizer_for(encoder) == models / "text_encoders/qwen"
    found.check_fit(model, vae, encoder)


def test_an_empty_folder_says_what_to_add(tmp_path: Path) -> None:
    (tmp_path / "vae").mkdir()
    for role, category in ((MODEL, "diffusion_models"), (VAE, "vae"), (TEXT, "text_encoders")):
        with pytest.raises(ModelFileMissing, match=f"No model file found in models/{category}/"):
            catalog(tmp_path).find(role, "", family=Z)


def test_a_file_of_another_role_is_named(models: Path) -> None:
    tiny.save(tiny.vae().state_dict(), models / "text_encoders/ae.safetensors")
    lora(models / "diffusion_models/style.safetensors")
    found = catalog(models)
    with pytest.raises(ModelFileInvalid) as caught:
        found.find(TEXT, "ae.safetensors", family=Z)
    assert caught.value.message == (
        "ae.safetensors is a VAE (decoder.* keys); a text encoder is needed here; candidates: qwen"
    )
    with pytest.raises(ModelFileInvalid) as caught:
        found.find(MODEL, "style.safetensors", family=Z)
    assert (
        "looks like a LoRA (3 lora_A keys) made for Z-Image: move it to models/loras"
        in caught.value.message
    )
    assert "style.safetensors" not in found.options("diffusion_models")


def test_another_family_is_named(models: Path) -> None:
    keys = {
        name: torch.ones(4)
        for name in (
            "time_caption_embed.timestep_embedder.linear_1.bias",
            "ref_image_patch_embedder.weight",
        )
    }
    tiny.save(keys, models / "diffusion_models/f.safetensors")
    with pytest.raises(ModelFileInvalid) as caught:
        catalog(models).find(MODEL, "f.safetensors")
    assert "OmniGen2" in caught.value.message
    assert "a diffusion model for one of these is needed here" in caught.value.message
    assert "Z-Image, FLUX.2" in caught.value.message


def test_a_name_that_is_not_there(models: Path) -> None:
    found = catalog(models)
    with pytest.raises(ModelFileMissing, match=r"did you mean z\.safetensors"):
        found.find(MODEL, "zz.safetensors", family=Z)
    with pytest.raises(ModelFileMissing, match=r"is in models/vae and is a VAE"):
        found.find(MODEL, "ae.safetensors", family=Z)


@pytest.mark.parametrize("name", ["../z.safetensors", "/etc/passwd", "C:\\x", "a/../../b", "a\0b"])
def test_names_stay_inside_the_folder(models: Path, name: str) -> None:
    with pytest.raises(ModelFileInvalid, match="not a name within"):
        catalog(models).find(MODEL, name)


def test_broken_files_are_shown_with_the_reason(models: Path) -> None:
    path = models / "diffusion_models/z.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    tiny.settle(models)
    found = catalog(models)
    (file,) = found.files("diffusion_models")
    assert (file.status, "cut off" in file.reason) == ("broken", True)
    with pytest.raises(ModelFileInvalid, match="cut off"):
        found.find(MODEL, "z.safetensors", family=Z)
    assert found.options("diffusion_models") == ()


def test_other_suffixes_are_listed_but_not_offered(models: Path) -> None:
    for suffix in (".gguf", ".ckpt", ".pt", ".pth", ".bin", ".onnx"):
        (models / "vae" / f"x{suffix}").write_bytes(b"12345678abcdefgh")
    tiny.save(tiny.vae().state_dict(), models / "vae/x.sft")
    tiny.settle(models)
    found = catalog(models)
    status = {file.name: file.status for file in found.files("vae")}
    assert status.pop("ae.safetensors") == status.pop("x.sft") == "ready"
    assert set(status.values()) == {"broken"}
    assert len(status) == 6
    assert all(file.reason for file in found.files("vae") if file.status == "broken")


def test_new_files_appear_without_a_restart(models: Path) -> None:
    found = catalog(models)
    before = found.version()
    assert found.version() == before
    path = lora(models / "loras/new.safetensors")
    found.refresh()
    assert found.options("loras") == ("new.safetensors",)
    after = found.version()
    assert after != before
    path.unlink()
    found.refresh()
    assert found.version() == before


def test_a_file_that_just_changed_is_not_offered(models: Path) -> None:
    clock = [time.time()]
    paused: list[float] = []

    def pause(seconds: float) -> None:
        paused.append(seconds)
        clock[0] += seconds

    found = Catalog([ModelRoot(models, "models")], RULES, clock=lambda: clock[0], pause=pause)
    assert found.options("loras") == ()
    path = lora(models / "loras/slow.safetensors")
    tiny.settle(models, age_s=0)
    clock[0] = path.stat().st_mtime + 0.2
    found.refresh()
    (file,) = found.files("loras")
    assert file.status == "copying"
    assert found.options("loras") == ()
    assert found.find_lora("slow.safetensors", 1.0).name == "slow.safetensors"
    assert len(paused) == 1


def test_links_subfolders_aliases_and_loops(models: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    lora(outside / "a/b.safetensors")
    loras = models / "Loras"
    loras.mkdir()
    (loras / "ext").symlink_to(outside)
    (loras / "loop").symlink_to(loras)
    (outside / "a/up").symlink_to(outside)
    (models / "unet").symlink_to(models / "diffusion_models")
    lora(loras / ".hidden.safetensors")
    found = catalog(models)
    assert found.options("loras") == ("ext/a/b.safetensors",)
    assert found.find_lora("ext/a/b.safetensors", 0.5).strength == 0.5
    assert {file.name for file in found.files("diffusion_models")} == {"z.safetensors"}


def test_accents_and_case(models: Path) -> None:
    decomposed = unicodedata.normalize("NFD", "é.safetensors")
    composed = unicodedata.normalize("NFC", "é.safetensors")
    lora(models / "loras" / decomposed)
    for name in ("A.safetensors", "a.safetensors", "😀.safetensors"):
        lora(models / "loras" / name)
    found = catalog(models)
    assert found.find_lora(composed, 1).name == decomposed
    assert found.find_lora("😀.safetensors", 1).name == "😀.safetensors"
    assert found.find_lora("a.safetensors", 1).name == "a.safetensors"
    with pytest.raises(ModelFileInvalid, match=r"A\.safetensors, a\.safetensors"):
        found.find_lora("a.SAFETENSORS", 1)


def test_a_missing_root_is_one_warning(models: Path, tmp_path: Path) -> None:
    gone = tmp_path / "unmounted"
    found = catalog(models, gone)
    assert len(found.warnings()) == 1
    assert str(gone) in found.warnings()[0]
    assert found.find(MODEL, "", family=Z).name == "z.safetensors"


def test_the_first_root_wins_and_files_know_theirs(models: Path, tmp_path: Path) -> None:
    second = tiny.save_models(tmp_path / "second")
    found = catalog(second, models)
    assert found.find(MODEL, "z.safetensors").path.is_relative_to(second)
    assert {file.root for file in found.files("vae")} == {second, models}
    assert found.options("vae") == ("ae.safetensors",)


def test_folders_are_offered_by_name(tmp_path: Path) -> None:
    tiny.transformer().save_pretrained(tmp_path / "diffusion_models/whole", max_shard_size="500KB")
    tiny.settle(tmp_path)
    assert len(list((tmp_path / "diffusion_models/whole").glob("*.safetensors"))) > 1
    tiny.save_vae_folder(tmp_path / "vae/flux")
    tiny.save_text_encoder_folder(tmp_path / "text_encoders/qwen")
    found = catalog(tmp_path)
    model = found.find(MODEL, "whole", family=Z)
    assert [ref.name for ref in found.companions(model)] == ["flux", "qwen"]
    shard = min((tmp_path / "diffusion_models/whole").glob("*.safetensors"))
    shard.unlink()
    tiny.settle(tmp_path)
    found.refresh()
    with pytest.raises(ModelFileInvalid, match="lacks 1 of"):
        found.find(MODEL, "whole", family=Z)


def test_a_pipeline_folder_offers_its_parts(tmp_path: Path) -> None:
    tiny.save_pipeline(tmp_path / "diffusion_models/zimg")
    other = tiny.save_models(tmp_path / "other")
    found = catalog(other, tmp_path)
    model = found.find(MODEL, "zimg", family=Z)
    vae, encoder = found.companions(model)
    assert (vae.name, encoder.name) == ("zimg/vae", "zimg/text_encoder")
    assert found.tokenizer_for(encoder) == tmp_path / "diffusion_models/zimg/tokenizer"
    assert "zimg/vae" in found.options("vae", Z)


def test_the_text_encoder_is_chosen_by_its_width(models: Path) -> None:
    wide = tiny.text_encoder(hidden_size=128)
    tiny.save_text_encoder_file(models / "text_encoders/a-wide.safetensors", wide)
    found = catalog(models)
    model = found.find(MODEL, "", family=Z)
    assert found.companions(model)[1].name == "qwen"
    with pytest.raises(ModelFileInvalid, match="hidden size 128, the model needs 64"):
        found.check_fit(model, text_encoder=found.find(TEXT, "a-wide.safetensors", family=Z))


def test_real_files_come_before_the_demo_and_the_demo_keeps_to_itself(tmp_path: Path) -> None:
    demo = tmp_path / "demo"
    told = {"modelspec.title": "Inline demo", "modelspec.resolution": "128x128"}
    keys = tiny.original_keys(tiny.transformer().state_dict())
    tiny.save(keys, demo / "diffusion_models/d.safetensors", told)
    tiny.save_vae_folder(demo / "vae/demo-vae")
    tiny.save_text_encoder_folder(demo / "text_encoders/demo-text")
    only_demo = Catalog([ModelRoot(tmp_path / "models", "models"), ModelRoot(demo, "demo")], RULES)
    model = only_demo.find(MODEL, "", family=Z)
    assert (model.name, model.variant) == ("d.safetensors", "demo")
    assert only_demo.variant_defaults(Z)["width"] == 128

    real = tiny.save_models(tmp_path / "models")
    both = Catalog([ModelRoot(real, "models"), ModelRoot(demo, "demo")], RULES)
    assert both.find(MODEL, "", family=Z).name == "z.safetensors"
    assert both.options("diffusion_models", Z) == ("z.safetensors", "d.safetensors")
    assert [r.name for r in both.companions(both.find(MODEL, "d.safetensors"))] == [
        "demo-vae",
        "demo-text",
    ]
    assert [r.name for r in both.companions(both.find(MODEL, "z.safetensors"))] == [
        "ae.safetensors",
        "qwen",
    ]


def test_settings_override_the_pick(models: Path, tmp_path: Path) -> None:
    outside = tiny.save_vae_folder(tmp_path / "outside-vae")
    found = open_catalog(Settings(models_dir=models, demo_model=False, zimage_vae=str(outside)))
    assert found.find(VAE, "", family=Z).path == outside
    assert found.companions(found.find(MODEL, "", family=Z))[0].path == outside
    wrong = open_catalog(Settings(models_dir=models, demo_model=False, zimage_model="nope"))
    with pytest.raises(ModelFileMissing, match="INLINE_ZIMAGE_MODEL=nope"):
        wrong.find(MODEL, "", family=Z)


def test_a_text_encoder_without_a_tokenizer(tmp_path: Path) -> None:
    path = tmp_path / "text_encoders/q.safetensors"
    tiny.save_text_encoder_file(path, tokens=False)
    found = catalog(tmp_path)
    encoder = found.find(TEXT, "q.safetensors")
    with pytest.raises(ModelFileMissing, match=r"q\.tokenizer"):
        found.tokenizer_for(encoder)
    tiny.tokenizer().save_pretrained(tmp_path / "text_encoders/other")
    assert found.tokenizer_for(encoder) == tmp_path / "text_encoders/other"
    tiny.tokenizer().save_pretrained(tmp_path / "text_encoders/q.tokenizer")
    assert found.tokenizer_for(encoder) == tmp_path / "text_encoders/q.tokenizer"


def test_the_tokenizer_beside_a_folder(models: Path) -> None:
    encoder = models / "text_encoders/qwen"
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (encoder / name).unlink()
    tiny.tokenizer().save_pretrained(models / "text_encoders/qwen.tokenizer")
    found = catalog(models)
    place = found.tokenizer_for(found.find(TEXT, "qwen"))
    assert place == models / "text_encoders/qwen.tokenizer"


def test_variant_defaults_follow_the_model(models: Path) -> None:
    found = catalog(models)
    assert found.variant_defaults(Z, "z.safetensors")["width"] == 128
    assert found.variant_defaults(Z, "nope")["width"] == 1024
    assert found.variant_defaults(Z)["steps"] == 8


def test_five_thousand_files_in_two_seconds(tmp_path: Path) -> None:
    content = lora(tmp_path / "one.safetensors").read_bytes()
    folder = tmp_path / "loras"
    folder.mkdir()
    for index in range(5000):
        (folder / f"{index}.safetensors").write_bytes(content)
    tiny.settle(tmp_path)
    found = catalog(tmp_path)
    # Well below 2 s on an idle machine.  Processor time, which a busy machine still inflates.
    start = time.process_time()
    assert len(found.options("loras")) == 5000
    first = time.process_time() - start
    start = time.process_time()
    found.refresh()
    assert first < 3
    assert time.process_time() - start < 1
