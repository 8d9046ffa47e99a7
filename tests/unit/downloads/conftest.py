"""A hub and a queue of downloads from it, without a server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from inline_core.downloads.queue import Downloads
from inline_core.downloads.record import Download, State
from inline_core.loading.rules import CATEGORIES
from tests.hub import FakeHub, fake_hub


def use_hub(monkeypatch: pytest.MonkeyPatch, hub: FakeHub) -> None:
    """Let the process ask this hub, whatever its environment was."""
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    with fake_hub() as running:
        use_hub(monkeypatch, running)
        yield running


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    for category in CATEGORIES:
        (folder / category).mkdir(parents=True)
    return folder


class Watched(Downloads):
    """Downloads whose states a test can wait for."""

    def __init__(self, root: Path) -> None:
        self.arrivals = 0
        super().__init__(root, arrived=self._count, pause_s=lambda _: 0)
        self._news = threading.Semaphore(0)
        self.reader = self.feed.open(self._news.release)
        self.seen: list[Download] = []

    def _count(self) -> None:
        self.arrivals += 1

    def until(self, found: Callable[[], bool]) -> None:
        """Wait for news until a condition holds."""
        while not found():
            assert self._news.acquire(timeout=20), [d.state for d in self.all()]
            self.seen += self.reader.changes()
            self.reader.progress()

    def until_state(self, download_id: str, *states: State) -> Download:
        wanted = states or (State.DONE,)
        self.until(lambda: self.get(download_id).state in wanted)
        return self.get(download_id)


@pytest.fixture
def downloads(hub: FakeHub, root: Path) -> Iterator[Watched]:
    queue = Watched(root)
    queue.start()
    yield queue
    queue.stop()
