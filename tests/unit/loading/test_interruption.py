from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

from inline_core.loading.interruption import Interruption


class StoppedError(Exception):
    pass


def stop() -> None:
    raise StoppedError


def test_a_pass_ends_before_the_next_module() -> None:
    calls: list[str] = []
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    first.register_forward_hook(lambda *_: calls.append("first"))
    interruption = Interruption([second])
    x = torch.zeros(1, 2)
    with interruption.asking(stop), pytest.raises(StoppedError):
        second(first(x))
    assert calls == ["first"]
    second(first(x))  # nobody is asked any more
    assert calls == ["first", "first"]


def test_another_thread_is_not_asked() -> None:
    module = nn.Linear(2, 2)
    interruption = Interruption([module])
    failed: list[BaseException] = []

    def run() -> None:
        try:
            module(torch.zeros(1, 2))
        except StoppedError as error:
            failed.append(error)

    with interruption.asking(stop):
        thread = threading.Thread(target=run)
        thread.start()
        thread.join(20)
    assert failed == []
