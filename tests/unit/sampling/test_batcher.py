from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from inline_core.loading.component import ComponentRef, LoraRef, Role
from inline_core.sampling.batcher import PATIENCE, BatchKey, choose, refusal
from inline_core.sampling.job import SampleJob
from inline_core.sampling.patches import RescaleGuidance, with_patch
from inline_core.sampling.values import Conditioning, Latent


def reference(name: str = "m") -> ComponentRef:
    return ComponentRef(Role.DIFFUSION_MODEL, "z-image", "tiny", name, Path(name), "stamp")


@dataclass
class Entry:
    key: BatchKey
    pictures: int = 1
    priority: int = 0
    overtaken: int = 0
    refused_for: str = ""


def entry(model: str = "m", size: int = 64, pictures: int = 1, priority: int = 0) -> Entry:
    return Entry(BatchKey(reference(model), size, size), pictures, priority)


def test_the_key_of_a_job_leaves_out_what_is_not_the_weights() -> None:
    prompt = Conditioning("p", reference("t"))
    patched = with_patch(reference(), RescaleGuidance(0.5))
    job = SampleJob(patched, prompt, Latent(64, 32), 4, 1.0, "euler", "simple", 7)
    assert BatchKey.of(job) == BatchKey(reference(), 64, 32)
    assert BatchKey.of(job) == BatchKey.of(replace(job, cfg=5.0, steps=9, model=reference()))


def test_reasons() -> None:
    active = [entry()]
    assert refusal(entry("other", 99, 99), [], 1) is None
    assert refusal(entry(), active, 2) is None
    assert refusal(entry("other"), active, 8) == "other_model"
    assert refusal(entry(size=32), active, 8) == "other_size"
    assert refusal(entry(pictures=2), active, 2) == "batch_full"
    adapted = replace(reference(), adapters=(LoraRef(Path("a"), "a", "s", 1.0),))
    assert refusal(Entry(BatchKey(adapted, 64, 64)), active, 8) == "other_adapters"


def test_matching_jobs_overtake_but_not_for_ever() -> None:
    active = [entry()]
    refused: Counter[str] = Counter()
    other = entry("other")
    waiting = [other]
    for _ in range(PATIENCE):
        joining = entry()
        assert choose([*waiting, joining], active, 99, refused) is joining
    assert choose([*waiting, entry()], active, 99, refused) is None
    assert choose([*waiting, entry()], [], 99, refused) is other
    assert refused == {"other_model": 1}


def test_higher_priority_is_first_but_starves_nobody() -> None:
    refused: Counter[str] = Counter()
    low, first, second = entry(), entry(priority=5), entry(priority=5)
    assert choose([low, first, second], [], 99, refused) is first
    assert choose([low, second], [], 99, refused) is second
    for _ in range(PATIENCE - 2):
        urgent = entry(priority=9)
        assert choose([low, urgent], [], 99, refused) is urgent
    assert choose([low, entry(priority=9)], [], 99, refused) is low


def test_a_full_batch_lets_nobody_past() -> None:
    active = [entry(), entry()]
    refused: Counter[str] = Counter()
    assert choose([entry(pictures=3), entry()], active, 4, refused) is None
    assert refused == {"batch_full": 1}
