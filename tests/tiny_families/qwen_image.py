"""Qwen-Image: a transformer file, the VAE of Wan 2.1, Qwen2.5-VL with a tower."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from diffusers import (
    FlowMatchEulerDiscreteScheduler,
    QwenImageControlNetModel,
    QwenImageEditPipeline,
    QwenImageEditPlusPipeline,
    QwenImagePipeline,
    QwenImageTransformer2DModel,
)
from tokenizers.pre_tokenizers import ByteLevel
from transformers import (
    BatchFeature,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2Tokenizer,
    Qwen2VLImageProcessorPil,
)

from inline_core.families.qwen_image.text import EDIT_PREFIX, PREFIX
from tests import original_layouts, tiny
from tests.tiny_families import FamilyRun, krea2

NAME: Final = "qwen-image"
HIDDEN: Final = 32
SPECIALS: Final = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
TRANSFORMER: Final[Mapping[str, Any]] = {
    "in_channels": 64,
    "out_channels": 16,
    "num_layers": 2,
    "attention_head_dim": 16,
    "num_attention_heads": 2,
    "joint_attention_dim": HIDDEN,
    "axes_dims_rope": (4, 6, 6),
}
SMALLER: Final = (("inline_core.families.qwen_image.pictures.REFERENCE_PIXELS", 128 * 128),)
RUNS: Final = (
    FamilyRun("qwen/qwen-image", {"steps": 3, "guidance": 1.0}, same_as={"cfg": 1.0}),
    FamilyRun("qwen/qwen-image", {"steps": 2}, size=(96, 64)),
    FamilyRun(
        "qwen/qwen-image",
        {"steps": 4, "strength": 0.5, "guidance": 1.0},
        size=(96, 64),
        images={"image": (100, 70)},
        masks={"mask": (100, 70)},
    ),
    FamilyRun("qwen/qwen-image-edit-plus", {"steps": 1}, images={"image": (64, 64)}),
)


def transformer() -> QwenImageTransformer2DModel:
    """A transformer with weights big enough to move the picture."""
    torch.manual_seed(40)
    model = QwenImageTransformer2DModel(**TRANSFORMER)
    tiny.randomise(model, 0.25)
    return model.eval()


def controlnet(*, masked: bool = False, layers: int = 1) -> QwenImageControlNetModel:
    """A ControlNet whose outputs move the picture; `masked` ones are for inpainting."""
    torch.manual_seed(3)
    extra = 4 if masked else 0  # a mask in patches of 2 x 2
    model = QwenImageControlNetModel(
        **{**TRANSFORMER, "num_layers": layers}, extra_condition_channels=extra
    )
    tiny.randomise(model, 0.25)
    return model.eval()


def tokenizer() -> Qwen2Tokenizer:
    """A byte-level tokenizer with the tokens of vision."""
    vocab = {character: index for index, character in enumerate(sorted(ByteLevel.alphabet()))}
    for token in SPECIALS:
        vocab[token] = len(vocab)
    return Qwen2Tokenizer(vocab=vocab, merges=[], extra_special_tokens=list(SPECIALS[1:]))


def text_encoder(layers: int = 2) -> Qwen2_5_VLForConditionalGeneration:
    """A Qwen2.5-VL of two layers, and a tower of one."""
    torch.manual_seed(41)
    ids = {
        name: tokenizer().convert_tokens_to_ids(f"<|{name}_pad|>") for name in ("image", "video")
    }
    config = Qwen2_5_VLConfig(
        text_config={
            "vocab_size": 272,
            "hidden_size": HIDDEN,
            "intermediate_size": 48,
            "num_hidden_layers": layers,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "rms_norm_eps": 1e-6,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1_000_000.0,
                "mrope_section": [2, 3, 3],
            },
        },
        vision_config={
            "depth": 1,
            "hidden_size": 32,
            "intermediate_size": 32,
            "num_heads": 2,
            "out_hidden_size": HIDDEN,
            "fullatt_block_indexes": [0],
        },
        image_token_id=ids["image"],
        video_token_id=ids["video"],
    )
    model = Qwen2_5_VLForConditionalGeneration(config)
    tiny.randomise(model, 0.15)
    return model.eval()


def save_text_encoder(folder: Path, layers: int = 2) -> None:
    """A Hugging Face folder, since the tower's heads are in no shape."""
    target = folder / "text_encoders/qwen25vl"
    text_encoder(layers).save_pretrained(target)
    tokenizer().save_pretrained(target)


def save_models(folder: Path) -> None:
    """`qwen.safetensors`, `qwen_image_vae.safetensors` and the encoder folder `qwen25vl`."""
    tiny.save(transformer().state_dict(), folder / "diffusion_models/qwen.safetensors")
    keys = original_layouts.wan_vae(dict(krea2.vae().state_dict()))
    tiny.save(keys, folder / "vae/qwen_image_vae.safetensors")
    save_text_encoder(folder)
    tiny.settle(folder)


class PictureProcessor:
    """What Qwen2VLProcessor does with texts and pictures; its own wants torchvision."""

    def __init__(self, words: Qwen2Tokenizer) -> None:
        self._words = words
        self._pictures = Qwen2VLImageProcessorPil(
            size={"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 16384}
        )

    def __call__(self, text: list[str], images: Any, padding: bool, return_tensors: str) -> Any:
        pictures = images if isinstance(images, list) else [images]
        shown = self._pictures(images=pictures, return_tensors=return_tensors)
        whole = text[0]
        for count in (shown["image_grid_thw"].prod(-1) // 4).tolist():
            whole = whole.replace("<|image_pad|>", "<|video_pad|>" * count, 1)
        whole = whole.replace("<|video_pad|>", "<|image_pad|>")
        words = self._words([whole], padding=padding, return_tensors=return_tensors)
        return BatchFeature({**words, **shown})


def scheduler() -> FlowMatchEulerDiscreteScheduler:
    """As the published scheduler_config.json has it."""
    return FlowMatchEulerDiscreteScheduler(
        use_dynamic_shifting=True,
        base_shift=0.5,
        max_shift=0.9,
        base_image_seq_len=256,
        max_image_seq_len=8192,
        shift_terminal=0.02,
    )


def pipeline(kind: str = "") -> Any:
    """QwenImagePipeline, or that of `edit` or `edit-plus`.

    The lengths of its template are those of the test's tokenizer, and its text encoder is told
    where the pictures are, as it was before transformers 5.
    """
    words = tokenizer()
    parts: dict[str, Any] = {
        "scheduler": scheduler(),
        "vae": krea2.picture_vae(),
        "text_encoder": text_encoder(),
        "tokenizer": words,
        "transformer": transformer(),
    }
    if not kind:
        pipe: Any = QwenImagePipeline(**parts)
        pipe.prompt_template_encode_start_idx = len(words(PREFIX).input_ids)
        return pipe
    parts["processor"] = PictureProcessor(words)
    pipe = (QwenImageEditPipeline if kind == "edit" else QwenImageEditPlusPipeline)(**parts)
    pipe.prompt_template_encode_start_idx = len(words(EDIT_PREFIX).input_ids)
    inner = pipe.text_encoder.forward
    pad = words.convert_tokens_to_ids("<|image_pad|>")

    def told(input_ids: torch.Tensor, **more: Any) -> Any:
        return inner(input_ids=input_ids, mm_token_type_ids=(input_ids == pad).int(), **more)

    pipe.text_encoder.forward = told
    return pipe
