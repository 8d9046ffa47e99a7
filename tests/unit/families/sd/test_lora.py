"""Adapters of Stable Diffusion: every trainer's names, convolutions, and text encoders."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from inline_core.errors import ModelFileInvalid
from inline_core.loading.component import LoraRef
from tests import tiny
from tests.backends.conftest import Bench, make_bench
from tests.tiny_families import sd15, sdxl
from tests.unit.families.sd.conftest import job

ATTENTION = "down_blocks.1.attentions.0.transformer_blocks.0.attn1.to_q"
ORIGINAL = "input_blocks.4.1.transformer_blocks.0.attn1.to_q"
RANK = 2


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory, folders: dict[str, Path]) -> dict[str, Path]:
    made = {}
    for name, models in folders.items():
        made[name] = tmp_path_factory.mktemp(f"{name}-loras")
        for part in ("checkpoints", "text_encoders"):
            (made[name] / part).symlink_to(models / part)
    return made


def pair(module: torch.nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    """(down, up) that change a linear or a convolution a lot."""
    generator = torch.Generator().manual_seed(9)
    weight = module.weight
    assert isinstance(weight, torch.Tensor)
    shape = (RANK, *weight.shape[1:])
    down = torch.randn(shape, generator=generator) / weight[0].numel() ** 0.5
    up = torch.randn((weight.shape[0], RANK, *(1,) * (weight.ndim - 2)), generator=generator)
    return down, up * 0.5


def kohya(stem: str, module: torch.nn.Module) -> dict[str, torch.Tensor]:
    down, up = pair(module)
    parts = {"lora_down.weight": down, "lora_up.weight": up, "alpha": torch.tensor(float(RANK))}
    return {f"{stem}.{part}": tensor for part, tensor in parts.items()}


def peft(stem: str, module: torch.nn.Module) -> dict[str, torch.Tensor]:
    down, up = pair(module)
    return {f"{stem}.lora_A.weight": down, f"{stem}.lora_B.weight": up}


def lora(bench: Bench, keys: Mapping[str, torch.Tensor], folder: Path, name: str) -> LoraRef:
    tiny.save(keys, folder / f"loras/{name}.safetensors")
    bench.catalog.refresh()
    return bench.catalog.find_lora(f"{name}.safetensors", 1.0)


def latents(bench: Bench, module: ModuleType, *adapters: LoraRef) -> torch.Tensor:
    made = job(bench, module)
    return bench.latents(replace(made, model=replace(made.model, adapters=adapters)))


def merged(module: torch.nn.Module, names: list[str]) -> torch.nn.Module:
    """The module with the changes in its weights."""
    for name in names:
        inner = module.get_submodule(name)
        down, up = pair(inner)
        change = up.flatten(1) @ down.flatten(1)
        weight: Any = inner.weight
        weight.data += change.view(weight.shape)
    return module


def with_unet(unet: Any, places: Path, tmp_path: Path) -> torch.Tensor:
    """What a checkpoint with this U-Net makes."""
    tiny.save(sd15.checkpoint_keys(unet), tmp_path / "checkpoints/merged.safetensors")
    (tmp_path / "text_encoders").symlink_to(places / "text_encoders")
    bench = make_bench(tmp_path)
    found = latents(bench, sd15)
    assert bench.close()
    return found


def test_every_spelling_changes_the_same_module(places: dict[str, Path], tmp_path: Path) -> None:
    bench = make_bench(places["sd15"])
    inner = sd15.unet().get_submodule(ATTENTION)
    files = {
        "kohya": kohya("lora_unet_" + ATTENTION.replace(".", "_"), inner),
        "sgm": kohya("lora_unet_" + ORIGINAL.replace(".", "_"), inner),
        "diffusers": peft(f"unet.{ATTENTION}", inner),
        "ldm": peft(f"diffusion_model.{ORIGINAL}", inner),
    }
    base = latents(bench, sd15)
    found = [
        latents(bench, sd15, lora(bench, keys, places["sd15"], name))
        for name, keys in files.items()
    ]
    for each in found:
        assert (each - found[0]).abs().max() <= 1e-5
    assert (found[0] - base).abs().max() > 1e-3
    wanted = with_unet(merged(sd15.unet(), [ATTENTION]), places["sd15"], tmp_path)
    assert (found[0] - wanted).abs().max() <= 1e-4
    assert torch.equal(latents(bench, sd15), base)
    assert bench.close()


def test_convolutions_are_changed_too(places: dict[str, Path], tmp_path: Path) -> None:
    bench = make_bench(places["sd15"])
    names = [
        "down_blocks.0.resnets.0.conv1",
        "down_blocks.0.downsamplers.0.conv",
        "up_blocks.1.upsamplers.0.conv",
        "mid_block.attentions.0.proj_in",
        "down_blocks.1.resnets.0.conv_shortcut",
        "conv_in",
    ]
    unet = sd15.unet()
    keys: dict[str, torch.Tensor] = {}
    for name in names:
        keys |= kohya("lora_unet_" + name.replace(".", "_"), unet.get_submodule(name))
    found = latents(bench, sd15, lora(bench, keys, places["sd15"], "locon"))
    wanted = with_unet(merged(sd15.unet(), names), places["sd15"], tmp_path)
    assert (found - latents(bench, sd15)).abs().max() > 1e-2
    assert (found - wanted).abs().max() <= 2e-4
    assert bench.close()


def test_lycoris_on_convolutions(places: dict[str, Path]) -> None:
    bench = make_bench(places["sd15"])
    weight = sd15.unet().down_blocks[0].resnets[0].conv1.weight
    rows, flat = weight.shape[0], weight[0].numel()
    draw = torch.Generator().manual_seed(4)
    stem = "lora_unet_down_blocks_0_resnets_0_conv1"
    loha = {
        f"{stem}.hada_w{number}_{side}": torch.randn(shape, generator=draw)
        for number in "12"
        for side, shape in (("a", (rows, 2)), ("b", (2, flat)))
    }
    lokr = {
        f"{stem}.lokr_w1": torch.randn((4, 4), generator=draw),
        f"{stem}.lokr_w2": torch.randn((rows // 4, rows // 4, 3, 3), generator=draw),
    }
    base = latents(bench, sd15)
    dense = (
        (loha[f"{stem}.hada_w1_a"] @ loha[f"{stem}.hada_w1_b"])
        * (loha[f"{stem}.hada_w2_a"] @ loha[f"{stem}.hada_w2_b"]),
        torch.kron(lokr[f"{stem}.lokr_w1"][:, :, None, None], lokr[f"{stem}.lokr_w2"]),
    )
    for keys, whole in zip((loha, lokr), dense, strict=True):
        # The same as a LoRA of full rank.
        plain = {
            f"{stem}.lora_down.weight": whole.reshape(weight.shape),
            f"{stem}.lora_up.weight": torch.eye(rows)[:, :, None, None],
        }
        found, same = (
            latents(bench, sd15, lora(bench, kind, places["sd15"], name))
            for kind, name in ((keys, f"a{len(keys)}"), (plain, f"b{len(keys)}"))
        )
        assert (found - base).abs().max() > 1e-2
        assert (found - same).abs().max() <= 1e-3 * found.abs().max()
    assert bench.close()


@pytest.mark.parametrize(
    ("module", "prefixes"),
    [
        (sd15, ("lora_te_", "text_encoder.")),
        (sdxl, ("lora_te1_", "text_encoder.")),
        (sdxl, ("lora_te2_", "text_encoder_2.")),
    ],
    ids=["sd15", "sdxl-1", "sdxl-2"],
)
def test_text_encoders_are_changed_for_the_job_only(
    module: ModuleType, prefixes: tuple[str, str], places: dict[str, Path]
) -> None:
    bench = make_bench(places[module.NAME])
    second = "2" in prefixes[0]
    clip = module.clip() if module is sd15 else module.clip_g() if second else module.clip_l()
    stem = "text_model.encoder.layers.0.self_attn.q_proj"
    inner = clip.get_submodule(stem if second else stem.removeprefix("text_model."))
    flat = prefixes[0] + stem.replace(".", "_")
    name = re.sub(r"\W", "", prefixes[0])
    files = (kohya(flat, inner), peft(prefixes[1] + stem, inner))
    base = latents(bench, module)
    found = [
        latents(bench, module, lora(bench, keys, places[module.NAME], f"{name}{index}"))
        for index, keys in enumerate(files)
    ]
    assert (found[0] - base).abs().max() > 1e-4
    assert (found[0] - found[1]).abs().max() <= 1e-5
    assert torch.equal(latents(bench, module), base)
    assert bench.close()


def test_what_fits_nowhere_is_told(places: dict[str, Path]) -> None:
    bench = make_bench(places["sd15"])
    inner = sd15.unet().get_submodule(ATTENTION)
    fitting = kohya("lora_unet_" + ATTENTION.replace(".", "_"), inner)
    odd = kohya("lora_unet_down_blocks_9_attn", inner)
    made = job(bench, sd15)
    adapter = lora(bench, fitting | odd, places["sd15"], "odd")
    model = replace(made.model, adapters=(adapter,))
    warnings = bench.sampler.submit(replace(made, model=model)).result(30).warnings
    assert any("down_blocks_9" in warning for warning in warnings)
    alone = lora(bench, odd, places["sd15"], "alone")
    model = replace(made.model, adapters=(alone,))
    error = bench.sampler.submit(replace(made, model=model)).exception(30)
    assert isinstance(error, ModelFileInvalid)
    mid = {f"lora_unet_{ATTENTION.replace('.', '_')}.lora_mid.weight": torch.ones(2, 2, 3, 3)}
    tucker = lora(bench, fitting | mid, places["sd15"], "tucker")
    model = replace(made.model, adapters=(tucker,))
    error = bench.sampler.submit(replace(made, model=model)).exception(30)
    assert isinstance(error, ModelFileInvalid)
    assert "Tucker" in error.message
    assert bench.close()
