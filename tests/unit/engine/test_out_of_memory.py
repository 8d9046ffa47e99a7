"""Memory that runs out, at every stage and at random: one run fails at most, the next is untouched."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from inline_core.families.autoencoders import kl
from inline_core.families.text_encoders import qwen3
from inline_core.families.z_image import components
from inline_core.families.z_image.denoise import ZImageDenoiser
from tests.lengths import at_length
from tests.live import LiveServer
from tests.unit.server.test_zimage_runs import one_click, pixels

SIZE: dict[str, Any] = {"width": 64, "height": 64, "steps": 2}
PLACES: tuple[tuple[Any, str], ...] = (
    (components, "load_denoiser"),
    (components, "encode"),
    (qwen3, "load_text_encoder"),
    (kl, "load_vae"),
    (kl.VaeRuntime, "decode_raw"),
    (ZImageDenoiser, "predict"),
)


class Fault:
    """Raises torch's own error in the calls `first` to `first + count - 1` of one place."""

    def __init__(self, work: Callable[..., Any]) -> None:
        self._work = work
        self.first, self.count, self.calls = 0, 0, 0

    def arm(self, first: int, count: int) -> None:
        self.first, self.count, self.calls = first, count, 0

    def __get__(self, owner: Any, _: Any = None) -> Callable[..., Any]:
        return lambda *arguments, **named: self(owner, *arguments, **named)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.calls += 1
        if self.first <= self.calls < self.first + self.count:
            message = "CUDA out of memory. Tried to allocate 2.00 GiB."
            raise torch.OutOfMemoryError(message)
        return self._work(*arguments, **named)


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> dict[str, Fault]:
    made: dict[str, Fault] = {}
    for place, name in PLACES:
        made[name] = Fault(getattr(place, name))
        monkeypatch.setattr(place, name, made[name])
    return made


def go(server: LiveServer, seed: int) -> dict[str, Any]:
    found: dict[str, Any] = server.submit(*one_click(seed=seed, **SIZE), wait=5, force=True).json()
    return found


@pytest.mark.parametrize("name", [name for _, name in PLACES])
def test_one_failure_is_recovered_from_and_two_fail_that_run_only(
    tiny_server: LiveServer, faults: dict[str, Fault], name: str
) -> None:
    wanted = pixels(tiny_server, go(tiny_server, 1)["takes"][0])
    tiny_server.services.render.free()
    faults[name].arm(1, 1)
    recovered = go(tiny_server, 1)
    assert recovered["status"] == "done", recovered["error"]
    assert faults[name].calls >= 2
    difference = np.abs(pixels(tiny_server, recovered["takes"][0]).astype(int) - wanted)
    assert difference.max() == 0
    tiny_server.services.render.free()
    # A small VAE is first wanted for previews, which do without it when it cannot be loaded.
    faults[name].arm(1, 3 if name == "load_vae" else 2)
    failed = go(tiny_server, 1)
    assert failed["status"] == "error"
    assert failed["error"]["code"] == "out_of_memory"
    assert failed["error"]["nodeId"] == "m"
    assert "2.00 GiB asked for" in failed["error"]["message"]
    assert "smaller" in failed["error"]["message"]
    faults[name].arm(0, 0)
    after = go(tiny_server, 1)
    assert np.array_equal(pixels(tiny_server, after["takes"][0]), wanted)
    pool = tiny_server.services.render.stats()["pool"]
    assert all(item["leases"] == 0 for item in pool["held"])


def test_a_decode_that_ran_out_is_done_in_tiles_and_says_so(
    tiny_server: LiveServer, faults: dict[str, Fault]
) -> None:
    go(tiny_server, 1)
    faults["decode_raw"].arm(1, 1)
    found = go(tiny_server, 1)
    assert any("tiles" in warning["message"] for warning in found["warnings"])
    take = tiny_server.http.get(f"/v1/takes/{found['takes'][0]['id']}").json()
    assert take["provenance"]["decode"] == "tiled"


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_many_failures_at_random(tiny_server: LiveServer, faults: dict[str, Fault]) -> None:
    wanted = pixels(tiny_server, go(tiny_server, 1)["takes"][0])
    chance = random.Random(20261129)
    ended = {"done": 0, "error": 0}
    for _ in range(at_length(100, 40)):
        if chance.random() < 0.6:
            tiny_server.services.render.free()
        name = chance.choice(sorted(faults))
        faults[name].arm(chance.randint(1, 2), chance.randint(1, 5))
        first = go(tiny_server, 1)
        ended[first["status"]] += 1  # never `running`: 5 seconds were waited for
        if first["status"] == "error":
            assert first["error"]["code"] == "out_of_memory", first["error"]
        faults[name].arm(0, 0)
        again = go(tiny_server, 1)
        assert again["status"] == "done", again["error"]
        assert np.array_equal(pixels(tiny_server, again["takes"][0]), wanted)
    assert min(ended.values()) > at_length(10, 3)
