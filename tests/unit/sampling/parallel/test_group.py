"""Groups that never come to be: who is missing or wrong is told, with code, and nothing is left."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inline_core.cli import main
from inline_core.devices.split import Split
from inline_core.engine.ranks.join import join
from inline_core.engine.ranks.link import versions
from inline_core.errors import (
    InlineError,
    InvalidRequest,
    PortTaken,
    RunCancelled,
    Unavailable,
    WorkerLost,
)
from inline_core.loading.component import ComponentRef, LoraRef, Role
from inline_core.sampling.backends.parallel.channel import Channel
from inline_core.sampling.backends.parallel.door import knock
from inline_core.sampling.backends.parallel.files import differing, files_of
from inline_core.sampling.backends.parallel.group import Group, GroupPlan, HostState
from inline_core.sampling.backends.parallel.processes import Meeting
from inline_core.sampling.backends.parallel.sampler import GroupSampler, settings_of_ranks
from inline_core.sampling.job import SampleJob
from inline_core.sampling.values import Conditioning, Latent
from inline_core.settings import Settings
from tests import tiny

KEY = "a key"


class Stop:
    def __init__(self) -> None:
        self.asked = threading.Event()

    def check(self) -> None:
        if self.asked.is_set():
            raise RunCancelled


def reference(path: Path = Path("/models/a"), stamp: str = "s") -> ComponentRef:
    lora = LoraRef(path.with_name("lora"), "lora", "l", 1.0)
    return ComponentRef(Role.DIFFUSION_MODEL, "z-image", "", path.name, path, stamp, (lora,))


def job(**changes: Any) -> SampleJob:
    values: dict[str, Any] = {"steps": 4, "cfg": 1.0, "sampler": "euler", "scheduler": "simple"}
    encoder = ComponentRef(Role.TEXT_ENCODER, "qwen3", "", "t", Path("/models/t"), "t")
    return SampleJob(
        model=reference(),
        positive=Conditioning("x", encoder),
        latent=Latent(64, 64),
        seed=1,
        split=Split("diffusers", ulysses=2),
        **(values | changes),
    )


@pytest.fixture
def meeting() -> Meeting:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return Meeting("127.0.0.1", probe.getsockname()[1], KEY, 2)


def sampler_at(
    meeting: Meeting | None, ours: dict[str, str] | None = None, **changes: Any
) -> GroupSampler:
    settings = Settings(demo_model=False, **changes)
    return GroupSampler(settings, lambda _: GroupPlan(2, (), meeting), ours or versions())


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    folder = Path(tempfile.gettempdir())
    assert not list(folder.glob(f"inline-core-group-{os.getpid()}-*"))


def end(group: GroupSampler) -> None:
    group.fail_all(Unavailable("the test is over"))


def test_hosts_that_do_not_come_are_counted(meeting: Meeting) -> None:
    group = sampler_at(meeting, parallel_start_timeout_s=0.3)
    with pytest.raises(WorkerLost) as caught:
        group.submit(job()).result(20)
    assert (
        f"1 of 2 hosts did not join: run `inline-core join 127.0.0.1:{meeting.port}` there"
        in caught.value.message
    )
    # It was tried twice, and then somebody was told.
    assert group.stats()["starts"] == 2
    end(group)


def test_jobs_that_wait_for_hosts_are_cancelled_at_once(meeting: Meeting) -> None:
    group, stop = sampler_at(meeting), Stop()
    waiting = group.submit(job(cancel=stop))
    other = group.submit(job())
    stop.asked.set()
    with pytest.raises(RunCancelled):
        waiting.result(2)
    assert not other.done()
    end(group)
    with pytest.raises(Unavailable):
        other.result(5)


def test_another_release_on_a_host_is_told_on_both_sides(meeting: Meeting) -> None:
    ours = {**versions(), "torch": "0.0.1"}
    group, said = sampler_at(meeting, ours), list[str]()
    future = group.submit(job())
    theirs = f"{socket.gethostname()} runs torch {versions()['torch']}, the server torch 0.0.1"
    with pytest.raises(InvalidRequest, match="install the same releases") as there:
        join(f"127.0.0.1:{meeting.port}", KEY, said.append)
    assert theirs in there.value.message
    with pytest.raises(WorkerLost) as here:
        future.result(10)
    assert f"host {theirs}" in here.value.message
    assert group.stats()["starts"] == 1
    assert "The server is there; waiting for all hosts" in said
    end(group)


def test_a_wrong_key_ends_join_and_not_the_server(
    meeting: Meeting, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    group = sampler_at(meeting)
    future = group.submit(job())
    monkeypatch.setenv("INLINE_PARALLEL_KEY", "another")
    address = f"127.0.0.1:{meeting.port}"
    assert main(["join", address]) == 2
    assert (
        f"INLINE_PARALLEL_KEY is not the one of the server at {address}" in capsys.readouterr().err
    )
    assert not future.done()
    end(group)


@pytest.mark.parametrize(
    ("address", "key", "told"),
    [
        ("somewhere", KEY, "give HOST:PORT"),
        ("a:b", KEY, "give HOST:PORT"),
        ("127.0.0.1:1", "", "INLINE_PARALLEL_KEY is not set"),
    ],
)
def test_join_says_what_it_needs(address: str, key: str, told: str) -> None:
    with pytest.raises(InvalidRequest, match=told):
        join(address, key, print)


def test_hosts_beyond_the_number_are_not_needed(meeting: Meeting) -> None:
    """Three come where two are needed: the third is told, and stays."""
    plan = GroupPlan(2, (), meeting)
    group = Group(plan, {}, versions())
    group.start()
    hello = {"kind": "host", "remote": True, "host": "far", "versions": versions()}
    one_is_there: Any = [object()]
    group.hosts = one_is_there
    channel = Channel(knock(meeting.door, meeting.secret), memory="")
    channel.send(hello)
    peer, message = group.inbox.get(timeout=5)
    assert isinstance(peer, HostState)
    group.welcome_host(peer, message)
    assert channel.receive()["kind"] == "full"
    group.hosts = []
    group.end()
    channel.close()


@pytest.mark.parametrize("offset", [0, 1])
def test_both_ports_of_a_meeting_have_to_be_free(meeting: Meeting, offset: int) -> None:
    with socket.create_server(("127.0.0.1", meeting.port + offset)):
        group = sampler_at(meeting)
        start = time.monotonic()
        with pytest.raises(PortTaken) as caught:
            group.submit(job()).result(10)
        assert time.monotonic() - start < 5
        assert f"port {meeting.port + offset} of 127.0.0.1" in caught.value.message
        assert "INLINE_PARALLEL_ADDRESS" in caught.value.message
        end(group)


def test_an_address_of_another_host_is_told() -> None:
    group = sampler_at(Meeting("203.0.113.7", 29500, KEY, 2))
    with pytest.raises(InvalidRequest, match="must be an address of this host"):
        group.submit(job()).result(10)
    end(group)


def test_a_group_that_cannot_even_be_thought_of_fails_its_job() -> None:
    """Whatever goes wrong in the server: nobody waits for ever."""

    def broken(_: SampleJob) -> GroupPlan:
        message = "no plan"
        raise ValueError(message)

    group = GroupSampler(Settings(demo_model=False), broken, versions())
    with pytest.raises(InlineError):
        group.submit(job()).result(10)
    end(group)


def test_no_secret_is_sent_to_the_ranks() -> None:
    settings = Settings(demo_model=False, token="secret-1", parallel_key="secret-2", threads=3)
    told = settings_of_ranks(settings)
    assert "secret" not in str(told)
    assert Settings(**told).threads == 3
    named = [name for name in Settings.model_fields if name not in told]
    assert sorted(named) == ["parallel_key", "token"]


def test_files_of_a_job_and_those_that_differ() -> None:
    found = files_of(job())
    assert [path.name for path, _, _, _ in found] == ["a", "lora", "t"]
    model = tiny.shared_models() / "diffusion_models" / "z.safetensors"
    missing, other = differing([(Path("/nowhere/a"), "a", "", "s"), (model, "z", "", "s")])
    assert "a" in missing
    assert other.startswith(f"{model} is not the file that the server has")
    assert "rsync -a" in other
