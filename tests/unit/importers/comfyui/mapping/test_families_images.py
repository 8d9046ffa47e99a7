"""Nodes of families of picture models."""

from __future__ import annotations

from typing import Any

import pytest

from inline_core.importers.comfyui.converting import NodeState
from tests.unit.importers.comfyui.mapping.prompts import converted, nodes_of, report_of, step


def qwen(**inputs: Any) -> dict[str, Any]:
    """A prompt of Qwen-Image 2.1 with two pictures at hand."""
    values: dict[str, Any] = {"prompt": "red", "negative_prompt": "", "clip": ["c", 0], **inputs}
    return {
        "m": step("UNETLoader", unet_name="m.safetensors", weight_dtype="default"),
        "c": step("CLIPLoader", clip_name="m.safetensors", type="qwen_image"),
        "v": step("VAELoader", vae_name="m.safetensors"),
        "i": step("LoadImage", image="a.png"),
        "j": step("LoadImage", image="b.png"),
        "e": step("TextEncodeQwenImage21", **values),
        "k": step(
            "KSampler",
            model=["m", 0],
            positive=["e", 0],
            negative=["e", 1],
            latent_image=["e", 2],
            seed=1,
            steps=2,
            cfg=1.0,
            sampler_name="euler",
            scheduler="simple",
            denoise=1.0,
        ),
        "d": step("VAEDecode", samples=["k", 0], vae=["v", 0]),
        "s": step("SaveImage", images=["d", 0], filename_prefix="x"),
    }


@pytest.mark.parametrize(("resolution", "side"), [(512, 512), (0, 1024)])
def test_words_alone_come_with_an_empty_latent(resolution: int, side: int) -> None:
    nodes = nodes_of(converted(qwen(resolution=resolution)))
    assert nodes["e/latent"] == {"type": "latent/empty", "width": side, "height": side}
    assert nodes["e/prompt"]["prompt"] == "e/text.text"
    assert nodes["e/text"]["text"] == "red"
    assert nodes["k"]["latent"] == "e/latent.latent"
    assert nodes["k"]["negative"] == "e/negative_prompt.conditioning"


def test_pictures_are_part_of_both_prompts_and_the_last_one_is_the_size() -> None:
    images = {"images__image_1": ["i", 0], "images__image_2": ["j", 0]}
    result = converted(qwen(resolution=512, vae=["v", 0], **images))
    nodes = nodes_of(result)
    shown = nodes["e/shown-2"]
    assert (shown["by"], shown["megapixels"], shown["multiple"]) == ("megapixels", 0.25, 32)
    for name in ("prompt", "negative_prompt"):
        assert nodes[f"e/{name}"]["images"] == ["e/shown-1.image", "e/shown-2.image"]
        assert nodes[f"e/{name}-reference-2"]["latent"] == "e/latent-2.latent"
    assert nodes["e/latent"] == {"type": "latent/empty-like", "latent": "e/latent-2.latent"}
    assert "size of the last picture" in report_of(result, "e").warnings[0]


def test_a_resolution_of_0_keeps_the_size_of_the_picture() -> None:
    result = converted(qwen(resolution=0, vae=["v", 0], images__image_1=["i", 0]))
    assert nodes_of(result)["e/shown-1"]["by"] == "multiple"
    assert not report_of(result, "e").warnings


def test_pictures_without_a_vae_are_refused() -> None:
    report = report_of(converted(qwen(images__image_1=["i", 0]), valid=False), "e")
    assert report.state is NodeState.UNSUPPORTED
    assert "VAE is not connected" in report.reason


def ideogram(**inputs: Any) -> dict[str, Any]:
    """A prompt of Ideogram 4."""
    return {
        "m": step("UNETLoader", unet_name="m.safetensors", weight_dtype="default"),
        "n": step("UNETLoader", unet_name="m.safetensors", weight_dtype="default"),
        "c": step("CLIPLoader", clip_name="m.safetensors", type="ideogram4"),
        "v": step("VAELoader", vae_name="m.safetensors"),
        "e": step("CLIPTextEncode", text="red", clip=["c", 0]),
        "g": step("DualModelGuider", model=["m", 0], positive=["e", 0], cfg=7.0, **inputs),
        "l": step("EmptyFlux2LatentImage", width=256, height=256, batch_size=1),
        "r": step("RandomNoise", noise_seed=3),
        "o": step("KSamplerSelect", sampler_name="euler"),
        "y": step("Ideogram4Scheduler", steps=12, width=256, height=512, mu=0.5, std=1.75),
        "k": step(
            "SamplerCustomAdvanced",
            noise=["r", 0],
            guider=["g", 0],
            sampler=["o", 0],
            sigmas=["y", 0],
            latent_image=["l", 0],
        ),
        "d": step("VAEDecode", samples=["k", 0], vae=["v", 0]),
        "s": step("SaveImage", images=["d", 0], filename_prefix="x"),
    }


def test_two_models_guide_together() -> None:
    nodes = nodes_of(converted(ideogram(model_negative=["n", 0], negative=["e", 0])))
    assert nodes["g/model"] == {"type": "model/guided-by", "model": "m.model", "second": "n.model"}
    assert (nodes["k"]["model"], nodes["k"]["cfg"]) == ("g/model.model", 7.0)
    assert nodes["k"]["negative"] == "e.conditioning"
    wanted = {"type": "sigmas/ideogram4", "steps": 12, "width": 256, "height": 512, "mu": 0.5}
    assert nodes["y"] == {**wanted, "std": 1.75}


def test_one_model_guides_itself() -> None:
    nodes = nodes_of(converted(ideogram()))
    assert nodes["k"]["model"] == "m.model"
    assert "negative" not in nodes["k"]


def fibo(**inputs: Any) -> dict[str, Any]:
    """A prompt of Bria FIBO 2 with two pictures at hand."""
    prompt = qwen()
    values = {"prompt": "red", "negative_prompt": "", "width": 0, "height": 0, "batch_size": 1}
    prompt["e"] = step("TextEncodeFibo2", **{**values, "clip": ["c", 0], **inputs})
    return prompt


def test_fibo_2_makes_a_picture_of_its_own_size() -> None:
    nodes = nodes_of(converted(fibo(height=512, batch_size=2)))
    wanted = {"type": "latent/empty", "width": 1024, "height": 512, "batch": 2}
    assert nodes["e/latent"] == wanted
    assert nodes["k"]["positive"] == "e/prompt.conditioning"


def test_fibo_2_edits_pictures_at_the_sizes_it_was_trained_at() -> None:
    images = {"images__image_1": ["i", 0], "images__image_2": ["j", 0]}
    nodes = nodes_of(converted(fibo(vae=["v", 0], **images)))
    assert nodes["e/shown-2"] == {"type": "image/fibo-size", "image": "j/parts.image"}
    assert nodes["e/prompt"]["images"] == ["e/shown-1.seen", "e/shown-2.seen"]
    assert nodes["e/latent-2"]["image"] == "e/shown-2.image"
    assert nodes["e/latent"]["width"] == "e/size.width"
    assert "images" not in nodes["e/negative_prompt"]
    assert nodes["k"]["positive"] == "e/reference-2.conditioning"


def test_fibo_2_edits_one_picture_at_the_size_that_is_asked_for() -> None:
    result = converted(fibo(vae=["v", 0], width=256, height=512, images__image_1=["i", 0]))
    nodes = nodes_of(result)
    assert (nodes["e/shown-1"]["width"], nodes["e/shown-1"]["height"]) == (256, 512)
    assert (nodes["e/latent"]["width"], nodes["e/latent"]["height"]) == (256, 512)


def test_fibo_2_edits_nothing_without_a_vae() -> None:
    report = report_of(converted(fibo(images__image_1=["i", 0]), valid=False), "e")
    assert "VAE is not connected" in report.reason


def kandinsky(**inputs: Any) -> dict[str, Any]:
    """A prompt of Kandinsky 5."""
    values = {"width": 768, "height": 512, "length": 121, "batch_size": 1, "vae": ["v", 0]}
    prompt = {**qwen(), "t": step("CLIPTextEncode", text="red", clip=["c", 0])}
    values |= {"positive": ["t", 0], "negative": ["t", 0], **inputs}
    return {**prompt, "e": step("Kandinsky5ImageToVideo", **values)}


def test_kandinsky_5_makes_a_video_from_text() -> None:
    nodes = nodes_of(converted(kandinsky()))
    latent = {"type": "latent/empty-video", "width": 768, "height": 512, "frames": 121}
    assert nodes["e/latent"] == {**latent, "batch": 1, "fps": 24.0}
    assert nodes["k"]["positive"] == "t.conditioning"


def test_kandinsky_5_begins_with_no_picture() -> None:
    report = report_of(converted(kandinsky(start_image=["i", 0]), valid=False), "e")
    assert report.state is NodeState.UNSUPPORTED
    assert "start_image" in report.reason
