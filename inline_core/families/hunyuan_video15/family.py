"""What HunyuanVideo 1.5 is, without torch: its latent space, its schedules, its variants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from inline_core.devices.budget import Workload
from inline_core.errors import InvalidParam
from inline_core.families.autoencoders.hunyuan15_spaces import HUNYUAN_15, tile_side
from inline_core.families.published import one_file, split_file, tokenizer, weights
from inline_core.loading.architectures.hunyuan_video import MEAN_FLOW
from inline_core.loading.component import Role
from inline_core.loading.rules import EncoderNeed, FamilyRules
from inline_core.sampling.family import ModelFamily, PassSize, ScheduleFor
from inline_core.sampling.footprint import encoder_values, transformer_values
from inline_core.sampling.job import SampleJob
from inline_core.sampling.offer import Offer, Told
from inline_core.sampling.sigmas.tables import FlowTable

_REPO: Final = "Comfy-Org/HunyuanVideo_1.5_repackaged"
_TEXT: Final = "t2v"
_PICTURE: Final = "i2v"


def _defaults(size: tuple[int, int], guidance: float) -> Mapping[str, Any]:
    """Guidance 1 means none."""
    width, height = size
    return MappingProxyType(
        {"width": width, "height": height, "frames": 121, "steps": 50, "guidance": guidance}
    )


# 16:9 in the buckets of HunyuanVideo15ImageProcessor for 640 and 960 pixels.
_SMALL: Final = (848, 480)
_LARGE: Final = (1280, 720)
# Of the model's card.  Files do not tell these apart: nodes say what they are for, users the rest.
_VARIANTS: Final = MappingProxyType(
    {
        f"{kind}{size}{how}": _defaults(pixels, guidance)
        for kind in (_TEXT, _PICTURE)
        for size, pixels in (("", _LARGE), ("-480p", _SMALL), ("-720p", _LARGE))
        for how, guidance in (("", 6.0), ("-distilled", 1.0))
        if size or not how
    }
)
_BYT5: Final = EncoderNeed("byt5", size_of="text_embed_2_dim", optional=True)
_QWEN: Final = EncoderNeed("qwen2.5-vl", size_of="text_embed_dim")
RULES: Final = FamilyRules(
    name="hunyuan-video-1.5",
    label="HunyuanVideo 1.5",
    vae_family="autoencoder-kl-hunyuan-video-1.5",
    latent_channels=HUNYUAN_15.channels,
    text_encoders=(_QWEN, _BYT5),
    model_channels="",
    parts=MappingProxyType({Role.CLIP_VISION: "siglip-vision"}),
    defaults=_VARIANTS,
    requirements=(
        weights(
            Role.DIFFUSION_MODEL,
            split_file(Role.DIFFUSION_MODEL, _REPO, "hunyuanvideo1.5_720p_t2v_fp16.safetensors"),
            16_700_000_000,
            of="720p text to video",
        ),
        weights(
            Role.VAE,
            split_file(Role.VAE, _REPO, "hunyuanvideo15_vae_fp16.safetensors"),
            2_520_000_000,
        ),
        weights(
            Role.TEXT_ENCODER,
            split_file(Role.TEXT_ENCODER, _REPO, "qwen_2.5_vl_7b_fp8_scaled.safetensors"),
            9_380_000_000,
            of="Qwen2.5-VL",
            encoder=_QWEN,
        ),
        tokenizer(
            "Qwen/Qwen2.5-VL-7B-Instruct",
            "qwen_2.5_vl_7b_fp8_scaled",
            7_030_000,
            of="Qwen2.5-VL",
            encoder=_QWEN,
        ),
        weights(
            Role.TEXT_ENCODER,
            split_file(Role.TEXT_ENCODER, _REPO, "byt5_small_glyphxl_fp16.safetensors"),
            439_000_000,
            of="ByT5, for text in quotes",
            number=2,
            encoder=_BYT5,
        ),
        replace(
            weights(
                Role.CLIP_VISION,
                one_file("Comfy-Org/sigclip_vision_384", "sigclip_vision_patch14_384.safetensors"),
                857_000_000,
                of="for image to video",
            ),
            optional=True,
        ),
    ),
)

_TEXT_TOKENS: Final = 1000 + 256
_PLACES_SEEN: Final = 729
_ENCODER_LAYERS: Final = 28  # of Qwen2.5-VL 7B
_FFN: Final = 4
# The last stage of the decoder at full resolution, half as wide as what enters it: input, output,
# residual, and what the norm takes in float32.  Counted in the code, not measured.
_DECODER_COPIES: Final = 3
_FINISHED_COPIES: Final = 5
_COLOURS: Final = 3
# Of the model's card: videos of 480 lines, and of 720 lines from text and from a picture.
_SHIFT: Final = 5.0
_SHIFT_LARGE: Final = MappingProxyType({_TEXT: 9.0, _PICTURE: 7.0})
_MANY_PIXELS: Final = _SMALL[0] * _SMALL[1] * 3 // 2
_MULTIPLIER: Final = 1000.0


def table(wanted: ScheduleFor) -> FlowTable:
    """HunyuanVideo 1.5's sigmas: a larger shift for models of 720 lines.

    Where nobody says which one a model is, the size of the video does; a model that nobody says
    more of counts as one that makes videos from text.
    """
    kind, *rest = (wanted.variant or _TEXT).split("-")
    large = wanted.width * wanted.height > _MANY_PIXELS
    if rest:
        large = rest[0] == "720p"
    shift = _SHIFT_LARGE.get(kind, _SHIFT_LARGE[_TEXT]) if large else _SHIFT
    return FlowTable(shift, _MULTIPLIER)


def workload(size: PassSize) -> Workload:
    """A latent is a token; the decoder works on all frames of a tile at once."""
    geometry = size.geometry
    _, frames, height, width = HUNYUAN_15.shape(size.width, size.height, size.frames)
    tokens = frames * height * width + _TEXT_TOKENS + _PLACES_SEEN
    wide = geometry["num_attention_heads"] * geometry["attention_head_dim"]
    pixels, side = size.width * size.height, tile_side(size.frames)
    tile = min(size.width, side) * min(size.height, side)
    each = _DECODER_COPIES * size.decoder_channels * size.frames
    finished = _FINISHED_COPIES * _COLOURS * pixels * size.frames
    return Workload(
        encode_values=encoder_values(_TEXT_TOKENS, geometry["text_embed_dim"], _ENCODER_LAYERS),
        denoise_values=transformer_values(tokens * size.members, wide, _FFN * wide),
        decode_values=each * pixels,
        tiled_decode_values=each * tile + finished,
    )


def check(job: SampleJob, geometry: Mapping[str, int]) -> None:
    """Raise InvalidParam for kin that other steps are made for, and for what no model can do."""
    name = job.model.name
    if geometry.get(MEAN_FLOW):
        message = (
            f"{name} is {RULES.label} distilled to few steps (it takes the time of the next step, "
            "too), which cannot be run here yet: use one that is not distilled to few steps"
        )
        raise InvalidParam(message, param="model")
    if geometry["in_channels"] != 2 * geometry["out_channels"] + 1:
        message = f"{name} is {RULES.label} for larger videos, which cannot be run here yet"
        raise InvalidParam(message, param="model")


def _offer(name: str, title: str, kind: str, **more: Any) -> Offer:
    told = [
        Told(f"{kind}-{size}{how}", f"{size}{label}")
        for size in ("480p", "720p")
        for how, label in (("", ""), ("-distilled", ", distilled (no guidance)"))
    ]
    return Offer(
        f"tencent/hunyuanvideo-1-5-{name}",
        f"HunyuanVideo 1.5 {title}",
        output="video",
        told=tuple(told),
        assumed=kind,
        size=(64, 4096),
        fps=24.0,
        **more,
    )


HUNYUAN_VIDEO_15: Final = ModelFamily(
    rules=RULES,
    space=HUNYUAN_15,
    table=table,
    size_multiple=16,
    frame_multiple=4,
    runtime="inline_core.families.hunyuan_video15.components",
    workload=workload,
    looks_at_references=True,
    check=check,
    offers=(
        _offer("text-to-video", "Text to Video", _TEXT),
        _offer(
            "image-to-video",
            "Image to Video",
            _PICTURE,
            takes=("first_frame",),
            between="nothing",
        ),
    ),
)
FAMILIES: Final = (HUNYUAN_VIDEO_15,)
