"""Texts that language models write, against what transformers' own `generate` gives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Gemma3ForCausalLM, Qwen3ForCausalLM

from inline_core.errors import InvalidParam, RunCancelled
from inline_core.loading.component import ComponentRef, Role
from inline_core.sampling.text_request import TextRequest
from tests import tiny
from tests.backends.conftest import Bench, make_bench
from tests.tiny_families import flux1, ltx2

PROMPT = "a red circle"
MOST = 12


def qwen(folder: Path, *, tied: bool) -> Any:
    """A Qwen3 with a head, in one file as ComfyUI has it."""
    torch.manual_seed(3)
    config = tiny.text_encoder().config
    config.tie_word_embeddings = tied
    model = Qwen3ForCausalLM(config).eval()
    tiny.randomise(model, 0.3)
    if tied:
        model.tie_weights()
    state = dict(model.state_dict())
    if tied:
        del state["lm_head.weight"]
    tiny.save(state, folder / "text_encoders/writer.safetensors")
    tiny.tokenizer().save_pretrained(folder / "text_encoders/writer.tokenizer")
    return model


@pytest.fixture(scope="module", params=["tied", "own head"])
def written(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Bench, Any]]:
    folder = tmp_path_factory.mktemp("writer")
    tiny.save_models(folder)
    model = qwen(folder, tied=request.param == "tied")
    tiny.settle(folder)
    bench = make_bench(folder)
    yield bench, model
    assert bench.close()


def write(bench: Bench, encoder: ComponentRef, request: TextRequest, report: Any = None) -> Any:
    told = report or (lambda *_: None)
    return bench.device.call(
        lambda: bench.modules.writers.write(encoder, request, lambda: None, report=told)
    ).result(60)


def writer(bench: Bench) -> ComponentRef:
    return bench.catalog.find(Role.TEXT_ENCODER, "writer.safetensors")


def test_the_likeliest_words_are_those_of_transformers(written: tuple[Bench, Any]) -> None:
    bench, model = written
    tokenizer = tiny.tokenizer()
    request = TextRequest(PROMPT, max_tokens=MOST, sampling=False, repetition_penalty=1.0,
                          template=False)  # fmt: skip
    counted: list[int] = []
    text, thought = write(bench, writer(bench), request, lambda done, _: counted.append(done))
    ids = torch.tensor([tokenizer(PROMPT).input_ids])
    with torch.inference_mode():
        found = model.generate(
            ids, max_new_tokens=MOST, do_sample=False, pad_token_id=0,
            eos_token_id=tokenizer.eos_token_id,
        )  # fmt: skip
    wanted = tokenizer.decode(found[0, ids.shape[1] :], skip_special_tokens=True).strip()
    assert (text, thought) == (wanted, "")
    assert counted == list(range(1, len(counted) + 1))
    penalised = TextRequest(PROMPT, max_tokens=MOST, sampling=False, repetition_penalty=1.5,
                            template=False)  # fmt: skip
    with torch.inference_mode():
        found = model.generate(
            ids, max_new_tokens=MOST, do_sample=False, repetition_penalty=1.5, pad_token_id=0,
            eos_token_id=tokenizer.eos_token_id,
        )  # fmt: skip
    wanted = tokenizer.decode(found[0, ids.shape[1] :], skip_special_tokens=True).strip()
    assert write(bench, writer(bench), penalised)[0] == wanted


def test_a_seed_gives_the_same_text_and_another_one_another(written: tuple[Bench, Any]) -> None:
    bench, _ = written
    texts = [
        write(bench, writer(bench), TextRequest(PROMPT, max_tokens=MOST, seed=seed, temperature=2.0,
                                                top_k=0, top_p=1.0, min_p=0.0))[0]
        for seed in (1, 1, 2)
    ]  # fmt: skip
    assert texts[0] == texts[1] != texts[2]


def test_it_stops_when_its_run_is_cancelled(written: tuple[Bench, Any]) -> None:
    bench, _ = written

    def stop(done: int, _: int) -> None:
        if done == 3:
            raise RunCancelled

    with pytest.raises(RunCancelled):
        write(bench, writer(bench), TextRequest(PROMPT, max_tokens=50), stop)


def test_gemma_writes_with_the_instructions_of_ltx(tmp_path: Path) -> None:
    ltx2.save_models(tmp_path)
    bench = make_bench(tmp_path)
    encoder = bench.catalog.find(Role.TEXT_ENCODER, "ltx2-gemma")
    model = Gemma3ForCausalLM(ltx2.text_encoder().config).eval()
    model.model.load_state_dict(ltx2.text_encoder().state_dict())
    model.tie_weights()
    tokenizer = tiny.tokenizer()
    request = TextRequest(PROMPT, max_tokens=6, sampling=False, repetition_penalty=1.0,
                          template=False)  # fmt: skip
    ids = torch.tensor([tokenizer(PROMPT).input_ids])
    with torch.inference_mode():
        found = model.generate(ids, max_new_tokens=6, do_sample=False, pad_token_id=0)
    wanted = tokenizer.decode(found[0, ids.shape[1] :], skip_special_tokens=True).strip()
    assert write(bench, encoder, request)[0] == wanted
    told = TextRequest(PROMPT, max_tokens=2, instructions="ltx-2")
    assert write(bench, encoder, told) != ("", None)
    assert bench.close()


def test_an_encoder_that_is_no_language_model_is_refused(tmp_path: Path) -> None:
    flux1.save_models(tmp_path)
    bench = make_bench(tmp_path)
    encoder = bench.catalog.find(Role.TEXT_ENCODER, "clip_l.safetensors")
    with pytest.raises(InvalidParam, match=r"clip_l.safetensors \(clip\) cannot write texts"):
        write(bench, encoder, TextRequest(PROMPT))
    assert bench.close()
