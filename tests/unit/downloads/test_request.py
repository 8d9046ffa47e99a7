"""What may be downloaded and where to."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from inline_core.downloads.request import destinations, want_file, want_requirement
from inline_core.errors import Forbidden, InvalidRequest
from inline_core.families.registry import FAMILIES
from inline_core.loading.component import Role
from inline_core.loading.rules import CATEGORIES
from inline_core.sampling.family import ModelFamily

REPO = "team/model"


def refused(field: str, *arguments: str, **more: str) -> str:
    with pytest.raises(InvalidRequest) as caught:
        want_file(*arguments, **more)
    assert caught.value.details == {"field": field}
    return caught.value.message


def test_a_file_keeps_its_own_name_unless_told_otherwise() -> None:
    wanted = want_file(REPO, "deep/er/ae.safetensors", "vae")
    assert (wanted.target, wanted.files[0].name) == ("vae/ae.safetensors", "ae.safetensors")
    assert wanted.files[0].revision == "main"
    named = want_file(REPO, "ae.safetensors", "vae", name="sub/mine.SAFETENSORS", revision="v1/x")
    assert named.target == "vae/sub/mine.SAFETENSORS"


@pytest.mark.parametrize(
    "name",
    [
        "../x.safetensors",
        "a/../../x.safetensors",
        "/etc/x.safetensors",
        "C:\\x.safetensors",
        "C:/x.safetensors",
        "a\\b.safetensors",
        "..\\x.safetensors",
        "x\0.safetensors",
        "x\n.safetensors",
        ".hidden.safetensors",
        ".downloads/x.safetensors",
        "a/./x.safetensors",
        "a//x.safetensors",
        "x.safetensors/",
        "",
        " x.safetensors",
        "x.safetensors ",
        "x.safetensors.",
        "nul.safetensors",
        "CON/x.safetensors",
        "x" * 300 + ".safetensors",
        "/".join("abcdefghi") + "/x.safetensors",
        "\ud800.safetensors",
        "a*b.safetensors",
        "x.safetensors:stream",
    ],
)
def test_a_name_that_could_lead_elsewhere_is_refused(name: str) -> None:
    assert "not a plain relative path" in refused("name", REPO, "x.safetensors", "vae", name=name)
    assert "not a plain relative path" in refused("file", REPO, name, "vae", name="x.safetensors")


@pytest.mark.parametrize("category", ["", "vaes", "..", "VAE", "/vae", "vae/..", ".downloads"])
def test_an_unknown_category_is_refused(category: str) -> None:
    message = refused("category", REPO, "x.safetensors", category)
    assert all(known in message for known in CATEGORIES)


@pytest.mark.parametrize("suffix", [".ckpt", ".pt", ".pth", ".bin", ".pkl", ".CKPT"])
def test_a_pickle_is_refused_with_the_remedy(suffix: str) -> None:
    message = refused("file", REPO, f"model{suffix}", "checkpoints")
    assert "pickle" in message
    assert ".safetensors" in message
    refused("file", REPO, f"model{suffix}", "checkpoints", name="model.safetensors")


@pytest.mark.parametrize("file", ["run.py", "setup.sh", "x.exe", "x.dll", "README.md", "x", "x.so"])
def test_what_is_no_model_file_is_refused(file: str) -> None:
    assert "neither weights nor" in refused("file", REPO, file, "vae")


def test_the_name_keeps_the_kind_of_the_file() -> None:
    message = refused("name", REPO, "a.json", "vae", name="a.safetensors")
    assert "must end with .json" in message
    assert "must end with" in refused("name", REPO, "a.safetensors", "vae", name="a.exe")


@pytest.mark.parametrize(
    "repo", ["", "model", "a/b/c", "../x", "a/..", "-a/b", "a/b c", "a/b?x", "a--b/c", "http://a/b"]
)
def test_a_repository_that_is_none_is_refused(repo: str) -> None:
    assert "organisation/name" in refused("repo", repo, "x.safetensors", "vae")


@pytest.mark.parametrize("revision", ["", "../x", "a..b", "a b", "-x", "a?b", "x" * 300])
def test_a_revision_that_is_none_is_refused(revision: str) -> None:
    refused("revision", REPO, "x.safetensors", "vae", revision=revision)


def test_every_requirement_of_every_family_may_be_downloaded() -> None:
    for family in FAMILIES.values():
        assert family.rules.requirements
        ids = [requirement.id for requirement in family.rules.requirements]
        assert len(set(ids)) == len(ids)
        for requirement in family.rules.requirements:
            wanted = want_requirement("some/type", requirement)
            assert wanted.target == requirement.local_path
            assert (wanted.node_type, wanted.requirement) == ("some/type", requirement.id)
            folders = {file.name.rpartition("/")[0] for file in requirement.files}
            assert len(folders) == 1
            assert requirement.size_bytes > 0


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.name)
def test_what_a_family_requires_is_all_it_needs(family: ModelFamily) -> None:
    required = [item for item in family.rules.requirements if item.role is not None]
    inside = {item.category for item in required} & {"checkpoints"}
    roles = Counter(item.role for item in required)
    models = [item for item in required if item.role is Role.DIFFUSION_MODEL]
    # A second one of a variant only helps the first.
    assert len({(item.variant, item.optional) for item in models}) == len(models)
    if inside:
        return  # one file with everything but tokenizers
    assert roles[Role.VAE] == 1
    assert roles[Role.TEXT_ENCODER] == len(family.rules.all_encoders)
    names = [file.name for item in family.rules.requirements for file in item.files]
    assert any(name.endswith("tokenizer.json") for name in names)


def test_links_within_the_folder_are_followed_and_no_others(tmp_path: Path) -> None:
    root = tmp_path / "models"
    (root / "vae").mkdir(parents=True)
    (root / "loras").symlink_to(root / "vae")
    wanted = want_file(REPO, "x.safetensors", "loras")
    assert destinations(root, wanted) == (root / "loras/x.safetensors",)
    (root / "vae/x.safetensors").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Forbidden, match="INLINE_MODELS_DIR"):
        destinations(root, wanted)
    linked = tmp_path / "linked"
    linked.symlink_to(root)
    assert destinations(linked, want_file(REPO, "y.safetensors", "loras"))
