"""What Kandinsky 5 is, without torch: its latent space, its schedule, its defaults."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from inline_core.devices.budget import Workload
from inline_core.errors import InvalidParam
from inline_core.families.published import clip_l, one_file, split_file, tokenizer, weights
from inline_core.loading.component import Role
from inline_core.loading.rules import EncoderNeed, FamilyRules
from inline_core.sampling.family import LatentSpace, ModelFamily, PassSize, ScheduleFor
from inline_core.sampling.footprint import video_workload
from inline_core.sampling.job import SampleJob
from inline_core.sampling.offer import Offer
from inline_core.sampling.sigmas.tables import FlowTable, size_for

# Of AutoencoderKLHunyuanVideo; the scaling is in no shape.
SPACE: Final = LatentSpace("hunyuan", channels=16, factor=8, scaling=0.476986, frame_factor=4)
_VAE: Final = "autoencoder-kl-hunyuan-video"
_QWEN: Final = EncoderNeed("qwen2.5-vl", size_of="in_text_dim")
_CLIP: Final = EncoderNeed("clip", "l", size_of="in_text_dim2")
_TEXT_FILE: Final = "qwen_2.5_vl_7b_fp8_scaled"
_FPS: Final = 24.0
RULES: Final = FamilyRules(
    name="kandinsky-5",
    label="Kandinsky 5",
    vae_family=_VAE,
    latent_channels=SPACE.channels,
    text_encoders=(_QWEN, _CLIP),
    model_channels="",
    # Of Kandinsky5T2VPipeline and its example.
    defaults=MappingProxyType(
        {"": {"width": 768, "height": 512, "frames": 121, "steps": 50, "guidance": 5.0}}
    ),
    requirements=(
        weights(
            Role.DIFFUSION_MODEL,
            one_file(
                "kandinskylab/Kandinsky-5.0-T2V-Lite-sft-5s",
                "model/kandinsky5lite_t2v_sft_5s.safetensors",
            ),
            8_900_000_000,
        ),
        weights(
            Role.VAE,
            one_file("Kijai/HunyuanVideo_comfy", "hunyuan_video_vae_bf16.safetensors"),
            493_000_000,
        ),
        weights(
            Role.TEXT_ENCODER,
            split_file(
                Role.TEXT_ENCODER, "Comfy-Org/Qwen-Image_ComfyUI", f"{_TEXT_FILE}.safetensors"
            ),
            9_380_000_000,
            of="Qwen2.5-VL",
            number=2,
            encoder=_QWEN,
        ),
        tokenizer(
            "Qwen/Qwen2.5-VL-7B-Instruct",
            _TEXT_FILE,
            7_030_000,
            of="Qwen2.5-VL",
            number=2,
            encoder=_QWEN,
        ),
        *clip_l(_CLIP),
    ),
)

_PATCH_PIXELS: Final = 16  # latent factor 8, patches of 2
_TEXT_TOKENS: Final = 512
_ENCODER_LAYERS: Final = 28  # of Qwen2.5-VL 7B
# Of the published scheduler, and of the official template.
_SHIFT: Final = 5.0
# Places that its positions go up to, in each direction.
_PLACES: Final = 128


def table(wanted: ScheduleFor) -> FlowTable:
    """Kandinsky 5's sigmas: one shift for all sizes."""
    return FlowTable(_SHIFT, multiplier=1000.0, size=size_for(wanted.steps))


def workload(size: PassSize) -> Workload:
    """The places of a video go through the blocks, the words beside."""
    places = (size.frames - 1) // SPACE.frame_factor + 1
    places *= (size.width // _PATCH_PIXELS) * (size.height // _PATCH_PIXELS)
    geometry = size.geometry
    return video_workload(
        tokens=(places + _TEXT_TOKENS) * size.members,
        width=geometry["model_dim"],
        ffn_width=geometry["ff_dim"],
        text=(_TEXT_TOKENS, geometry["in_text_dim"], _ENCODER_LAYERS),
        size=(size.width, size.height, size.frames),
        channels=size.decoder_channels,
    )


def check(job: SampleJob, _: Mapping[str, int]) -> None:
    """Raise InvalidParam for a video beyond the model's positions."""
    latent = job.latent
    sides = {"width": latent.width // _PATCH_PIXELS, "height": latent.height // _PATCH_PIXELS}
    counts = {**sides, "frames": (latent.frames - 1) // SPACE.frame_factor + 1}
    for name, count in counts.items():
        if count > _PLACES:
            most = (_PLACES - 1) * SPACE.frame_factor + 1
            limit = most if name == "frames" else _PLACES * _PATCH_PIXELS
            message = f"Kandinsky 5 makes videos of at most {limit} {name}"
            raise InvalidParam(message, param=name)


KANDINSKY_5: Final = ModelFamily(
    rules=RULES,
    space=SPACE,
    table=table,
    size_multiple=_PATCH_PIXELS,
    frame_multiple=SPACE.frame_factor,
    runtime="inline_core.families.kandinsky5.components",
    workload=workload,
    modules=MappingProxyType({(Role.VAE, _VAE): "inline_core.families.kandinsky5.vae"}),
    check=check,
    offers=(
        Offer("kandinskylab/kandinsky-5", "Kandinsky 5", output="video", fps=_FPS, fps_free=True),
    ),
)
FAMILIES: Final = (KANDINSKY_5,)
