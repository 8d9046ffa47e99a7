"""A group over two hosts: this one, and a network namespace with a host name and files of its own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from inline_core.devices.split import Split
from inline_core.engine.ranks.link import versions
from inline_core.errors import ModelFileInvalid, Unavailable
from inline_core.sampling.backends.parallel.group import GroupPlan
from inline_core.sampling.backends.parallel.processes import Meeting
from inline_core.sampling.backends.parallel.sampler import GroupSampler
from inline_core.settings import Settings
from tests import tiny
from tests.backends.conftest import Bench, make_bench
from tests.backends.splitting.test_faults import family_of, leftovers, wait_until
from tests.lengths import LONG
from tests.processes import alive

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(300)]
SPLIT = Split("diffusers", ulysses=2)
KEY = "a sécret of both"
ROOT = Path(__file__).parents[3]
PATIENCE_S = 90.0
MODEL = "z.safetensors"
OTHER = "other.safetensors"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Lab:
    """The other host, the server's group, and what they compute."""

    def __init__(self, folder: Path) -> None:
        self.name = f"inline-{os.getpid()}"
        self.ours, self.theirs = f"10.231.{os.getpid() % 250}.1", f"10.231.{os.getpid() % 250}.2"
        self.cable = f"ia{os.getpid()}"
        self.folder = folder
        self.models = folder / "models"
        shutil.copytree(tiny.shared_models(), self.models)
        model = self.models / "diffusion_models" / MODEL
        shutil.copy(model, model.with_name(OTHER))
        tiny.settle(self.models)
        # The same weights, copied at another time.
        self.copy = shutil.copy(model, folder / "copied.safetensors")
        self.other = model.with_name(OTHER)
        self.bench: Bench = make_bench(self.models)
        settings = Settings(
            models_dir=self.models,
            demo_model=False,
            threads=1,
            profile="cpu",
            parallel_step_timeout_s=20,
        )
        with socket.create_server(("127.0.0.1", 0)) as probe:
            # The next one is most probably free, too.
            self.port = probe.getsockname()[1]
        meeting = Meeting(self.ours, self.port, KEY, 2)
        self.group = GroupSampler(settings, lambda _: GroupPlan(2, (), meeting), versions())
        self.joined: list[subprocess.Popen[str]] = []

    def connect(self) -> None:
        """Make the namespace with a cable to it."""
        near, far = self.cable, f"ib{os.getpid()}"
        ip("netns", "add", self.name)
        ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", self.name)
        ip("addr", "add", f"{self.ours}/30", "dev", near)
        ip("link", "set", near, "up")
        ip("-n", self.name, "addr", "add", f"{self.theirs}/30", "dev", far)
        ip("-n", self.name, "link", "set", far, "up")
        ip("-n", self.name, "link", "set", "lo", "up")

    def join(self, key: str = KEY) -> subprocess.Popen[str]:
        """`inline-core join` on the other host."""
        script = (
            f"hostname guest && mount --bind {self.copy} {self.other} && exec {sys.executable} "
            f"-m inline_core join {self.ours}:{self.port}"
        )
        inside = ["unshare", "--uts", "--mount", "sh", "-c", script]
        log = (self.folder / "join.log").open("a")
        self.joined.append(
            subprocess.Popen(
                ["ip", "netns", "exec", self.name, *inside],
                cwd=ROOT,
                env={**os.environ, "INLINE_PARALLEL_KEY": key},
                stderr=log,
                text=True,
            )
        )
        log.close()
        return self.joined[-1]

    def told(self) -> str:
        """What `join` has said so far."""
        return (self.folder / "join.log").read_text()

    def pids(self) -> list[int]:
        """The processes on the other host."""
        found = subprocess.run(
            ["ip", "netns", "pids", self.name], check=True, capture_output=True, text=True
        )
        return alive([int(pid) for pid in found.stdout.split()])

    def close(self) -> None:
        family = family_of(os.getpid())
        self.group.fail_all(Unavailable("the test is over"))
        for one in self.joined:
            if one.poll() is None:
                one.kill()
            one.wait(10)
        assert self.bench.close()
        subprocess.run(["ip", "netns", "del", self.name], check=False, capture_output=True)
        assert not alive(family)
        assert not leftovers(os.getpid())


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path)
    try:
        made.connect()
    except (OSError, subprocess.CalledProcessError) as error:
        made.close()
        pytest.skip(f"no network namespaces here: {error}")
    yield made
    made.close()


def test_two_hosts_make_a_picture_and_one_of_them_is_lost(lab: Lab) -> None:
    job = lab.bench.job(prompt="a red circle", model=MODEL, steps=20)
    early = lab.join()
    wait_until(lambda: "Waiting for a group" in lab.told(), 20, lab.told)
    future = lab.group.submit(replace(job, split=SPLIT))
    wait_until(lambda: "Started 1 ranks as host 2 of 2" in lab.told(), 20, lab.told)
    stranger = lab.join("another secret")
    assert stranger.wait(20) == 2
    assert "INLINE_PARALLEL_KEY is not the one of the server" in lab.told()
    wanted = lab.bench.latents(job)
    assert torch.allclose(future.result(PATIENCE_S).latent.samples, wanted, atol=1e-4)
    hosts = [one["host"] for one in lab.group.stats()["ranks"]]
    assert sorted(hosts) == sorted([socket.gethostname(), "guest"])

    # The same model at the same place, but another file on the other host.
    other = lab.bench.job(model=OTHER)
    with pytest.raises(ModelFileInvalid, match=r"Files of host guest: .*other\.safetensors is not"):
        lab.group.submit(replace(other, split=SPLIT)).result(PATIENCE_S)

    moving = threading.Event()
    lost = lab.group.submit(replace(job, split=SPLIT, on_step=lambda _: moving.set()))
    assert moving.wait(PATIENCE_S)
    early.send_signal(signal.SIGKILL)
    wait_until(lambda: lab.group.stats()["starts"] == 2, 10, lambda: str(lab.group.stats()))
    assert lab.group.stats()["faults"][-1].startswith("host guest left")
    wait_until(lambda: not lab.pids(), 5, lambda: f"left: {lab.pids()}")
    assert not alive(family_of(os.getpid()))
    lab.join()
    assert torch.allclose(lost.result(PATIENCE_S).latent.samples, wanted, atol=1e-4)

    if LONG:
        # A host that is gone without a word, as one without power.
        ip("link", "set", lab.cable, "down")
        wait_until(lambda: len(lab.group.stats()["faults"]) > 1, 40, lambda: str(lab.group.stats()))
        assert "guest" in lab.group.stats()["faults"][-1]
        wait_until(lambda: len(lab.pids()) == 1, 40, lambda: f"left: {lab.pids()}")
        ip("link", "set", lab.cable, "up")

    # A polite end: nothing is left there, and the server waits for somebody else.
    lab.joined[-1].terminate()
    assert lab.joined[-1].wait(20) == 0
    wait_until(lambda: not lab.pids(), 5, lambda: f"left: {lab.pids()}")
