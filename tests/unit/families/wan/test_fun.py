"""Wan Fun: its parts against plain ones, its videos against a loop written down, what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from inline_core.errors import InvalidParam
from inline_core.families.wan.denoise import WanDenoiser
from inline_core.families.wan.fun import WanFunTransformer3DModel, camera_rays
from inline_core.families.wan.text import WanPrompt
from inline_core.loading.component import Role
from inline_core.media.values import Image
from inline_core.nodes.frames import frames as given_frames
from inline_core.nodes.fun import camera, fun_control
from inline_core.nodes.vace import vace
from inline_core.sampling.camera_paths import MOTIONS, camera_numbers, camera_path, lens
from inline_core.sampling.values import Latent
from tests import original_layouts, tiny
from tests.backends.conftest import Bench, BenchNodes, make_bench
from tests.pictures import noise_picture
from tests.real_models import identify_state
from tests.tiny_families import krea2, wan
from tests.unit.families.wan import fun_reference as plainly

FRAMES, SIDE, STEPS = 9, 64, 3
SIZE = (SIDE, SIDE)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("fun")
    wan.save_models(folder)
    wan.save_vision(folder)
    wan.save_transformer(folder, "vace", wan.VACE)
    for name, config in wan.FUN.items():
        wan.save_transformer(folder, name, config)
    wan.vae_22().save_pretrained(folder / "vae/vae22")
    tiny.settle(folder)
    made = make_bench(folder)
    yield made
    assert made.close()


def numbers(motion: str = "in", count: int = FRAMES) -> np.ndarray:
    return camera_numbers(
        camera_path(MOTIONS[motion], count, 1.0), lens(SIZE, (0.5, 0.6), (0.5, 0.4))
    )


def inputs(config: Any, frames: int = STEPS, seed: int = 0) -> dict[str, torch.Tensor]:
    """Anything that a model takes, of 64 pixels."""
    draw = torch.Generator().manual_seed(seed)
    made = {
        "hidden_states": torch.randn((1, config["in_channels"], frames, 8, 8), generator=draw),
        "timestep": torch.tensor([700.0]),
        "encoder_hidden_states": torch.randn((1, 512, wan.HIDDEN), generator=draw),
    }
    if "image_dim" in config:
        seen = torch.randn((1, 5, wan.SEEN), generator=draw)
        made["encoder_hidden_states_image"] = seen
    return made


# ---- the network --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(wan.FUN))
def test_without_its_parts_it_is_wan_bit_for_bit(name: str) -> None:
    config = {k: v for k, v in wan.FUN[name].items() if not k.startswith(("ref_", "camera_"))}
    with torch.inference_mode():
        plain = wan.transformer(config)
        fun = WanFunTransformer3DModel(**config).eval()
        fun.load_state_dict(plain.state_dict())
        given = inputs(config)
        assert torch.equal(fun(**given)[0], plain(**given, return_dict=False)[0])


def test_a_camera_of_zero_weights_changes_nothing() -> None:
    model = wan.transformer(wan.CAMERA_22)
    with torch.inference_mode():
        for parameter in model.control_adapter.parameters():
            parameter.zero_()
        given = inputs(wan.CAMERA_22)
        moved = model(**given, cameras=torch.from_numpy(numbers()))[0]
        assert torch.equal(moved, plainly.plain_of(model)(**given, return_dict=False)[0])


@pytest.mark.parametrize("config", [wan.CONTROL_11, wan.CONTROL_22, wan.CONTROL_5B])
def test_a_reference_is_a_frame_before_the_first(config: Any) -> None:
    """As diffusers' class makes it of one frame more, whose patches are the reference's."""
    model = wan.transformer(config)
    subject = torch.randn((1, config["ref_channels"], 8, 8), generator=torch.Generator())
    given = inputs(config)
    longer = {**given, "hidden_states": torch.cat([given["hidden_states"][:, :, :1], given["hidden_states"]], 2)}  # fmt: skip
    shown = plainly.tokens_of_subject(model.state_dict(), subject)

    def first(patches: torch.Tensor) -> torch.Tensor:
        return torch.cat([shown[:, :, None], patches[:, :, 1:]], 2)

    plain = plainly.plain_of(model)
    with torch.inference_mode(), plainly.patches_changed(plain, first):
        wanted = plain(**longer, return_dict=False)[0][:, :, 1:]
        found = model(**given, subject=subject)[0]
        without = model(**given)[0]
    assert (found - wanted).abs().max() <= 1e-5
    assert (found - without).abs().max() > 1e-3


@pytest.mark.parametrize("config", [wan.CAMERA, wan.CAMERA_22])
@pytest.mark.parametrize("motion", ["right", "clockwise"])
def test_a_camera_is_added_to_the_patches(config: Any, motion: str) -> None:
    model = wan.transformer(config)
    given, path = inputs(config), numbers(motion)
    moved = plainly.camera_patches(model.state_dict(), plainly.rays_of(path[0], *SIZE))
    plain = plainly.plain_of(model)
    with torch.inference_mode(), plainly.patches_changed(plain, lambda x: x + moved):
        wanted = plain(**given, return_dict=False)[0]
        found = model(**given, cameras=torch.from_numpy(path))[0]
        still = model(**given, cameras=torch.from_numpy(numbers("static")))[0]
    assert (found - wanted).abs().max() <= 1e-4
    assert (found - still).abs().max() > 1e-3


def test_rays_are_those_of_each_pixel() -> None:
    view = lens((24, 16), (0.5, 0.7), (0.4, 0.6))
    path = camera_path(MOTIONS["clockwise"], 5, 2.0)
    path[:, :, 3] = camera_path(MOTIONS["in"], 5, 2.0)[:, :, 3] + [0.1, -0.2, 0.0]
    rows = camera_numbers(path, view)
    found = camera_rays(torch.from_numpy(rows), 16, 24)
    assert found.shape == (1, 5, 6, 16, 24)
    assert np.abs(found[0].numpy() - plainly.rays_of(rows[0], 16, 24)).max() <= 1e-5


@pytest.mark.parametrize("name", list(wan.FUN))
def test_what_is_given_stands_in_its_order(name: str) -> None:
    config = wan.FUN[name]
    model = wan.transformer(config)
    channels, seen = config["out_channels"], dict[str, torch.Tensor]()
    model.patch_embedding.register_forward_pre_hook(lambda _, x: seen.update(x=x[0]))

    def full(value: float, rows: int = channels) -> torch.Tensor:
        return torch.full((rows, STEPS, 8, 8), value)

    prompt = WanPrompt(
        torch.zeros(3, wan.HIDDEN), control=full(2.0), marks=full(3.0, 4), frames=full(4.0),
        cameras=torch.from_numpy(numbers()[0]), subject=torch.zeros(channels, 8, 8),
    )  # fmt: skip
    with torch.inference_mode():
        WanDenoiser(model).predict(full(1.0)[None], torch.tensor([0.5]), [prompt])
    order = [(1.0, channels)]
    if "control" in name:
        order.append((2.0, channels))
    if (config["in_channels"] - channels) % channels:
        order.append((3.0, 4))
    order.append((4.0, channels))
    wanted = torch.cat([torch.full((count,), value) for value, count in order])
    assert torch.equal(seen["x"][0, :, 0, 0, 0], wanted)


# ---- files --------------------------------------------------------------------------------------

SMALL = {"num_attention_heads": 12, "ffn_dim": 8960, "num_layers": 2}
TOLD = {"image_dim": 1280}
LARGE = {"num_layers": 2}
MIDDLE = {"num_attention_heads": 24, "ffn_dim": 14336, "num_layers": 2, "out_channels": 48}
PUBLISHED: dict[str, tuple[dict[str, Any], str, str]] = {
    "1.3b": ({**SMALL, **TOLD, "in_channels": 48, "added_kv_proj_dim": 1536}, "wan", "control-1.3b"),
    "14b": ({**LARGE, **TOLD, "in_channels": 48, "added_kv_proj_dim": 5120}, "wan", "control-14b"),
    "1.3b-v1.1": ({**SMALL, "in_channels": 48, "ref_channels": 16}, "wan", "control-1.3b"),
    "a14b": ({**LARGE, "in_channels": 52, "ref_channels": 16}, "wan", "control-14b"),
    "5b": ({**MIDDLE, "in_channels": 148, "ref_channels": 48}, "wan-5b", "control-5b"),
    "1.3b-camera": ({**SMALL, "in_channels": 36, "camera_channels": 24}, "wan", "camera-1.3b"),
    "14b-camera": ({**LARGE, "in_channels": 32, "camera_channels": 24}, "wan", "camera-14b"),
    "a14b-camera": ({**LARGE, "in_channels": 36, "camera_channels": 24}, "wan", "camera-14b"),
    "5b-camera": (
        {**MIDDLE, "in_channels": 100, "camera_channels": 24, "camera_side": 16},
        "wan-5b",
        "camera-5b",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(PUBLISHED))
def test_published_sizes_are_told_by_their_weights(name: str, tmp_path: Path) -> None:
    arguments, family, variant = PUBLISHED[name]
    with torch.device("meta"):
        state = WanFunTransformer3DModel(**arguments).state_dict()
    original = original_layouts.wan(dict(state))
    found = identify_state(original, tmp_path / "x.safetensors")
    assert (found.family, found.variant, found.problems) == (family, variant, ())
    with torch.device("meta"):
        again = WanFunTransformer3DModel(**found.config).state_dict()
    assert {k: v.shape for k, v in again.items()} == {k: v.shape for k, v in state.items()}


# ---- videos -------------------------------------------------------------------------------------


def pictures(count: int = FRAMES, start: int = 0) -> list[Any]:
    return [noise_picture(seed, SIZE) for seed in range(start, start + count)]


def image(seed: int) -> Image:
    return Image(np.asarray(noise_picture(seed, SIZE)))


def job_of(bench: Bench, model: str, **changes: Any) -> Any:
    family = "wan-5b" if model.endswith("5b") else "wan"
    latent = Latent(SIDE, SIDE, frames=FRAMES, fps=16.0)
    return bench.job("a red circle", family=family, model=f"{model}.safetensors", latent=latent,
                     cfg=5.0, negative="blurry", **changes)  # fmt: skip


def led(bench: Bench, job: Any, node: Any = fun_control, **given: Any) -> Any:
    """A job whose prompts carry what a node gives them."""
    context: Any = BenchNodes(bench)
    vae = bench.catalog.companion(Role.VAE, job.model)
    if node is fun_control:
        given.setdefault("video", [Image(np.asarray(one)) for one in pictures()])
    positive, negative = node(context, job.positive, job.negative, vae, job.latent, **given)
    return replace(job, positive=positive, negative=negative)


def refused(bench: Bench, job: Any, match: str) -> None:
    with pytest.raises(InvalidParam, match=match):
        bench.sampler.submit(job).result(60)


def beside(vae: Any, config: Any, *, first: bool, control: bool) -> list[torch.Tensor]:
    """What stands beside the noise, in order."""
    with torch.inference_mode():
        led_by = plainly.encoded(vae, pictures())
        one = plainly.encoded(vae, [noise_picture(50, SIZE)])
    frames = torch.zeros_like(led_by)
    marks = torch.zeros((1, 4, *led_by.shape[2:]))
    if first:
        frames[:, :, :1] = one
        marks[:, :, 0] = 1.0
    marked = bool((config["in_channels"] - frames.shape[1]) % frames.shape[1])
    return [led_by] * control + [marks] * marked + [frames]


@pytest.mark.parametrize(
    ("name", "first", "subject"),
    [
        ("wan-fun-control", True, False),
        ("wan-fun-control", False, False),
        ("wan-fun-control11", True, True),
        ("wan-fun-control22", False, True),
        ("wan-fun-control22", True, False),
        ("wan-fun-control5b", False, True),
    ],
)
def test_control_videos_are_those_of_a_plain_loop(
    bench: Bench, name: str, first: bool, subject: bool
) -> None:
    config, small = wan.FUN[name], name.endswith("5b")
    given: dict[str, Any] = {"first": image(50)} if first else {}
    if subject:
        given["image"] = image(60)
    found = bench.latents(led(bench, job_of(bench, name), **given))
    vae = wan.vae_22() if small else krea2.vae()
    parts: dict[str, Any] = {}
    with torch.inference_mode():
        if "ref_channels" in config:
            shown = plainly.encoded(vae, [noise_picture(60, SIZE)])[:, :, 0]
            parts["subject"] = shown if subject else torch.zeros_like(shown)
        if "image_dim" in config:
            seen = torch.zeros((1, 257, wan.SEEN))
            if first or subject:
                picture = noise_picture(50 if first else 60, SIZE)
                seen = wan.pipeline("i2v").encode_image(picture, "cpu")
            parts["encoder_hidden_states_image"] = seen
    wanted = plainly.sampled(
        wan.transformer(config), beside(vae, config, first=first, control=True),
        48 if small else 16, 5.0 if small else 3.0, **parts,
    )  # fmt: skip
    assert wanted.std() > 0.3
    assert (found - wanted).abs().max() <= 1e-4


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("name", ["wan-fun-camera", "wan-fun-camera22"])
def test_cameras_are_those_of_a_plain_loop(bench: Bench, name: str, first: bool) -> None:
    given: dict[str, Any] = {"first": image(50)} if first else {}
    lenses = {"fx": 0.5, "fy": 0.6, "cx": 0.5, "cy": 0.4}
    found = bench.latents(
        led(bench, job_of(bench, name), camera, motion="in", speed=1.0, **lenses, **given)
    )
    config = wan.FUN[name]
    parts: dict[str, Any] = {"cameras": torch.from_numpy(numbers("in"))}
    if "image_dim" in config:
        seen = torch.zeros((1, 257, wan.SEEN))
        if first:
            with torch.inference_mode():
                seen = wan.pipeline("i2v").encode_image(noise_picture(50, SIZE), "cpu")
        parts["encoder_hidden_states_image"] = seen
    given_latents = beside(krea2.vae(), config, first=first, control=False)
    wanted = plainly.sampled(wan.transformer(config), given_latents, 16, 3.0, **parts)
    assert wanted.std() > 0.3
    assert (found - wanted).abs().max() <= 1e-4


def test_videos_of_several_jobs_share_passes(bench: Bench) -> None:
    jobs = [
        led(bench, job_of(bench, "wan-fun-control22"), image=image(60)),
        led(bench, job_of(bench, "wan-fun-control22"), first=image(50)),
    ]
    alone = [bench.latents(job) for job in jobs]
    together = [future.result(60) for future in [bench.sampler.submit(job) for job in jobs]]
    for made, one in zip(together, alone, strict=True):
        assert float((made.latent.samples - one).abs().max()) <= 1e-4


# ---- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "match"),
    [
        ("wan-fun-control", "video that it goes by through Fun Control Conditioning"),
        ("wan-fun-control5b", "video that it goes by through Fun Control Conditioning"),
        ("wan-fun-camera22", "path of its camera through Camera Conditioning"),
    ],
)
def test_without_what_it_goes_by_it_is_refused(bench: Bench, model: str, match: str) -> None:
    refused(bench, job_of(bench, model), match)


def test_other_models_are_refused(bench: Bench) -> None:
    refused(bench, led(bench, job_of(bench, "wan")), "no model for Fun Control Conditioning")
    refused(bench, led(bench, job_of(bench, "wan"), camera), "no model for Camera Conditioning")
    refused(bench, led(bench, job_of(bench, "vace")), "is Wan VACE: wire its video")
    job = job_of(bench, "wan-fun-control")
    refused(bench, led(bench, job, camera), "Fun Control: wire the video")
    both = led(bench, job)
    moved = led(bench, job, camera).positive.references
    positive = replace(both.positive, references=(*both.positive.references, *moved))
    refused(bench, replace(both, positive=positive), "what Camera Conditioning gives: unwire it")
    shown = job_of(bench, "wan")
    vae = bench.catalog.companion(Role.VAE, shown.model)
    context: Any = BenchNodes(bench)
    seen = vace(context, shown.positive, shown.negative, vae, shown.latent)[0]
    refused(bench, replace(shown, positive=seen), "no model for VACE Conditioning")


def test_pictures_that_it_has_no_place_for_are_refused(bench: Bench) -> None:
    job = led(bench, job_of(bench, "wan-fun-control"), image=image(1))
    refused(bench, job, "wire it as the first frame instead")
    job = led(bench, job_of(bench, "wan-fun-control5b"), first=image(1))
    refused(bench, job, "wire it as the reference image")
    plain = job_of(bench, "wan-fun-control22")
    context: Any = BenchNodes(bench)
    vae = bench.catalog.companion(Role.VAE, plain.model)
    framed = given_frames(context, plain.positive, vae, plain.latent, image(1))
    refused(bench, replace(plain, positive=framed), "through Fun Control Conditioning")


def test_another_size_is_refused(bench: Bench) -> None:
    for model, node in (("wan-fun-control22", fun_control), ("wan-fun-camera22", camera)):
        job = led(bench, job_of(bench, model), node)
        longer = replace(job.latent, frames=FRAMES + 4)
        refused(bench, replace(job, latent=longer), "64x64, 9 frames, and the latent has 64x64, 13")


def test_a_short_control_video_leaves_the_rest_free(bench: Bench) -> None:
    job = job_of(bench, "wan-fun-control22")
    context: Any = BenchNodes(bench)
    vae = bench.catalog.companion(Role.VAE, job.model)
    video = [Image(np.asarray(one)) for one in pictures(12)]
    short = fun_control(context, job.positive, job.negative, vae, job.latent, video[:7])[0]
    assert short.references[0].samples.shape == (1, 16, 2, 8, 8)
    assert context.warned == ["The control video leads 5 of 9 frames; the rest is free."]
    assert bench.latents(replace(job, positive=short, negative=replace(short, prompt="blurry"))).isfinite().all()  # fmt: skip
    context.warned.clear()
    fun_control(context, job.positive, job.negative, vae, job.latent, video)
    assert context.warned == ["Only the first 9 of 12 frames of the video are used."]
    with pytest.raises(InvalidParam, match="the control video has no frames"):
        fun_control(context, job.positive, job.negative, vae, job.latent, [])
