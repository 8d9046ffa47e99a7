"""Which worker of a cluster a job goes to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from inline_core.errors import DoesNotFit, ModelFileMissing
from inline_core.sampling.backends.ray_placement import (
    Refusal,
    Slot,
    WorkerView,
    choose_worker,
    differing,
    plan_slots,
)

GIB = 1024**3
SMALL = WorkerView("worker-1", "ant", free_bytes=8 * GIB)
LARGE = WorkerView("worker-2", "bee", free_bytes=80 * GIB)
TOO_LARGE = Refusal("does_not_fit", "z needs 100.0 GB, 8.0 GB available", 100 * GIB, 8 * GIB)


def test_the_most_free_memory_wins_whatever_the_order() -> None:
    assert choose_worker([SMALL, LARGE], "z", 9) == "worker-2"
    assert choose_worker([LARGE, SMALL], "z", 9) == "worker-2"


def test_a_worker_that_has_the_model_wins_while_none_has_less_to_do() -> None:
    warm = replace(SMALL, models=frozenset({"z"}))
    assert choose_worker([warm, LARGE], "z", 9) == "worker-1"
    assert choose_worker([warm, LARGE], "other", 9) == "worker-2"
    assert choose_worker([replace(warm, jobs=1), LARGE], "z", 9) == "worker-2"
    assert choose_worker([replace(warm, jobs=1), replace(LARGE, jobs=1)], "z", 9) == "worker-1"


def test_all_that_have_enough_to_do_are_waited_for() -> None:
    assert choose_worker([replace(SMALL, jobs=2), replace(LARGE, jobs=2)], "z", 2) is None
    assert choose_worker([replace(SMALL, jobs=1), replace(LARGE, jobs=2)], "z", 2) == "worker-1"
    assert choose_worker([], "z", 2) is None


def test_a_refusal_leads_to_another_even_a_busy_one() -> None:
    assert choose_worker([replace(LARGE, refusal=TOO_LARGE), SMALL], "z", 9) == "worker-1"
    full = replace(SMALL, jobs=9)
    assert choose_worker([replace(LARGE, refusal=TOO_LARGE), full], "z", 9) is None


def test_what_fits_nowhere_names_the_best_worker_and_its_numbers() -> None:
    roomier = Refusal("does_not_fit", "z needs 100.0 GB, 80.0 GB available", 100 * GIB, 80 * GIB)
    workers = [replace(SMALL, refusal=TOO_LARGE), replace(LARGE, refusal=roomier)]
    with pytest.raises(DoesNotFit, match=r"worker-2 on bee: z needs 100.0 GB, 80.0 GB") as caught:
        choose_worker(workers, "z", 9)
    assert caught.value.details == {"neededBytes": 100 * GIB, "availableBytes": 80 * GIB}


def test_a_missing_file_names_every_machine_that_lacks_it() -> None:
    lacks = Refusal("model_missing", "z.safetensors is not there")
    workers = [replace(SMALL, refusal=lacks), replace(LARGE, refusal=lacks)]
    with pytest.raises(ModelFileMissing, match=r"worker-1 on ant: .*worker-2 on bee: .*same path"):
        choose_worker(workers, "z", 9)
    # Of two reasons the one that a smaller picture helps against.
    with pytest.raises(DoesNotFit, match="worker-1 on ant"):
        choose_worker([replace(SMALL, refusal=TOO_LARGE), workers[1]], "z", 9)


def node(name: str, *, alive: bool = True, **resources: float) -> dict[str, Any]:
    return {
        "NodeID": name, "NodeManagerHostname": f"{name}.lan", "Alive": alive, "Resources": resources,
    }  # fmt: skip


def test_one_place_for_each_gpu_of_the_living() -> None:
    nodes = [node("b", CPU=64, GPU=2), node("a", CPU=8, GPU=1), node("c", alive=False, GPU=8)]
    found = plan_slots(nodes, gpus=True, most=0)
    assert [(slot.node_id, slot.index, slot.gpu) for slot in found] == [
        ("a", 0, True), ("b", 0, True), ("b", 1, True),
    ]  # fmt: skip
    assert found[1].host == "b.lan"
    assert found[1].shared_by == 2


def test_nodes_without_gpus_count_only_where_there_are_none() -> None:
    head, gpu = node("head", CPU=4), node("gpu", CPU=4, GPU=1)
    assert [slot.node_id for slot in plan_slots([head, gpu], gpus=True, most=0)] == ["gpu"]
    assert plan_slots([head, gpu], gpus=False, most=0) == (
        Slot("gpu", "gpu.lan", 0, gpu=False),
        Slot("head", "head.lan", 0, gpu=False),
    )
    # The server's own machine may join without lending its processors.
    assert plan_slots([node("head"), node("x", CPU=0)], gpus=True, most=0) == ()
    assert len(plan_slots([head], gpus=True, most=3)) == 3


def test_other_releases_are_told_builds_are_not() -> None:
    ours = {"inline-core": "0.1.0", "torch": "2.9.0+cpu"}
    assert differing(ours, {"inline-core": "0.1.0", "torch": "2.9.0+cu130", "ray": "9"}) == ""
    told = differing(ours, {"inline-core": "0.1.0", "torch": "2.8.0+cu128"})
    assert told.startswith("it runs torch 2.8.0+cu128, the server torch 2.9.0+cpu: ")
    assert "torch not installed" in differing(ours, {"inline-core": "0.1.0"})
