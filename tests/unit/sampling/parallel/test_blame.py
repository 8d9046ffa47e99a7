"""Who is named when several processes end together."""

from __future__ import annotations

import pytest

from inline_core.sampling.backends.parallel.blame import Sign, cause_of, last_error

GONE_0 = Sign("gone", "rank 0 ended", 0)
GONE_1 = Sign("gone", "rank 1 ended", 1)
ECHO_0 = Sign("failed", "rank 0: closed by peer", 0, echo=True)
ECHO_1 = Sign("failed", "rank 1: closed by peer", 1, echo=True)
BROKEN_0 = Sign("failed", "rank 0: ValueError", 0)
MEMORY_1 = Sign("failed", "rank 1: Out of memory", 1, "out_of_memory")
AGENT = Sign("agent", "torchrun ended with code 1")
KILLED = Sign("agent", "torchrun was ended by signal 9", signal=True)
HOST = Sign("host", "host b left")
REFUSED = Sign("refused", "rank 1 runs another release", 1)
LOG = """
[rank1]: something at first
ModuleNotFoundError: No module named 'x'
W1130 16:50:12.827000 1 torch/distributed/elastic/multiprocessing/api.py:1010] Sending SIGTERM
Traceback (most recent call last):
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
inline_core.engine.ranks FAILED
Root Cause (first observed failure):
[0]:
  time      : 2026-11-30_16:50:12
  rank      : 1 (local_rank: 1)
============================================================
"""


@pytest.mark.parametrize(
    ("signs", "cause"),
    [
        # The exchange with a killed rank fails before its connection ends.
        ([ECHO_1, GONE_1, GONE_0], GONE_0),
        ([GONE_1, GONE_0], GONE_1),
        ([ECHO_0, ECHO_1, AGENT], ECHO_0),
        ([ECHO_1, GONE_1, BROKEN_0, GONE_0], BROKEN_0),
        ([ECHO_0, BROKEN_0, MEMORY_1], MEMORY_1),
        ([GONE_0, GONE_1, KILLED], KILLED),
        ([GONE_1, ECHO_0, HOST, GONE_0], HOST),
        ([GONE_0, REFUSED], REFUSED),
        ([AGENT], AGENT),
    ],
)
def test_the_cause_is_told_whatever_came_first(signs: list[Sign], cause: Sign) -> None:
    assert cause_of(signs, [], "") == cause


def test_a_rank_that_never_said_hello_is_told_with_the_last_line_of_its_log() -> None:
    told = cause_of([GONE_0, AGENT], [1], LOG).words
    assert told == "rank 1 could not start: ModuleNotFoundError: No module named 'x'"
    assert cause_of([AGENT], [0, 1], LOG).words == told
    assert cause_of([GONE_0, AGENT], [1], "") == GONE_0


@pytest.mark.parametrize(
    ("log", "line"),
    [
        (LOG, "ModuleNotFoundError: No module named 'x'"),
        ("Segmentation fault (core dumped)\n", "Segmentation fault (core dumped)"),
        ("[rank0]: RuntimeError: no room\n=====\n", "RuntimeError: no room"),
        ("a.b.Error: first\nOSError: second\nE1130 1 x] failed\n", "OSError: second"),
        ("", ""),
    ],
)
def test_the_line_that_says_most(log: str, line: str) -> None:
    assert last_error(log) == line
