"""Loaders, prompts, samplers and latents: the graph that each becomes."""

from __future__ import annotations

from typing import Any

import pytest

from inline_core.importers.comfyui.converting import NodeState
from tests.unit.importers.comfyui.mapping.prompts import (
    Prompt,
    converted,
    nodes_of,
    report_of,
    step,
)

BASE: Prompt = {
    "m": step("UNETLoader", unet_name="m.safetensors", weight_dtype="default"),
    "t": step("CLIPLoader", clip_name="m.safetensors", type="wan", device="default"),
    "v": step("VAELoader", vae_name="m.safetensors"),
    "p": step("CLIPTextEncode", text="a red circle", clip=["t", 0]),
    "n": step("CLIPTextEncode", text="blurry", clip=["t", 0]),
    "l": step("EmptySD3LatentImage", width=64, height=96, batch_size=2),
    "s": step("KSampler", model=["m", 0], positive=["p", 0], negative=["n", 0],
              latent_image=["l", 0], seed=2**64 - 1, steps=4, cfg=2.5,
              sampler_name="euler_ancestral", scheduler="karras", denoise=0.5),
    "d": step("VAEDecode", samples=["s", 0], vae=["v", 0]),
    "o": step("SaveImage", images=["d", 0], filename_prefix="x"),
}  # fmt: skip


def graph(**changes: Any) -> dict[str, dict[str, Any]]:
    return nodes_of(converted({**BASE, **changes}))


def test_text_to_image() -> None:
    nodes = graph()
    assert nodes["m"] == {
        "type": "load/diffusion-model", "file": "m.safetensors", "schedule": "comfyui",
    }  # fmt: skip
    assert nodes["t"] == {"type": "load/text-encoder", "file": "m.safetensors"}
    assert nodes["v"] == {"type": "load/vae", "file": "m.safetensors"}
    assert nodes["p/text"] == {"type": "input/text", "text": "a red circle"}
    assert nodes["p"] == {
        "type": "encode/text", "text_encoder": "t.text_encoder", "prompt": "p/text.text",
    }  # fmt: skip
    assert nodes["l"] == {"type": "latent/empty", "width": 64, "height": 96, "batch": 2}
    assert nodes["s"] == {
        "type": "sample/advanced", "model": "m.model", "positive": "p.conditioning",
        "negative": "n.conditioning", "latent": "l.latent", "seed": 2**64 - 1, "steps": 4,
        "cfg": 2.5, "sampler": "euler_a", "scheduler": "karras", "denoise": 0.5,
        "noise": "one_draw",
    }  # fmt: skip
    assert nodes["d"] == {"type": "vae/decode", "vae": "v.vae", "latent": "s.latent"}


def custom(**changes: Any) -> Prompt:
    return {
        "x": step("RandomNoise", noise_seed=5),
        "g": step("CFGGuider", model=["m", 0], positive=["p", 0], negative=["n", 0], cfg=3.0),
        "k": step("KSamplerSelect", sampler_name="dpmpp_2m_sde_gpu"),
        "b": step("BasicScheduler", model=["m", 0], scheduler="beta", steps=6, denoise=1.0),
        "s": step("SamplerCustomAdvanced", noise=["x", 0], guider=["g", 0], sampler=["k", 0],
                  sigmas=["b", 0], latent_image=["l", 0]),
        **changes,
    }  # fmt: skip


def test_samplers_made_of_parts() -> None:
    nodes = graph(**custom())
    assert nodes["s"] == {
        "type": "sample/advanced", "model": "m.model", "positive": "p.conditioning",
        "negative": "n.conditioning", "latent": "l.latent", "cfg": 3.0, "sampler": "dpmpp_2m_sde",
        "sigmas": "b.sigmas", "seed": 5, "add_noise": True, "noise": "one_draw",
    }  # fmt: skip
    assert nodes["b"] == {
        "type": "sigmas/schedule", "model": "m.model", "scheduler": "beta", "steps": 6,
        "denoise": 1.0,
    }  # fmt: skip
    quiet = graph(
        **custom(x=step("DisableNoise"), d=step("VAEDecode", samples=["s", 1], vae=["v", 0]))
    )
    assert (quiet["s"]["add_noise"], quiet["d"]["latent"]) == (False, "s.denoised")
    single = graph(**custom(g=step("BasicGuider", model=["m", 0], conditioning=["p", 0])))
    assert (single["s"]["cfg"], "negative" in single["s"]) == (1.0, False)
    dual = step("DualCFGGuider", model=["m", 0], cond1=["p", 0], cond2=["n", 0], negative=["n", 0],
                cfg_conds=2.0, cfg_cond2_negative=4.0, style="nested")  # fmt: skip
    both = graph(**custom(g=dual))["s"]
    assert (both["second"], both["cfg"], both["second_cfg"], both["style"]) == (
        "n.conditioning", 2.0, 4.0, "nested",
    )  # fmt: skip
    sound = step("LTXVDualCFGGuider", model=["m", 0], positive=["p", 0], negative=["n", 0],
                 video_cfg=3.0, audio_cfg=7.0)  # fmt: skip
    nodes = graph(**custom(g=sound))
    assert (nodes["s"]["cfg"], nodes["s"]["model"]) == (3.0, "g/sound.model")
    assert nodes["g/sound"] == {"type": "guidance/sound", "model": "m.model", "cfg": 7.0}


@pytest.mark.parametrize(
    ("sampler", "name", "options"),
    [
        (step("SamplerEulerAncestral", eta=0.5, s_noise=1.0), "euler_a", "eta=0.5, s_noise=1.0"),
        (step("SamplerER_SDE", solver_type="ER-SDE", max_stage=2, eta=1.0, s_noise=1.0),
         "er_sde", "solver_type=er_sde, max_stage=2, eta=1.0, s_noise=1.0"),
        (step("SamplerLCM", s_noise=1.0, s_noise_end=1.0, noise_clip_std=0.0), "lcm", None),
        (step("KSamplerSelect", sampler_name="uni_pc"), "uni_pc", None),
    ],
)  # fmt: skip
def test_solvers_with_options(sampler: Any, name: str, options: str | None) -> None:
    made = graph(**custom(k=sampler))["s"]
    assert (made["sampler"], made.get("solver_options")) == (name, options)


@pytest.mark.parametrize(
    ("sigmas", "wanted"),
    [
        (step("ManualSigmas", sigmas="1, 0.5, 0"), {"type": "sigmas/manual", "sigmas": "1, 0.5, 0"}),
        (step("Flux2Scheduler", steps=4, width=64, height=96),
         {"type": "sigmas/flux2", "steps": 4, "width": 64, "height": 96}),
        (step("LTXVScheduler", steps=4, max_shift=2.0, base_shift=1.0, stretch=True, terminal=0.1,
              latent=["l", 0]),
         {"type": "sigmas/ltxv", "steps": 4, "max_shift": 2.0, "base_shift": 1.0, "stretch": True,
          "terminal": 0.1, "latent": "l.latent"}),
        (step("SDTurboScheduler", model=["m", 0], steps=1, denoise=1.0),
         {"type": "sigmas/turbo", "model": "m.model", "steps": 1, "denoise": 1.0}),
        (step("BetaSamplingScheduler", model=["m", 0], steps=4, alpha=0.5, beta=0.7),
         {"type": "sigmas/beta", "model": "m.model", "steps": 4, "alpha": 0.5, "beta": 0.7}),
        (step("KarrasScheduler", steps=4, sigma_max=14.0, sigma_min=0.1, rho=7.0),
         {"type": "sigmas/karras", "steps": 4, "sigma_max": 14.0, "sigma_min": 0.1, "rho": 7.0}),
        (step("AlignYourStepsScheduler", model_type="SDXL", steps=10, denoise=1.0),
         {"type": "sigmas/align-your-steps", "model_type": "SDXL", "steps": 10, "denoise": 1.0}),
    ],
)  # fmt: skip
def test_sigmas(sigmas: Any, wanted: dict[str, Any]) -> None:
    assert graph(**custom(b=sigmas))["b"] == wanted


def test_sigmas_are_split_flipped_and_start_elsewhere() -> None:
    more = {
        "w": step("SplitSigmas", sigmas=["b0", 0], step=2),
        "b0": step("ManualSigmas", sigmas="1, 0.5, 0.2, 0"),
        "f": step("SetFirstSigma", sigmas=["w", 1], sigma=0.9),
        "b": step("FlipSigmas", sigmas=["f", 0]),
    }
    nodes = graph(**custom(**more))
    assert nodes["w"] == {"type": "sigmas/split", "sigmas": "b0.sigmas", "step": 2}
    assert nodes["f"] == {"type": "sigmas/set-first", "sigmas": "w.low", "sigma": 0.9}
    assert nodes["b"] == {"type": "sigmas/flip", "sigmas": "f.sigmas"}


def test_a_sampling_in_two_halves() -> None:
    shared = {"model": ["m", 0], "positive": ["p", 0], "negative": ["n", 0], "noise_seed": 3,
              "steps": 8, "cfg": 1.0, "sampler_name": "euler", "scheduler": "simple"}  # fmt: skip
    first = step("KSamplerAdvanced", **shared, latent_image=["l", 0], add_noise="enable",
                 start_at_step=0, end_at_step=4, return_with_leftover_noise="enable")  # fmt: skip
    second = step("KSamplerAdvanced", **shared, latent_image=["a", 0], add_noise="disable",
                  start_at_step=4, end_at_step=10000, return_with_leftover_noise="disable")  # fmt: skip
    nodes = graph(a=first, s=second)
    keys = ("add_noise", "start_step", "end_step", "leftover_noise")
    assert [nodes["a"][key] for key in keys] == [True, 0, 4, True]
    assert [nodes["s"][key] for key in keys] == [False, 4, 10000, False]
    assert nodes["s"]["latent"] == "a.latent"


@pytest.mark.parametrize(
    ("patch", "wanted"),
    [
        (step("ModelSamplingSD3", model=["m", 0], shift=8.0), {"type": "model/shift", "shift": 8.0}),
        (step("ModelSamplingAuraFlow", model=["m", 0], shift=3.1, sampling="flow"),
         {"type": "model/shift", "shift": 3.1}),
        (step("ModelSamplingFlux", model=["m", 0], max_shift=1.15, base_shift=0.5, width=1024,
              height=1024), {"type": "model/shift", "shift": pytest.approx(3.1581929)}),
        (step("CFGNorm", model=["m", 0], strength=0.9),
         {"type": "guidance/normalise", "strength": 0.9}),
        (step("RescaleCFG", model=["m", 0], multiplier=0.7),
         {"type": "guidance/rescale", "multiplier": 0.7}),
        (step("CFGZeroStar", model=["m", 0]), {"type": "guidance/zero-star"}),
        (step("TemporalScoreRescaling", model=["m", 0], tsr_k=0.95, tsr_sigma=1.5),
         {"type": "guidance/rescale-score", "k": 0.95, "sigma": 1.5}),
        (step("CFGOverride", model=["m", 0], cfg=1.0, start_percent=0.5, end_percent=1.0),
         {"type": "guidance/interval", "cfg": 1.0, "start_percent": 0.5, "end_percent": 1.0}),
        (step("SkipLayerGuidanceDiT", model=["m", 0], double_layers="9", single_layers="",
              scale=2.0, start_percent=0.1, end_percent=0.2, rescaling_scale=0.0),
         {"type": "guidance/skip-layers", "layers": "9", "scale": 2.0, "start_percent": 0.1,
          "end_percent": 0.2}),
        (step("SkipLayerGuidanceDiTSimple", model=["m", 0], double_layers="9", single_layers="9",
              start_percent=0.1, end_percent=0.2),
         {"type": "guidance/weaken-negative", "layers": "9", "start_percent": 0.1,
          "end_percent": 0.2}),
        (step("DifferentialDiffusion", model=["m", 0], strength=1.0),
         {"type": "model/differential", "strength": 1.0}),
        (step("ModelNoiseScale", model=["m", 0], noise_scale=0.5),
         {"type": "model/noise-scale", "scale": 0.5}),
        (step("LoraLoaderModelOnly", model=["m", 0], lora_name="sub\\l.safetensors",
              strength_model=0.8),
         {"type": "lora/apply", "file": "sub/l.safetensors", "strength": 0.8}),
    ],
)  # fmt: skip
def test_patches_of_a_model(patch: Any, wanted: dict[str, Any]) -> None:
    sampler = {**BASE["s"], "inputs": {**BASE["s"]["inputs"], "model": ["q", 0]}}
    result = converted({**BASE, "q": patch, "s": sampler}, valid="Lora" not in patch["class_type"])
    nodes = nodes_of(result)
    assert nodes["q"] == {"model": "m.model", **wanted}
    assert nodes["s"]["model"] == "q.model"


@pytest.mark.parametrize(
    "kind", ["ModelAttentionBackend", "QwenImage21Cache", "EasyCache", "BlockSparseAttention"]
)
def test_what_only_changes_speed_is_left_out(kind: str) -> None:
    sampler = {**BASE["s"], "inputs": {**BASE["s"]["inputs"], "model": ["q", 0]}}
    result = converted({**BASE, "q": step(kind, model=["m", 0]), "s": sampler})
    assert nodes_of(result)["s"]["model"] == "m.model"
    assert report_of(result, "q").state is NodeState.IGNORED
    assert report_of(result, "q").reason


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (step("ConditioningZeroOut", conditioning=["p", 0]),
         {"type": "conditioning/zero", "conditioning": "p.conditioning"}),
        (step("ConditioningCombine", conditioning_1=["p", 0], conditioning_2=["n", 0]),
         {"type": "conditioning/combine", "first": "p.conditioning", "second": "n.conditioning"}),
        (step("ConditioningConcat", conditioning_to=["p", 0], conditioning_from=["n", 0]),
         {"type": "conditioning/concat", "first": "p.conditioning", "second": "n.conditioning"}),
        (step("ConditioningAverage", conditioning_to=["p", 0], conditioning_from=["n", 0],
              conditioning_to_strength=0.25),
         {"type": "conditioning/average", "first": "p.conditioning", "second": "n.conditioning",
          "strength": 0.25}),
        (step("ConditioningSetTimestepRange", conditioning=["p", 0], start=0.2, end=0.8),
         {"type": "conditioning/span", "conditioning": "p.conditioning", "start": 0.2, "end": 0.8}),
        (step("ConditioningSetArea", conditioning=["p", 0], width=64, height=32, x=8, y=16,
              strength=0.5),
         {"type": "conditioning/area", "conditioning": "p.conditioning", "width": 64, "height": 32,
          "x": 8, "y": 16, "strength": 0.5}),
        (step("ConditioningSetAreaPercentage", conditioning=["p", 0], width=0.5, height=1.0, x=0.5,
              y=0.0, strength=1.0),
         {"type": "conditioning/area", "by": "share", "conditioning": "p.conditioning",
          "width_share": 0.5, "height_share": 1.0, "x_share": 0.5, "y_share": 0.0,
          "strength": 1.0}),
        (step("FluxGuidance", conditioning=["p", 0], guidance=2.5),
         {"type": "conditioning/guidance", "conditioning": "p.conditioning", "guidance": 2.5}),
        (step("CLIPTextEncode", text="x", clip=["c", 0]),
         {"type": "encode/text", "text_encoder": "c.text_encoder", "prompt": "q/text.text"}),
    ],
)  # fmt: skip
def test_what_is_done_with_prompts(change: Any, wanted: dict[str, Any]) -> None:
    sampler = {**BASE["s"], "inputs": {**BASE["s"]["inputs"], "positive": ["q", 0]}}
    skip = step("CLIPSetLastLayer", clip=["t", 0], stop_at_clip_layer=-2)
    nodes = graph(q=change, c=skip, s=sampler)
    assert nodes["q"] == wanted
    if "c" in nodes:
        assert nodes["c"] == {
            "type": "load/clip-skip", "text_encoder": "t.text_encoder", "layer": 2,
        }  # fmt: skip


def test_pictures_that_a_model_edits() -> None:
    edit = step("TextEncodeQwenImageEditPlus", clip=["t", 0], prompt="make it blue", vae=["v", 0],
                image1=["i", 0], image2=["i", 0])  # fmt: skip
    sampler = {**BASE["s"], "inputs": {**BASE["s"]["inputs"], "positive": ["q", 0]}}
    nodes = graph(q=edit, i=step("LoadImage", image="a.png"), s=sampler)
    assert nodes["q"] == {
        "type": "encode/text-with-images", "text_encoder": "t.text_encoder",
        "prompt": "q/text.text", "numbered": True,
        "images": ["q/seen-1.image", "q/seen-2.image"],
    }  # fmt: skip
    assert nodes["q/seen-1"]["megapixels"] == pytest.approx(384 * 384 / 1024**2)
    assert (nodes["q/shown-2"]["megapixels"], nodes["q/shown-2"]["multiple"]) == (1.0, 8)
    assert nodes["q/reference-2"]["conditioning"] == "q/reference-1.conditioning"
    assert nodes["s"]["positive"] == "q/reference-2.conditioning"
    plain = step("TextEncodeQwenImageEditPlus", clip=["t", 0], prompt="make it blue")
    assert graph(q=plain, s=sampler)["q"]["type"] == "encode/text"


def test_inpainting() -> None:
    picture = {"i": step("LoadImage", image="a.png")}
    masked = {
        "e": step("VAEEncode", pixels=["i", 0], vae=["v", 0]),
        "l": step("SetLatentNoiseMask", samples=["e", 0], mask=["i", 1]),
    }
    nodes = graph(**picture, **masked)
    assert nodes["l"]["type"] == "latent/noise-mask"
    assert nodes["e"] == {"type": "vae/encode", "vae": "v.vae", "image": nodes["e"]["image"]}
    fill = step("InpaintModelConditioning", positive=["p", 0], negative=["n", 0], vae=["v", 0],
                pixels=["i", 0], mask=["i", 1], noise_mask=True)  # fmt: skip
    inputs = {**BASE["s"]["inputs"], "positive": ["f", 0], "negative": ["f", 1],
              "latent_image": ["f", 2]}  # fmt: skip
    nodes = graph(**picture, f=fill, s={**BASE["s"], "inputs": inputs})
    assert nodes["f/positive"]["type"] == nodes["f/negative"]["type"] == "conditioning/inpaint"
    assert nodes["s"]["latent"] == "f/mask.latent"
    grown = step("VAEEncodeForInpaint", pixels=["i", 0], vae=["v", 0], mask=["i", 1],
                 grow_mask_by=6)  # fmt: skip
    nodes = graph(**picture, l=grown)
    assert nodes["l/grey"]["type"] == "image/grey-out"
    assert nodes["l/mask"]["expand"] == 6
    assert nodes["l"]["type"] == "latent/noise-mask"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"s": {"sampler_name": "dpm_adaptive"}}, "'dpm_adaptive' is not available here"),
        ({"s": {"scheduler": "odd"}}, "the scheduler 'odd'"),
        ({"s": {"latent_image": 5}}, "nothing that can be sampled"),
        ({"v": {"vae_name": "taesd"}}, "tiny autoencoder"),
        ({"v": {"vae_name": "pixel_space"}}, "no VAE"),
        ({"m": {"unet_name": ""}}, "names no file"),
    ],
)
def test_what_is_not_available_is_said(changes: dict[str, Any], said: str) -> None:
    prompt = {
        name: {**entry, "inputs": {**entry["inputs"], **changes.get(name, {})}}
        for name, entry in BASE.items()
    }
    result = converted(prompt)
    assert result.targets == ()
    reasons = " ".join(node.reason for node in result.unsupported)
    assert said in reasons


def test_files_are_named_once_with_their_links() -> None:
    result = converted(BASE)
    assert [(file.category, file.name, file.present) for file in result.files] == [
        ("diffusion_models", "m.safetensors", True),
        ("text_encoders", "m.safetensors", True),
        ("vae", "m.safetensors", True),
    ]


def test_steps_that_are_computed_are_wired() -> None:
    sampler = {**BASE["s"], "inputs": {**BASE["s"]["inputs"], "steps": ["z", 0]}}
    picture = {"i": step("LoadImage", image="a.png"), "z": step("GetImageSize", image=["i", 0])}
    assert graph(**picture, s=sampler)["s"]["steps"] == "z.width"
    named = {**BASE["s"], "inputs": {**BASE["s"]["inputs"], "sampler_name": ["z", 0]}}
    result = converted({**BASE, **picture, "s": named})
    assert "computed while the workflow runs" in report_of(result, "s").reason


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("ControlNetApplyAdvanced", {}),
        ("ControlNetApplySD3", {"vae": ["v", 0]}),
        ("ControlNetInpaintingAliMamaApply", {"vae": ["v", 0], "mask": ["i", 1]}),
    ],
)
def test_controlnets(kind: str, more: dict[str, Any]) -> None:
    nodes = graph(
        c=step("ControlNetLoader", control_net_name="m.safetensors"),
        i=step("LoadImage", image="a.png"),
        a=step(kind, positive=["p", 0], negative=["n", 0], control_net=["c", 0], image=["i", 0],
               strength=0.6, start_percent=0.1, end_percent=0.9, **more),
        s={**BASE["s"], "inputs": {**BASE["s"]["inputs"], "positive": ["a", 0],
                                   "negative": ["a", 1]}},
    )  # fmt: skip
    edges = {name: nodes["a"].pop(name) for name in more}
    assert nodes["a"] == {
        "type": "conditioning/controlnet", "positive": "p.conditioning",
        "negative": "n.conditioning", "controlnet": "c.controlnet", "image": "i/parts.image",
        "strength": 0.6, "start": 0.1, "end": 0.9,
    }  # fmt: skip
    assert edges.get("vae") == ("v.vae" if more else None)
    assert ("mask" in edges) == ("mask" in more)
    assert (nodes["s"]["positive"], nodes["s"]["negative"]) == ("a.positive", "a.negative")


def test_reference_images_held_apart() -> None:
    nodes = graph(
        k=step("FluxKVCache", model=["m", 0]),
        s={**BASE["s"], "inputs": {**BASE["s"]["inputs"], "model": ["k", 0]}},
    )
    assert nodes["k"] == {"type": "model/variant", "model": "m.model", "variant": "klein-9b-kv"}
    assert nodes["s"]["model"] == "k.model"


def test_tone_mapped_guidance() -> None:
    changes = {
        "r": step("LatentOperationTonemapReinhard", multiplier=0.5),
        "k": step("LatentApplyOperationCFG", model=["m", 0], operation=["r", 0]),
        "s": {**BASE["s"], "inputs": {**BASE["s"]["inputs"], "model": ["k", 0]}},
    }
    nodes = graph(**changes)
    assert nodes["k"] == {
        "type": "guidance/tone-map", "model": "m.model", "multiplier": 0.5, "start_percent": 0.0,
        "end_percent": 1.0,
    }  # fmt: skip
    assert nodes["s"]["model"] == "k.model"
    odd = {**changes, "k": step("LatentApplyOperationCFG", model=["m", 0], operation=["p", 0])}
    told = report_of(converted({**BASE, **odd}, valid=False), "k")
    assert told.state is NodeState.UNSUPPORTED
    assert "only tone mapping" in told.reason


def test_options_of_tokenizers_change_nothing() -> None:
    changed = {**BASE, "k": step("T5TokenizerOptions", clip=["t", 0], min_padding=1, min_length=0)}
    changed["p"] = step("CLIPTextEncode", text="a red circle", clip=["k", 0])
    result = converted(changed)
    assert report_of(result, "k").state is NodeState.IGNORED
    assert nodes_of(result)["p"]["text_encoder"] == "t.text_encoder"


def references(**inputs: Any) -> Prompt:
    """A video of MiniMax H3 with what it looks at."""
    sizes = {"width": 1344, "height": 768, "length": 124}
    return {
        **BASE,
        "i": step("LoadImage", image="a.png"),
        "h": step("MiniMaxH3ReferenceToVideo", clip=["t", 0], vae=["v", 0], prompt="a cat",
                  **sizes, **inputs),
        "s": {**BASE["s"], "inputs": {**BASE["s"]["inputs"], "positive": ["h", 0]}},
    }  # fmt: skip


@pytest.mark.parametrize(("size", "side"), [("match", 768), ("max", 2048)])
def test_pictures_that_a_video_model_looks_at(size: str, side: int) -> None:
    shown = {"ref_images__ref_image_0": ["i", 0], "ref_images__ref_image_1": ["i", 0]}
    result = converted(references(ref_image_size=size, **shown))
    node = nodes_of(result)["h"]
    assert node["type"] == "conditioning/reference-pictures"
    assert node["images"] == ["i/parts.image", "i/parts.image"]
    assert (node["vae"], node["short_side"]) == ("v.vae", side)
    assert bool(report_of(result, "h").warnings) == (size == "match")


def test_videos_and_sounds_are_not_looked_at() -> None:
    heard = references(ref_audios__ref_audio_0=["i", 0])
    told = report_of(converted(heard, valid=False), "h")
    assert told.state is NodeState.UNSUPPORTED
    assert "ref_audios are not available here, only pictures" in told.reason
