"""ACE-Step 1.5 against its pipeline: both layouts, lyrics, lengths, guidance, LoRA, its VAE."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from inline_core.engine.decoding import Decoder
from inline_core.errors import InvalidParam, ModelFileMissing
from inline_core.families.registry import FAMILIES
from inline_core.loading.component import ComponentRef, Role
from inline_core.nodes.latent import sound_latent
from inline_core.sampling.patches import ProjectGuidance, with_patch
from inline_core.sampling.values import Conditioning, Latent
from tests import original_layouts, tiny
from tests.backends.conftest import Bench, make_bench
from tests.loras import latents_with, save_lora
from tests.reference import generator
from tests.tiny_families import ace_step

LYRICS = "[verse] la la la"
TOLD = {"lyrics": LYRICS, "bpm": 120, "key": "C major", "time_signature": "4"}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ace")
    ace_step.save_models(folder)
    return folder


@pytest.fixture
def bench(models: Path) -> Iterator[Bench]:
    made = make_bench(models)
    yield made
    assert made.close()


def job(bench: Bench, prompt: str = "calm piano", seconds: float = 1.0, **changes: Any) -> Any:
    options = tuple(sorted(changes.pop("told", TOLD).items()))
    values = {"family": "ace-step", "latent": sound_latent(seconds, 25.0), **changes}
    made = bench.job(prompt, **values)
    encoder = made.positive.encoder
    positive = Conditioning(prompt, encoder, options=options)
    return replace(made, positive=positive)


def reference(seconds: float = 1.0, prompt: str = "calm piano", **call: Any) -> torch.Tensor:
    """(1, channels, frames) of the pipeline, from the same noise."""
    pipe = ace_step.pipeline()
    pipe.set_progress_bar_config(disable=True)
    frames = sound_latent(seconds, 25.0).frames
    noise = torch.randn((1, 64, frames), generator=generator())
    values: dict[str, Any] = {
        "lyrics": LYRICS,
        "bpm": 120,
        "keyscale": "C major",
        "timesignature": "4",
        "guidance_scale": 1.0,
        "num_inference_steps": 4,
        "output_type": "latent",
        "audio_duration": seconds,
        "latents": noise.transpose(1, 2),
        **call,
    }
    with torch.inference_mode():
        found: torch.Tensor = pipe(prompt, **values).audios
    return found.transpose(1, 2) if values["output_type"] == "latent" else found


@pytest.mark.parametrize("seconds", [1.0, 1.28])
def test_the_latents_are_those_of_the_pipeline(bench: Bench, seconds: float) -> None:
    wanted = reference(seconds)
    ours = bench.latents(job(bench, seconds=seconds))
    assert wanted.std() > 0.3
    assert ours.shape == wanted.shape
    assert (ours - wanted).abs().max() <= 1e-4


def test_guided_as_there(bench: Bench) -> None:
    guided = job(bench, cfg=5.0)
    guided = replace(guided, model=with_patch(guided.model, ProjectGuidance()))
    ours = bench.latents(guided)
    wanted = reference(guidance_scale=5.0)
    assert (wanted - reference()).abs().max() > 1e-2
    assert (ours - wanted).abs().max() <= 1e-4


def test_long_words_are_cut_as_there_and_it_is_said(bench: Bench) -> None:
    prompt = "long " * 80
    result = bench.sampler.submit(job(bench, prompt)).result(30)
    assert (result.latent.samples - reference(prompt=prompt)).abs().max() <= 1e-4
    assert "too long" in result.warnings[0]


@pytest.mark.parametrize("changes", [{"lyrics": "other"}, {"bpm": 60}, {"key": "D minor"}])
def test_what_is_told_counts(bench: Bench, changes: dict[str, Any]) -> None:
    one = bench.latents(job(bench))
    assert (bench.latents(job(bench, told={**TOLD, **changes})) - one).abs().max() > 1e-3


def test_prompts_of_other_lengths_share_a_pass(bench: Bench) -> None:
    jobs = [job(bench, prompt, cfg=3.0) for prompt in ("a", "a much longer description")]
    alone = [bench.latents(one) for one in jobs]
    together = [bench.sampler.submit(one) for one in jobs]
    for one, future in zip(alone, together, strict=True):
        assert (future.result(30).latent.samples - one).abs().max() <= 1e-4


def test_no_prompt_is_the_one_that_was_learnt(bench: Bench) -> None:
    """Away from the null condition, at a scale where plain guidance is easily written down."""
    pipe = ace_step.pipeline()
    noise = torch.randn((1, 64, 25), generator=generator()).transpose(1, 2)  # (1, frames, c)
    encoder, silence = pipe.condition_encoder, pipe.condition_encoder.silence_latent
    with torch.inference_mode():
        states, mask, words, words_mask = pipe.encode_prompt(
            "calm piano", LYRICS, "cpu", audio_duration=1.0, bpm=120, keyscale="C major",
            timesignature="4",
        )  # fmt: skip
        given, _ = encoder(states, mask, words, words_mask, silence[:, :750], torch.zeros(1).long())
        context = torch.cat([silence[:, :25], torch.ones(1, 25, 64)], -1)
        time = torch.ones(1)
        velocities = [
            pipe.transformer(noise, time, time, features, context, return_dict=False)[0]
            for features in (given, encoder.null_condition_emb.expand_as(given))
        ]
        wanted = noise - (velocities[1] + 3.0 * (velocities[0] - velocities[1]))
    ours = bench.latents(job(bench, steps=1, cfg=3.0))
    assert (ours - wanted.transpose(1, 2)).abs().max() <= 1e-4
    other = bench.latents(job(bench, steps=1, cfg=3.0, negative="noise"))
    assert (other - ours).abs().max() > 1e-3


def test_the_release_gives_the_same(bench: Bench, models: Path, tmp_path: Path) -> None:
    ace_step.save_released(tmp_path)
    ace_step.save_encoders(tmp_path)
    keys = original_layouts.oobleck(dict(ace_step.vae().state_dict()), 2)
    tiny.save(keys, tmp_path / "vae/oobleck.safetensors")
    tiny.settle(tmp_path)
    released = make_bench(tmp_path)
    try:
        wanted = bench.latents(job(bench, seconds=0.32))
        # Eight latents are four tokens: no window hides anything.
        ours = released.latents(job(released, seconds=0.32))
        assert (ours - wanted).abs().max() <= 1e-5
        sounds = []
        for made in (bench, released):
            vae = made.catalog.find(Role.VAE, "", family="ace-step")
            latent = Latent(1, 1, samples=wanted, space="ace-step", frames=8, fps=25.0)
            decode = made.modules.autoencoders.decode_sound
            sounds.append(decode(vae, latent, wanted, lambda: None, tiled=False))
        assert [sound[1] for sound in sounds] == [1000, 44_100]
        assert np.abs(sounds[0][0] - sounds[1][0]).max() <= 1e-5
    finally:
        assert released.close()


def test_the_sound_is_that_of_the_pipeline(bench: Bench) -> None:
    latents = bench.latents(job(bench))
    vae = bench.catalog.find(Role.VAE, "", family="ace-step")
    latent = Latent(1, 1, samples=latents, space="ace-step", frames=25, fps=25.0)
    decode = bench.modules.autoencoders.decode_sound
    ours, rate, special = decode(vae, latent, latents, lambda: None, tiled=False)
    wanted = reference(output_type="np")[0]
    assert (ours.shape, rate, special) == ((2, 1000), 1000, ())
    assert np.abs(ours).max() == pytest.approx(10 ** (-1 / 20), abs=1e-5)
    assert np.abs(ours - wanted).max() <= 1e-4


def test_a_lora_in_both_spellings_changes_the_sound(bench: Bench, tmp_path: Path) -> None:
    plain = bench.latents(job(bench))
    found = []
    for index, stem in enumerate(
        ("transformer.layers.0.cross_attn.to_q", "base_model.model.layers.0.cross_attn.q_proj")
    ):
        path = tmp_path / f"{index}.safetensors"
        save_lora(path, stem, (32, 32))
        found.append(latents_with(bench, job(bench), path))
    assert (found[0] - plain).abs().max() > 1e-3
    assert torch.equal(found[0], found[1])


def test_latents_of_pictures_are_refused(bench: Bench) -> None:
    with pytest.raises(InvalidParam, match="Empty Audio Latent"):
        bench.sampler.submit(job(bench, latent=Latent(64, 64))).result(30)


def test_without_its_condition_encoder_it_says_so(tmp_path: Path) -> None:
    ace_step.save_transformer(tmp_path)
    ace_step.save_vae(tmp_path)
    tiny.save_text_encoder_folder(tmp_path / "text_encoders/qwen")
    tiny.settle(tmp_path)
    bench = make_bench(tmp_path)
    try:
        with pytest.raises(ModelFileMissing, match="ace-step-condition"):
            bench.job(family="ace-step")
    finally:
        assert bench.close()


def test_the_folder_of_a_pipeline_is_enough(bench: Bench, tmp_path: Path) -> None:
    folder = tmp_path / "diffusion_models/ace"
    for part, model in (
        ("transformer", ace_step.transformer()),
        ("vae", ace_step.vae()),
        ("text_encoder", tiny.text_encoder()),
        ("condition_encoder", ace_step.condition()),
        ("tokenizer", tiny.tokenizer()),
    ):
        model.save_pretrained(folder / part)
    (folder / "model_index.json").write_text('{"_class_name": "AceStepPipeline"}')
    tiny.settle(tmp_path)
    whole = make_bench(tmp_path)
    try:
        assert torch.equal(whole.latents(job(whole)), bench.latents(job(bench)))
        model = whole.catalog.find(Role.DIFFUSION_MODEL, "", family="ace-step")
        assert whole.catalog.companions(model)[0].path == folder / "vae"
    finally:
        assert whole.close()


@pytest.mark.parametrize(
    ("family", "space", "words"),
    [
        ("ace-step", "ace-step", "latents of a sound: decode them with Decode Audio"),
        ("z-image", "flux", "latents of pictures: decode them with VAE Decode"),
    ],
)
def test_decoders_refuse_what_is_not_theirs(family: str, space: str, words: str) -> None:
    """Before anything is loaded: the space of the latents says what they become."""
    rules = FAMILIES[family].rules
    vae = ComponentRef(Role.VAE, rules.vae_family, "", "vae", Path("vae"), "")
    latent = Latent(1, 1, samples=torch.zeros(1, 1), space=space)
    never: Any = pytest.fail
    decoder = Decoder(never, never)
    ask = decoder.pictures if family == "ace-step" else decoder.sounds
    context: Any = None
    with pytest.raises(InvalidParam, match=words):
        ask(vae, latent, context)
