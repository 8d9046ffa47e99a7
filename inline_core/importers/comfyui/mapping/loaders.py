"""Nodes that name files: models, encoders, VAEs, adapters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from inline_core.importers.comfyui.mapping.step import Entry, Outputs, Step, Unsupported
from inline_core.importers.comfyui.mapping.values import Constant, Value, Wire

_PLACED: Final = "where weights go, and in what precision, is for this server's device policy"
_STRONGEST: Final = 20.0
_ENCODER_PARAMS: Final = ("file", "file_2", "file_3", "file_4")
_PSEUDO_VAES: Final = ("taesd", "taesdxl", "taesd3", "taef1", "taef2", "taeltx", "taew", "lighttae")


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file that is only of use to the node that gets it."""

    category: str
    name: str


def file_of(step: Step, name: str, category: str) -> str:
    """The model file that an input names.  Raises: Unsupported if it names none."""
    value = step.constant(name)
    if not isinstance(value, str) or not value:
        message = f"its input {name!r} names no file"
        raise Unsupported(message)
    return step.uses_file(category, value)


def diffusion_model(step: Step) -> Outputs:
    """UNETLoader."""
    if step.word("weight_dtype", "default") != "default":
        step.warn(f"weight_dtype is not used: {_PLACED}")
    file = file_of(step, "unet_name", "diffusion_models")
    inputs = {"file": step.taken("unet_name", file), "schedule": "comfyui"}
    added = step.add("load/diffusion-model", inputs)
    return [added.out("model")]


def checkpoint(step: Step) -> Outputs:
    """CheckpointLoaderSimple."""
    file = file_of(step, "ckpt_name", "checkpoints")
    inputs = {"file": step.taken("ckpt_name", file), "schedule": "comfyui"}
    added = step.add("load/checkpoint", inputs)
    return [added.out("model"), added.out("text_encoder"), added.out("vae")]


def image_only_checkpoint(step: Step) -> Outputs:
    """ImageOnlyCheckpointLoader: its CLIP vision goes with the model."""
    file = file_of(step, "ckpt_name", "checkpoints")
    inputs = {"file": step.taken("ckpt_name", file), "schedule": "comfyui"}
    added = step.add("load/checkpoint", inputs)
    return [added.out("model"), Constant(NamedFile("checkpoints", file)), added.out("vae")]


def vae(step: Step) -> Outputs:
    """VAELoader."""
    name = step.constant("vae_name")
    if isinstance(name, str) and name == "pixel_space":
        message = "pixel_space stands for models that have no VAE, which are not available here"
        raise Unsupported(message)
    if isinstance(name, str) and name.split(".")[0].rstrip("_0123456789") in _PSEUDO_VAES:
        message = f"the tiny autoencoder {name!r} is used for previews only here"
        raise Unsupported(message, "load the VAE of the model")
    file = step.taken("vae_name", file_of(step, "vae_name", "vae"))
    return [step.add("load/vae", {"file": file}).out("vae")]


def encoders(*names: str) -> Entry:
    """An entry for a loader of text encoders; the family of the model says how prompts are read."""

    def convert(step: Step) -> Outputs:
        files = [step.taken(name, file_of(step, name, "text_encoders")) for name in names]
        params: dict[str, Any] = dict(zip(_ENCODER_PARAMS, files, strict=False))
        return [step.add("load/text-encoder", params).out("text_encoder")]

    return convert


def dual_encoder(step: Step) -> Outputs:
    """DualCLIPLoader; of ACE-Step the second is the language model that plans music first."""
    if step.constant("type") == "ace":
        step.warn("the language model that plans the music first is not loaded: it is not run here")
        return encoders("clip_name1")(step)
    return encoders("clip_name1", "clip_name2")(step)


def ltx_encoder(step: Step) -> Outputs:
    """LTXAVTextEncoderLoader: the projections of the checkpoint go with the model."""
    file = file_of(step, "text_encoder", "text_encoders")
    file_of(step, "ckpt_name", "checkpoints")
    return [step.add("load/text-encoder", {"file": file}).out("text_encoder")]


def ltx_audio_vae(step: Step) -> Outputs:
    """LTXVAudioVAELoader: the sound of a video is decoded with the parts that go with its model."""
    file = file_of(step, "ckpt_name", "checkpoints")
    return [Constant(NamedFile("checkpoints", file))]


def clip_vision(step: Step) -> Outputs:
    """CLIPVisionLoader: the vision encoder that a model was trained with is found for it."""
    file = file_of(step, "clip_name", "clip_vision")
    return [Constant(NamedFile("clip_vision", file))]


def controlnet(step: Step) -> Outputs:
    """ControlNetLoader."""
    file = step.taken("control_net_name", file_of(step, "control_net_name", "controlnet"))
    return [step.add("load/controlnet", {"file": file}).out("controlnet")]


def model_patch(step: Step) -> Outputs:
    """ModelPatchLoader: what the file is for is known by the node that puts it on."""
    return [Constant(NamedFile("model_patches", file_of(step, "name", "model_patches")))]


def latent_upscaler(step: Step) -> Outputs:
    """LatentUpscaleModelLoader."""
    name = file_of(step, "model_name", "latent_upscale_models")
    return [Constant(NamedFile("latent_upscale_models", name))]


def lora(step: Step) -> Outputs:
    """LoraLoaderModelOnly."""
    return [_adapted(step, step.needed("model"))]


def lora_with_encoder(step: Step) -> Outputs:
    """LoraLoader: here what of a file is for text encoders goes on with what is for the model."""
    model, clip = _strength(step, "strength_model"), _strength(step, "strength_clip")
    if model != clip:
        step.warn(
            f"strength_clip {clip:g} is not used: the text encoder's part counts with the "
            f"strength of the model, {model:g}"
        )
    return [_adapted(step, step.needed("model")), step.value("clip")]


def _strength(step: Step, name: str) -> float:
    value = step.constant(name, 1.0)
    return float(value) if isinstance(value, int | float) else 1.0


def _adapted(step: Step, model: Value) -> Value:
    file = file_of(step, "lora_name", "loras")
    strength = step.value("strength_model")
    if isinstance(strength, Constant):
        number = _strength(step, "strength_model")
        if abs(number) > _STRONGEST:
            message = f"a strength of {number:g} is beyond -{_STRONGEST:g} to {_STRONGEST:g}"
            raise Unsupported(message)
        if number == 0:
            step.ignore("a LoRA of strength 0 does nothing")
            return model
    named = step.taken("lora_name", file)
    inputs: dict[str, Any] = {"model": model, "file": named, "strength": strength}
    result = step.add("lora/apply", inputs).out("model")
    assert isinstance(result, Wire)
    return result


ENTRIES: Final[Mapping[str, Entry]] = {
    "UNETLoader": diffusion_model,
    "CheckpointLoaderSimple": checkpoint,
    "ImageOnlyCheckpointLoader": image_only_checkpoint,
    "VAELoader": vae,
    "CLIPLoader": encoders("clip_name"),
    "DualCLIPLoader": dual_encoder,
    "TripleCLIPLoader": encoders("clip_name1", "clip_name2", "clip_name3"),
    "QuadrupleCLIPLoader": encoders("clip_name1", "clip_name2", "clip_name3", "clip_name4"),
    "LTXAVTextEncoderLoader": ltx_encoder,
    "LTXVAudioVAELoader": ltx_audio_vae,
    "CLIPVisionLoader": clip_vision,
    "ControlNetLoader": controlnet,
    "ModelPatchLoader": model_patch,
    "LatentUpscaleModelLoader": latent_upscaler,
    "LoraLoaderModelOnly": lora,
    "LoraLoader": lora_with_encoder,
}
