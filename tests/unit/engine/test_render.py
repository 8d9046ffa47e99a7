from __future__ import annotations

import atexit
import concurrent.futures
import hashlib
import io
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler, ZImagePipeline
from PIL import Image as PillowImage

from inline_core.devices.policy import DevicePolicy
from inline_core.engine.render import TorchRender
from inline_core.errors import (
    InvalidParam,
    ModelFileMissing,
    OutOfMemory,
    RunCancelled,
    Unavailable,
)
from inline_core.families.registry import open_catalog
from inline_core.loading.component import Role
from inline_core.media.values import Image
from inline_core.sampling.job import SampleJob
from inline_core.sampling.values import Conditioning, Latent
from inline_core.settings import Settings
from tests import tiny


class Context:
    """The part of a `NodeContext` that a render uses; it records what it is told."""

    run_id = "run_1"
    node_id = "n"
    priority = 0
    render: Any = None
    components: Any = None
    media: Any = None

    def __init__(self, cancel_at_step: int | None = None) -> None:
        self.told: list[tuple[str, float, str, int | None, int | None, int | None]] = []
        self.previews: list[bytes] = []
        self.warnings: list[str] = []
        self.threads: set[str] = set()
        self.cancelled = threading.Event()
        self._cancel_at_step = cancel_at_step

    def check_cancelled(self) -> None:
        if self.cancelled.is_set():
            raise RunCancelled

    def progress(
        self,
        phase: str,
        fraction: float,
        status: str = "",
        *,
        step: int | None = None,
        step_count: int | None = None,
        eta_ms: int | None = None,
    ) -> None:
        self.threads.add(threading.current_thread().name)
        self.told.append((phase, fraction, status, step, step_count, eta_ms))
        if step is not None and step == self._cancel_at_step:
            self.cancelled.set()

    def preview(self, encode: Any) -> None:
        self.previews.append(encode())

    def warn(self, message: str) -> None:
        self.warnings.append(message)

    def describe(self, **facts: object) -> None:
        raise NotImplementedError


class Studio:
    """A render on a models folder, and the pieces it found there."""

    def __init__(self, folder: Path, policy: DevicePolicy | None = None, **settings: Any) -> None:
        data = tempfile.mkdtemp(prefix="inline-studio-")
        atexit.register(shutil.rmtree, data, ignore_errors=True)
        values = {"demo_model": False, "threads": 1, "profile": "cpu", **settings}
        self.settings = Settings(models_dir=folder, data_dir=Path(data), **values)
        self.catalog = open_catalog(self.settings)
        self.render = TorchRender(self.settings, self.catalog, policy)
        self.model = self.catalog.find(Role.DIFFUSION_MODEL, "", family="z-image")
        self.vae, self.encoder = self.catalog.companions(self.model)

    def job(self, prompt: str = "a red circle", **changes: Any) -> SampleJob:
        values: dict[str, Any] = {
            "latent": Latent(64, 96),
            "steps": 4,
            "cfg": 1.0,
            "sampler": "euler",
            "scheduler": "simple",
            "seed": 7,
        }
        return SampleJob(self.model, Conditioning(prompt, self.encoder), **(values | changes))

    def pixels(self, job: SampleJob) -> np.ndarray[Any, np.dtype[np.uint8]]:
        result = self.render.sample(job, Context())
        return self.render.decode(self.vae, result.latent, Context())[0].pixels


@pytest.fixture(scope="module")
def studio() -> Iterator[Studio]:
    torch.set_num_threads(1)
    made = Studio(tiny.shared_models())
    yield made
    assert made.render.close(10)


def test_a_thread_for_all_but_denoising_gives_the_same_pictures(studio: Studio) -> None:
    overlapping = Studio(tiny.shared_models(), overlap_on_cpu=True)
    job = studio.job()
    assert np.array_equal(overlapping.pixels(job), studio.pixels(job))
    with ThreadPoolExecutor(4) as threads:
        jobs = [overlapping.job(f"words {index}", seed=index) for index in range(6)]
        found = list(threads.map(overlapping.pixels, jobs))
    for wanted, pixels in zip(jobs, found, strict=True):
        difference = studio.pixels(wanted).astype(int) - pixels.astype(int)
        assert np.abs(difference).max() <= 1
    assert overlapping.render.free()["bytesAfter"] == 0
    assert overlapping.render.close(10)


def pipeline_of(made: Studio) -> ZImagePipeline:
    """diffusers' own pipeline on the same weights."""
    del made
    pipe = ZImagePipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=False),
        vae=tiny.vae(),
        text_encoder=tiny.text_encoder(),
        tokenizer=tiny.tokenizer(),
        transformer=tiny.transformer(),
    )
    pipe.set_progress_bar_config(disable=True)
    return pipe


@pytest.mark.parametrize("guidance", [0.0, 4.0])
@pytest.mark.parametrize("prompt", ["a red circle", "long " * 200])
def test_the_picture_is_that_of_the_pipeline(studio: Studio, prompt: str, guidance: float) -> None:
    negative = Conditioning("blurry", studio.encoder)
    job = studio.job(prompt, steps=8, cfg=1 + guidance, negative=negative, seed=3)
    result = studio.render.sample(job, Context())
    (image,) = studio.render.decode(studio.vae, result.latent, Context())
    pipe = pipeline_of(studio)

    def theirs(kind: str) -> Any:
        return pipe(
            prompt,
            height=96,
            width=64,
            num_inference_steps=8,
            guidance_scale=guidance,
            negative_prompt="blurry",
            generator=torch.Generator().manual_seed(3),
            output_type=kind,
        ).images

    assert torch.allclose(result.latent.samples, theirs("latent"), atol=1e-4)
    wanted = np.asarray(theirs("pil")[0]).astype(int)
    assert image.pixels.shape == (96, 64, 3)
    assert wanted.std() > 20
    # A rounding to 8 bits may fall on the other side.
    assert np.abs(image.pixels.astype(int) - wanted).max() <= 1


def test_what_the_walker_is_told(studio: Studio) -> None:
    studio.render.free()
    ctx = Context()
    studio.render.encode_text(Conditioning("new words", studio.encoder), ctx)
    result = studio.render.sample(studio.job("other new words"), ctx)
    studio.render.decode(studio.vae, result.latent, ctx)
    phases = [told[:3] for told in ctx.told]
    assert phases == [
        ("loading", 0.02, "Loading model"),
        ("encode", 0.05, "Encoding prompt"),
        ("sample", pytest.approx(0.3), "Step 1/4"),
        ("sample", pytest.approx(0.5), "Step 2/4"),
        ("sample", pytest.approx(0.7), "Step 3/4"),
        ("sample", pytest.approx(0.9), "Step 4/4"),
        ("decode", 0.95, "Decoding"),
    ]
    steps = [told[3:] for told in ctx.told if told[0] == "sample"]
    assert [step[:2] for step in steps] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert steps[-1][2] == 0
    assert ctx.threads == {threading.current_thread().name}
    assert len(ctx.previews) == 4
    assert PillowImage.open(io.BytesIO(ctx.previews[0])).size == (64, 96)


def test_provenance_says_how_to_make_it_again(studio: Studio) -> None:
    result = studio.render.sample(studio.job(latent=Latent(64, 64, 3), seed=41), Context())
    images = studio.render.decode(studio.vae, result.latent, Context())
    assert [image.provenance["seed"] for image in images] == [41, 42, 43]
    facts = images[1].provenance
    for part, name, reference in (
        ("model", "z.safetensors", studio.model),
        ("vae", "ae.safetensors", studio.vae),
    ):
        sha256 = hashlib.sha256(reference.path.read_bytes()).hexdigest()
        assert facts[part] == {"name": name, "stamp": reference.stamp, "sha256": sha256}
    assert facts["textEncoder"]["name"] == "qwen"
    assert facts["sigmas"] == [1.0, 0.9, 0.75, 0.5, 0.0]
    assert (facts["sampler"], facts["scheduler"], facts["steps"]) == ("euler", "simple", 4)
    assert (facts["cfg"], facts["denoise"]) == (1.0, 1.0)
    assert (facts["dtype"], facts["device"], facts["batch"]) == ("float32", "cpu", 3)
    assert facts["versions"].keys() >= {"torch", "diffusers", "transformers"}
    again = studio.pixels(studio.job(latent=Latent(64, 64), seed=42))
    assert np.abs(again.astype(int) - images[1].pixels).max() <= 1


def test_cancel_within_a_step(studio: Studio) -> None:
    ctx = Context(cancel_at_step=2)
    with pytest.raises(RunCancelled):
        studio.render.sample(studio.job(steps=200), ctx)
    assert [told[3] for told in ctx.told if told[0] == "sample"][-1] in {2, 3}
    assert studio.pixels(studio.job()).std() > 1
    assert studio.render.stats()["sampler"]["active"] == 0


def test_cancelled_before_it_starts(studio: Studio) -> None:
    ctx = Context()
    ctx.cancelled.set()
    latent = Latent(64, 64, samples=torch.zeros(1, 16, 8, 8), space="flux")
    for call in (
        lambda: studio.render.sample(studio.job(), ctx),
        lambda: studio.render.decode(studio.vae, latent, ctx),
        lambda: studio.render.encode_text(Conditioning("x", studio.encoder), ctx),
    ):
        with pytest.raises(RunCancelled):
            call()


def test_a_walker_leaves_at_once_while_the_device_is_busy(studio: Studio) -> None:
    gate = threading.Event()
    studio.render.warm_up()
    busy = studio.render._device.call(lambda: gate.wait(20))
    ctx = Context()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        picture = Image(np.zeros((64, 64, 3), np.uint8))
        waiting = pool.submit(studio.render.encode_image, studio.vae, picture, ctx)
        ctx.cancelled.set()
        with pytest.raises(RunCancelled):
            waiting.result(5)
    gate.set()
    assert busy.result(20)


def test_runs_of_many_walkers_share_passes(studio: Studio) -> None:
    alone = [studio.pixels(studio.job(seed=seed)) for seed in range(4)]
    before = studio.render.stats()["sampler"]["forwards"]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        jobs = [studio.job(seed=seed) for seed in range(4)]
        together = list(pool.map(studio.pixels, jobs))
    assert studio.render.stats()["sampler"]["forwards"] - before <= 16
    for left, right in zip(alone, together, strict=True):
        assert np.abs(left.astype(int) - right).max() <= 1


def test_image_to_image(studio: Studio) -> None:
    source = Image(studio.pixels(studio.job(seed=11)))
    latent = studio.render.encode_image(studio.vae, source, Context())
    assert (latent.width, latent.height, latent.space) == (64, 96, "flux")
    changed = studio.job(latent=latent, denoise=0.5, seed=12)
    result = studio.render.sample(changed, Context())
    assert len(result.provenance["sigmas"]) == 5
    assert result.provenance["sigmas"][0] < 1
    with pytest.raises(InvalidParam, match="multiples of 8"):
        studio.render.encode_image(studio.vae, Image(source.pixels[:50, :50]), Context())
    with pytest.raises(InvalidParam, match="sample it first"):
        studio.render.decode(studio.vae, Latent(64, 64), Context())


def test_warnings_travel_with_the_result(studio: Studio) -> None:
    job = studio.job("z" * 600, latent=Latent(32, 32))
    warnings = studio.render.sample(job, Context()).warnings
    assert any("32x32 is far from the 128x128" in text for text in warnings)
    assert any("tokens were cut" in text for text in warnings)
    assert studio.render.sample(studio.job(latent=Latent(128, 128)), Context()).warnings == ()


def test_memory_is_given_back_and_taken_again(studio: Studio) -> None:
    first = studio.pixels(studio.job())
    freed = studio.render.free()
    assert freed["bytesBefore"] > 1_000_000
    assert freed["bytesAfter"] == 0
    assert np.array_equal(studio.pixels(studio.job()), first)
    assert studio.render.stats()["pool"]["misses"] >= 6


def test_out_of_memory_in_a_decode_is_told_and_forgotten(studio: Studio) -> None:
    calls: list[int] = []

    def work(check: Any) -> Any:
        calls.append(1)
        return torch.empty(1 << 55)

    with pytest.raises(OutOfMemory, match="Out of memory while"):
        studio.render._on_device(work, Context())
    assert len(calls) == 2
    assert studio.pixels(studio.job()).std() > 1


def test_a_pipeline_folder_gives_the_same_picture(studio: Studio, tmp_path: Path) -> None:
    tiny.save_pipeline(tmp_path / "diffusion_models/zimg")
    other = Studio(tmp_path)
    try:
        assert np.array_equal(other.pixels(other.job()), studio.pixels(studio.job()))
    finally:
        assert other.render.close(10)


def test_nothing_needs_the_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        message = "no network in tests"
        raise AssertionError(message)

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    tiny.save_models(tmp_path)
    single = tmp_path / "text_encoders/single.safetensors"
    tiny.save_text_encoder_file(single)
    other = Studio(tmp_path)
    try:
        for name in ("qwen", "single.safetensors"):
            other.encoder = other.catalog.find(Role.TEXT_ENCODER, name)
            assert other.pixels(other.job()).std() > 1
        single_tokens = tmp_path / "text_encoders/single.tokenizer"
        for file in single_tokens.iterdir():
            file.write_text("{}")
        other.render.free()
        with pytest.raises(ModelFileMissing, match=r"the tokenizer of .* cannot be read"):
            other.pixels(other.job("unseen words"))
    finally:
        assert other.render.close(10)


def test_closing_ends_what_runs(tmp_path: Path) -> None:
    other = Studio(tiny.save_models(tmp_path))
    started = threading.Event()
    job = other.job(steps=5000, on_step=lambda _: started.set())
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(other.render.sample, job, Context())
        assert started.wait(20)
        assert other.render.close(10)
        with pytest.raises(Unavailable, match="stopping"):
            running.result(10)
    with pytest.raises(Unavailable, match="stopping"):
        other.render.sample(other.job(), Context())
