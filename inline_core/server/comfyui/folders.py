"""Which files an input of a ComfyUI node may name: models, and what lies in the input folder."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from inline_core.loading.rules import CATEGORIES, CATEGORY_ALIASES
from inline_core.media.kinds import MediaKind, format_of
from inline_core.server.services import Services

_MAX_FILES: Final = 20_000

# Where the files lie that an input names, by its name; some names mean different things in
# different nodes.  Folders that we have none of have no files.
_FOLDER_OF_INPUT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ckpt_name": "checkpoints",
        "unet_name": "diffusion_models",
        "vae_name": "vae",
        "clip_name": "text_encoders",
        "clip_name1": "text_encoders",
        "clip_name2": "text_encoders",
        "clip_name3": "text_encoders",
        "clip_name4": "text_encoders",
        "text_encoder": "text_encoders",
        "lora_name": "loras",
        "control_net_name": "controlnet",
        "style_model_name": "style_models",
        "audio_encoder_name": "audio_encoders",
        "bg_removal_name": "background_removal",
        "conditioning_name": "conditioning",
        "gligen_name": "gligen",
        "hypernetwork_name": "hypernetworks",
    }
)
_FOLDER_OF_NODE: Final[Mapping[tuple[str, str], str]] = MappingProxyType(
    {
        ("CLIPVisionLoader", "clip_name"): "clip_vision",
        ("ModelPatchLoader", "name"): "model_patches",
        ("UpscaleModelLoader", "model_name"): "upscale_models",
        ("LatentUpscaleModelLoader", "model_name"): "latent_upscale_models",
        ("LoadMoGeModel", "model_name"): "geometry_estimation",
        ("LoadDA3Model", "model_name"): "geometry_estimation",
        ("FrameInterpolationModelLoader", "model_name"): "frame_interpolation",
        ("OpticalFlowLoader", "model_name"): "optical_flow",
        ("SAM3DBody_Loader", "model_file"): "detection",
        ("LTXVAudioVAELoader", "ckpt_name"): "checkpoints",
    }
)
INPUT_FILES: Final[Mapping[tuple[str, str], MediaKind]] = MappingProxyType(
    {
        ("LoadImage", "image"): MediaKind.IMAGE,
        ("LoadImageMask", "image"): MediaKind.IMAGE,
        ("LoadVideo", "file"): MediaKind.VIDEO,
        ("LoadAudio", "audio"): MediaKind.AUDIO,
    }
)


def model_folder(class_type: str, name: str) -> str | None:
    """The category of the models folder that an input picks from; None if it picks no model."""
    found = _FOLDER_OF_NODE.get((class_type, name))
    return found if found is not None else _FOLDER_OF_INPUT.get(name)


def model_names(services: Services, folder: str) -> list[str]:
    """The files that a picker of this folder offers, whether or not they are ready."""
    category = CATEGORY_ALIASES.get(folder, folder)
    if category not in CATEGORIES:
        return []
    names = (file.name for file in services.catalog.pickable(category))
    return sorted(dict.fromkeys(names))


def folder_names() -> list[str]:
    """The categories there are, as ComfyUI calls them."""
    return list(CATEGORIES)


def input_names(folder: Path, kind: MediaKind) -> list[str]:
    """Media of one kind in the input folder, by their names inside it."""
    found: list[str] = []
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        below = Path(root).relative_to(folder)
        for name in names:
            known = format_of(_extension(name))
            if known is not None and known.kind is kind and not name.startswith("."):
                found.append((below / name).as_posix())
        if len(found) > _MAX_FILES:
            break
    return sorted(found)


def _extension(name: str) -> str:
    extension = name.rpartition(".")[2].lower()
    return {"jpeg": "jpg", "jpe": "jpg", "tif": "tiff", "m4v": "mp4", "oga": "ogg"}.get(
        extension, extension
    )


def media_type_of_name(name: str) -> str:
    """The MIME type of a file by its name; nothing that a browser would run."""
    known = format_of(_extension(name))
    return known.media_type if known is not None else "application/octet-stream"


def offered(services: Services, class_type: str, name: str, options: Sequence[str]) -> list[str]:
    """Everything a file picker offers now: what is declared, and the files that are there."""
    kind = INPUT_FILES.get((class_type, name))
    if kind is not None:
        return [*options, *input_names(services.settings.input_folder, kind)]
    folder = model_folder(class_type, name)
    return [*options, *(model_names(services, folder) if folder is not None else ())]
