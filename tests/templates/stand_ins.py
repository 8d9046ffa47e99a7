"""Tiny models under the names that templates have for the real ones.

Each family's tiny models are made once; a template gets a models folder with copies of them under
its own names.
"""

from __future__ import annotations

import atexit
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import torch
from diffusers.pipelines.ltx2.latent_upsampler import LTX2LatentUpsamplerModel
from safetensors.torch import load_file

from inline_core.importers.comfyui.converting import NamedFile
from tests import original_layouts, tiny, tiny_flux2
from tests.tiny_families import (
    ace_step,
    bria_fibo2,
    chroma,
    ernie_image,
    flux1,
    hunyuan_video15,
    ideogram4,
    kandinsky5,
    krea2,
    longcat_image,
    ltx2,
    ltx25,
    lumina2,
    ovis_image,
    qwen_image,
    qwen_image_21,
    sd3,
    sdxl,
    sdxl_refiner,
    wan,
)
from tests.unit.families.upscalers.test_upscalers import old_spelling, rrdb_state


class NoStandIn(LookupError):
    """No tiny model is there for a file: its family is not one of ours."""


@dataclass(frozen=True, slots=True)
class Family:
    """Tiny models: how to save them, and which file of theirs a category's file is like."""

    save: Callable[[Path], object]
    models: Mapping[str, str]
    """Pattern of a model's name -> tiny file, below diffusion_models or checkpoints."""
    vaes: Mapping[str, str]
    encoders: Mapping[str, str]
    as_checkpoint: str = ""
    """Prefix of its weights in an all-in-one file."""


_WAN_KINDS: Final = {
    "wan-i2v": wan.I2V,
    "wan-i2v22": wan.I2V_22,
    "wan-ti2v": wan.TI2V,
    "wan-vace": wan.VACE,
    **wan.FUN,
}


def _save_wan(folder: Path) -> None:
    wan.save_models(folder)
    wan.save_vision(folder)
    for name, config in _WAN_KINDS.items():
        wan.save_transformer(folder, name, config)
    keys = original_layouts.wan_vae(dict(wan.vae_22().state_dict()))
    tiny.save(keys, folder / "vae/wan22_vae.safetensors")
    tiny.settle(folder)


_QWEN25: Final = {r"qwen_?2\.5_vl": "qwen25vl"}
_GEMMA: Final = {r"gemma": "ltx2-gemma"}
FAMILIES: Final[Mapping[str, Family]] = {
    "z-image": Family(
        tiny.save_models,
        {r"^z_image": "z.safetensors"},
        {r"ae\.": "ae.safetensors"},
        {r"qwen_3_4b": "qwen"},
    ),
    "flux-2": Family(
        tiny_flux2.save_models,
        {r"flux-?2-klein": "klein.safetensors"},
        {r"flux2|full_encoder": "flux2-vae.safetensors"},
        {r"qwen_3_(4|8)b": "qwen-f2"},
    ),
    "flux-1": Family(
        flux1.save_models,
        {
            r"flux1-(canny|depth)": "flux-canny.safetensors",
            r"flux1-fill": "flux-fill.safetensors",
            r"flux1": "dev.safetensors",
        },
        {r"ae\.": "ae.safetensors"},
        {r"clip_l": "clip_l.safetensors", r"t5xxl": "t5xxl.safetensors"},
        "model.diffusion_model.",
    ),
    "qwen-image": Family(
        qwen_image.save_models,
        {r"qwen_image(?!_2\.1)": "qwen.safetensors"},
        {r"qwen_image": "qwen_image_vae.safetensors"},
        _QWEN25,
    ),
    "qwen-image-2.1": Family(
        qwen_image_21.save_models,
        {r"qwen_image_2\.1": "qwen21.safetensors"},
        {r"qwen_image_2\.1": "qwen21_vae.safetensors"},
        {r"qwen3vl_8b|qwen3\.5": "qwen3vl-8b"},
    ),
    "krea-2": Family(
        krea2.save_models,
        {r"krea2": "krea.safetensors"},
        {r"qwen_image": "qwen_image_vae.safetensors"},
        {r"qwen3vl": "qwen3vl.safetensors"},
    ),
    "ideogram-4": Family(
        ideogram4.save_models,
        {r"ideogram4_uncond": "unconditional.safetensors", r"ideogram4": "ideogram.safetensors"},
        {r"flux2": "flux2-vae.safetensors"},
        {r"qwen3vl|gemma": "qwen3vl.safetensors"},
    ),
    "bria-fibo-2": Family(
        bria_fibo2.save_models,
        {r"fibo2": "fibo2.safetensors"},
        {r"flux2": "flux2-vae.safetensors"},
        {r"qwen3vl": "qwen3vl-4b"},
    ),
    "ernie-image": Family(
        ernie_image.save_models,
        {r"ernie": "ernie.safetensors"},
        {r"flux2": "flux2-vae.safetensors"},
        {r"ministral|ernie": "ministral.safetensors"},
    ),
    "kandinsky-5": Family(
        kandinsky5.save_models,
        {r"kandinsky5.*t2v": "kandinsky.safetensors"},
        {r"hunyuan_video_vae": "hunyuan_vae.safetensors"},
        {r"clip_l": "clip_l.safetensors", **_QWEN25},
    ),
    "longcat-image": Family(
        longcat_image.save_models,
        {r"longcat_image": "longcat.safetensors"},
        {r"ae\.": "ae.safetensors"},
        _QWEN25,
    ),
    "wan": Family(
        _save_wan,
        {
            r"wan2\.1.*fun_camera": "wan-fun-camera.safetensors",
            r"wan2\.1.*fun_control": "wan-fun-control.safetensors",
            r"wan2\.2.*fun_camera": "wan-fun-camera22.safetensors",
            r"wan2\.2.*fun_control_5b": "wan-fun-control5b.safetensors",
            r"wan2\.2.*fun_control": "wan-fun-control22.safetensors",
            r"wan2\.1.*(i2v|flf2v|fun_inp)": "wan-i2v.safetensors",
            r"wan2\.[12].*vace": "wan-vace.safetensors",
            r"wan2\.2.*ti2v": "wan-ti2v.safetensors",
            r"wan2\.2.*(i2v|fun_inpaint)": "wan-i2v22.safetensors",
            r"wan2\.[12].*t2v": "wan.safetensors",
        },
        {r"wan2\.2_vae": "wan22_vae.safetensors", r"wan": "wan_vae.safetensors"},
        {r"umt5": "umt5.safetensors"},
    ),
    "hunyuan-video-1.5": Family(
        hunyuan_video15.save_models,
        {r"hunyuanvideo1\.5": "hunyuan.safetensors"},
        {r"hunyuanvideo15": "hunyuan_vae.safetensors"},
        {r"byt5": "byt5.safetensors", **_QWEN25},
    ),
    "ltx-2": Family(
        ltx2.save_models,
        {r"ltx-2(\.3)?-": "ltx2.safetensors"},
        {r"ltx": "ltx2-vae.safetensors"},
        _GEMMA,
    ),
    "ltx-2.5": Family(
        ltx25.save_models,
        {r"ltx-2\.5": "ltx25.safetensors"},
        {r"ltx-2\.5": "ltx25-vae.safetensors"},
        {r"gemma": "ltx25-gemma"},
    ),
    "sd3": Family(
        sd3.save_models,
        {r"sd3": "sd3.5.safetensors"},
        {r".": "sd3_vae.safetensors"},
        {
            r"clip_l": "clip_l.safetensors",
            r"clip_g": "clip_g.safetensors",
            r"t5xxl": "t5xxl.safetensors",
        },
        "model.diffusion_model.",
    ),
    "sdxl": Family(
        sdxl.save_models,
        {r"sd_xl_(base|turbo)": "checkpoints/sdxl.safetensors"},
        {},
        {},
    ),
    "sdxl-refiner": Family(
        sdxl_refiner.save_models,
        {r"sd_xl_refiner": "checkpoints/refiner.safetensors"},
        {},
        {},
    ),
    "lumina-2": Family(
        lumina2.save_models,
        {r"lumina|neta": "lumina.safetensors"},
        {r"ae\.": "ae.safetensors"},
        {r"gemma": "gemma"},
        "model.diffusion_model.",
    ),
    "ovis-image": Family(
        ovis_image.save_models,
        {r"ovis_image": "ovis"},
        {r"ae\.": "ae.safetensors"},
        {r"ovis": "qwen"},
    ),
    "ace-step": Family(
        ace_step.save_models,
        {r"acestep_v1\.5": "ace"},
        {r"ace_1\.5": "oobleck"},
        {r"qwen": "qwen"},
    ),
    "chroma": Family(
        chroma.save_models,
        {r"chroma(?!.*radiance)": "chroma.safetensors"},
        {r"ae\.": "ae.safetensors"},
        {r"t5xxl": "t5xxl.safetensors"},
    ),
}


@cache
def saved(name: str) -> Path:
    """The folder with a family's tiny models."""
    folder = Path(tempfile.mkdtemp(prefix="inline-templates-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    FAMILIES[name].save(folder)
    return folder


def families_of(files: Iterable[NamedFile]) -> list[str]:
    """The families whose models a template names.  Raises: NoStandIn."""
    found: dict[str, None] = {}
    for file in files:
        if file.category in {"diffusion_models", "checkpoints"}:
            found[_family_of(file.name)] = None
    return list(found)


def _family_of(name: str) -> str:
    plain = name.rsplit("/", 1)[-1].lower()
    for family, told in FAMILIES.items():
        if any(re.search(pattern, plain) for pattern in told.models):
            return family
    raise NoStandIn(name)


def lay_out(files: Iterable[NamedFile], folder: Path) -> None:
    """Put stand-ins for all files of a template into a models folder.  Raises: NoStandIn."""
    files = list(files)
    families = families_of(files)
    folder.mkdir(parents=True, exist_ok=True)
    for family in families:
        # With what is found without being named: tokenizers, connectors, sounds, vision.
        shutil.copytree(saved(family), folder, dirs_exist_ok=True)
    for file in files:
        target = folder / file.category / file.name
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            _lay(file, families, target)
    tiny.settle(folder)


def _lay(file: NamedFile, families: list[str], target: Path) -> None:
    plain = file.name.rsplit("/", 1)[-1].lower()
    if file.category in {"diffusion_models", "checkpoints"}:
        family = _family_of(file.name)
        told = FAMILIES[family]
        source = _named(told.models, plain)
        category = "" if "/" in source else "diffusion_models"
        _copy(saved(family) / category / source, target, prefix=_prefix(told, file.category))
        return
    if file.category in {"vae", "text_encoders"}:
        for family in families:
            told = FAMILIES[family]
            table = told.vaes if file.category == "vae" else told.encoders
            source = _named(table, plain)
            if source:
                _copy(saved(family) / file.category / source, target)
                return
    if file.category == "loras":
        save_adapter(target, families)
        return
    if file.category == "clip_vision":
        found = [path for family in families for path in saved(family).glob("clip_vision/*")]
        if found:
            _copy(found[0], target)
            return
    # Those of VideoX-Fun are other networks.
    if file.category == "controlnet" and "qwen-image" in families and "fun" not in plain:
        tiny.save(qwen_image.controlnet(masked="inpaint" in plain).state_dict(), target)
        return
    maker = _OTHERS.get(file.category)
    if maker is None:
        raise NoStandIn(f"{file.category}/{file.name}")
    maker(target)


def _named(table: Mapping[str, str], name: str) -> str:
    return next((source for pattern, source in table.items() if re.search(pattern, name)), "")


def _prefix(told: Family, category: str) -> str:
    return told.as_checkpoint if category == "checkpoints" else ""


def _copy(source: Path, target: Path, prefix: str = "") -> None:
    tokens = source.with_name(f"{source.stem}.tokenizer")
    if tokens.is_dir():
        beside = target.with_name(f"{target.stem}.tokenizer")
        shutil.copytree(tokens, beside, dirs_exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target)
    elif prefix:
        tiny.save({f"{prefix}{name}": value for name, value in load_file(source).items()}, target)
    else:
        shutil.copyfile(source, target)


def save_adapter(target: Path, families: list[str]) -> None:
    """A LoRA of one linear of the first family's model."""
    generator = torch.Generator().manual_seed(3)
    keys: dict[str, torch.Tensor] = {}
    for family in families:
        for source in sorted(saved(family).glob("diffusion_models/*.safetensors")):
            state = load_file(source)
            linears = [
                n for n, v in state.items() if v.ndim == 2 and "attn" in n and "norm" not in n
            ]
            for name in linears[:1]:
                rows, columns = state[name].shape
                stem = f"diffusion_model.{name.removesuffix('.weight')}"
                stem = stem.replace("diffusion_model.model.diffusion_model.", "diffusion_model.")
                keys[f"{stem}.lora_A.weight"] = torch.randn((2, columns), generator=generator) * 0.1
                keys[f"{stem}.lora_B.weight"] = torch.randn((rows, 2), generator=generator) * 0.1
            break
    if not keys:
        raise NoStandIn(target.name)
    tiny.save(keys, target)


def _upscaler(target: Path) -> None:
    tiny.save(old_spelling(rrdb_state(), 2), target)


def latent_upscaler(target: Path) -> None:
    """A latent upscaler of LTX-2, of the default kind but narrow."""
    torch.manual_seed(4)
    model = LTX2LatentUpsamplerModel(in_channels=128, mid_channels=32, num_blocks_per_stage=1)
    tiny.randomise(model, 0.05)
    tiny.save(dict(model.state_dict()), target)


_OTHERS: Final[Mapping[str, Callable[[Path], None]]] = {
    "upscale_models": _upscaler,
    "latent_upscale_models": latent_upscaler,
}
