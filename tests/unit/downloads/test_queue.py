"""Downloads from a hub on loopback: whole, stopped, resumed, refused."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from inline_core.downloads.record import State
from inline_core.downloads.request import Wanted, want_file
from inline_core.errors import (
    Conflict,
    Forbidden,
    HubNotFound,
    HubOffline,
    NotFound,
    QueueFull,
    Unavailable,
)
from inline_core.loading.rules import RequiredFile
from tests.hub import SIGNATURE, FakeHub
from tests.unit.downloads.conftest import Watched

REPO = "team/model"
CONTENT = os.urandom(300_000)


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def want(file: str = "sub/vae.safetensors", category: str = "vae", **more: str) -> Wanted:
    return want_file(REPO, file, category, **more)


def test_a_file_arrives_checked_under_its_name(
    hub: FakeHub, downloads: Watched, root: Path
) -> None:
    hub.add(REPO, "sub/vae.safetensors", CONTENT)
    added = downloads.add(want())
    assert added.state in {State.QUEUED, State.RUNNING}
    done = downloads.until_state(added.id)
    assert (root / "vae/vae.safetensors").read_bytes() == CONTENT
    assert (done.bytes_done, done.bytes_total) == (len(CONTENT), len(CONTENT))
    assert done.error is None
    assert done.finished_at_ms is not None
    assert downloads.arrivals == 1
    states = list(dict.fromkeys(d.state for d in downloads.seen))
    assert states == [State.QUEUED, State.RUNNING, State.DONE]
    assert hub.served == {f"{REPO}/sub/vae.safetensors": len(CONTENT)}
    assert {path.name for path in (root / ".downloads").iterdir()} == {
        f"{done.id}.json",
        "server.lock",
    }


def test_a_small_file_is_checked_by_its_git_hash(
    hub: FakeHub, downloads: Watched, root: Path
) -> None:
    hub.add(REPO, "config.json", b'{"a": 1}', large=False)
    added = downloads.add(want("config.json", "text_encoders", name="qwen/config.json"))
    assert added.wanted.target == "text_encoders/qwen/config.json"
    downloads.until_state(added.id)
    assert (root / "text_encoders/qwen/config.json").read_bytes() == b'{"a": 1}'
    hub.add(REPO, "config.json", b'{"a": 2}', large=False, digest="0" * 40)
    other = downloads.add(want("config.json", "text_encoders", name="other/config.json"))
    failed = downloads.until_state(other.id, State.FAILED)
    assert failed.error is not None
    assert failed.error.code == "hash_mismatch"


def test_several_files_are_put_in_place_together(
    hub: FakeHub, downloads: Watched, root: Path
) -> None:
    hub.add(REPO, "model-1.safetensors", CONTENT)
    hub.add(REPO, "config.json", b"{}", large=False)
    gate = hub.hold(REPO, "config.json", 1)
    names = ("model-1.safetensors", "config.json")
    files = tuple(RequiredFile(REPO, name, f"qwen/{name}") for name in names)
    added = downloads.add(Wanted("text_encoders", "text_encoders/qwen", files))
    gate.wait()
    assert not (root / "text_encoders/qwen").exists()
    gate.opened.set()
    done = downloads.until_state(added.id)
    assert {path.name for path in (root / "text_encoders/qwen").iterdir()} == set(names)
    assert done.bytes_total == len(CONTENT) + 2


def test_a_follower_reads_nothing_older_than_what_it_was_shown(
    hub: FakeHub, downloads: Watched
) -> None:
    hub.add(REPO, "sub/vae.safetensors", CONTENT)
    gate = hub.hold(REPO, "sub/vae.safetensors", 100_000)
    added = downloads.add(want())
    gate.wait()
    downloads.until(lambda: downloads.get(added.id).bytes_done == 100_000)
    reader, known = downloads.follow(lambda: None)
    assert [(d.state, d.bytes_done) for d in known] == [(State.RUNNING, 100_000)]
    assert (reader.changes(), reader.progress()) == ([], [])
    gate.opened.set()
    downloads.until_state(added.id)
    assert {d.state for d in reader.changes()} == {State.DONE}
    downloads.feed.close(reader)


def test_cancelled_midway_and_resumed_without_fetching_again(
    hub: FakeHub, downloads: Watched, root: Path
) -> None:
    hub.add(REPO, "sub/vae.safetensors", CONTENT)
    gate = hub.hold(REPO, "sub/vae.safetensors", 100_000)
    added = downloads.add(want())
    gate.wait()
    downloads.until(lambda: downloads.get(added.id).bytes_done == 100_000)
    stopped = downloads.cancel(added.id)
    assert stopped.state is State.CANCELLED
    assert not (root / "vae/vae.safetensors").exists()
    with pytest.raises(Conflict, match="cancelled"):
        downloads.cancel(added.id)
    # The worker that waits for bytes which never come leaves at once, so there is room to resume.
    assert downloads.resume(added.id).state.is_active
    gate.opened.set()
    done = downloads.until_state(added.id)
    assert (root / "vae/vae.safetensors").read_bytes() == CONTENT
    assert done.id == added.id
    assert [asked.range for asked in hub.gets()] == [None, "bytes=100000-"]
    assert downloads.resume(added.id).state is State.DONE
    assert len(hub.gets()) == 2


def test_a_cut_connection_goes_on_by_itself(hub: FakeHub, downloads: Watched, root: Path) -> None:
    file = hub.add(REPO, "sub/vae.safetensors", CONTENT, cuts=[50_000, 50_000, 120_000])
    added = downloads.add(want())
    downloads.until_state(added.id)
    assert (root / "vae/vae.safetensors").read_bytes() == CONTENT
    assert hub.served[f"{REPO}/sub/vae.safetensors"] == len(CONTENT)
    assert [asked.range for asked in hub.gets()] == [
        None,
        "bytes=50000-",
        "bytes=50000-",
        "bytes=120000-",
    ]
    assert file.cuts == []


def test_a_connection_that_stays_cut_fails_and_can_be_resumed(
    hub: FakeHub, downloads: Watched, root: Path
) -> None:
    file = hub.add(REPO, "sub/vae.safetensors", CONTENT, cuts=[50_000] * 20)
    added = downloads.add(want())
    failed = downloads.until_state(added.id, State.FAILED)
    assert failed.error is not None
    assert failed.error.code == "download_failed"
    assert "resume" in failed.error.message
    assert SIGNATURE not in failed.error.message
    assert failed.bytes_done == 50_000
    file.cuts.clear()
    downloads.add(want())
    downloads.until_state(added.id)
    assert hub.served[f"{REPO}/sub/vae.safetensors"] == len(CONTENT)


def test_a_hub_without_ranges_starts_over(hub: FakeHub, downloads: Watched, root: Path) -> None:
    hub.add(REPO, "sub/vae.safetensors", CONTENT, cuts=[50_000], ranges=False)
    added = downloads.add(want())
    downloads.until_state(added.id)
    assert (root / "vae/vae.safetensors").read_bytes() == CONTENT
    assert hub.served[f"{REPO}/sub/vae.safetensors"] == len(CONTENT) + 50_000


def test_another_file_at_the_hub_is_not_glued_to_the_old_bytes(
    hub: FakeHub, downloads: Watched, root: Path
) -> None:
    hub.add(REPO, "sub/vae.safetensors", CONTENT)
    gate = hub.hold(REPO, "sub/vae.safetensors", 100_000)
    added = downloads.add(want())
    gate.wait()
    downloads.cancel(added.id)
    gate.opened.set()
    new = CONTENT[::-1]
    hub.add(REPO, "sub/vae.safetensors", new)
    downloads.resume(added.id)
    downloads.until_state(added.id)
    assert (root / "vae/vae.safetensors").read_bytes() == new


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("size", [len(CONTENT) - 10, len(CONTENT) + 10])
def test_a_wrong_size_is_refused_and_removed(
    hub: FakeHub, downloads: Watched, root: Path, size: int, chunked: bool
) -> None:
    hub.add(REPO, "sub/vae.safetensors", CONTENT, size=size, chunked=chunked)
    added = downloads.add(want())
    failed = downloads.until_state(added.id, State.FAILED)
    assert failed.error is not None
    assert failed.error.code == "size_mismatch"
    assert str(size) in failed.error.message
    assert "vae.safetensors" in failed.error.message
    assert failed.bytes_done == 0
    assert not (root / "vae/vae.safetensors").exists()
    assert not list(root.glob(".downloads/*/*.part"))


def test_a_wrong_hash_is_refused_and_removed(hub: FakeHub, downloads: Watched, root: Path) -> None:
    hub.add(REPO, "sub/vae.safetensors", CONTENT, digest="a" * 64)
    added = downloads.add(want())
    failed = downloads.until_state(added.id, State.FAILED)
    assert failed.error is not None
    assert failed.error.code == "hash_mismatch"
    assert failed.error.details["expected"] == "a" * 64
    assert "a" * 64 in failed.error.message
    assert not (root / "vae/vae.safetensors").exists()
    assert not list(root.glob(".downloads/*/*.part"))
    assert downloads.arrivals == 0


def test_a_hub_that_names_no_hash_is_refused(hub: FakeHub, downloads: Watched) -> None:
    hub.add(REPO, "sub/vae.safetensors", CONTENT, digest="weak")
    failed = downloads.until_state(downloads.add(want()).id, State.FAILED)
    assert failed.error is not None
    assert failed.error.code == "download_failed"
    assert "no size or hash" in failed.error.message
    assert hub.gets() == []


def test_a_full_disk_is_told_before_anything_is_fetched(
    hub: FakeHub, downloads: Watched, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add(REPO, "sub/vae.safetensors", CONTENT)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**12, 10**12, 2**30 + 299_999))
    failed = downloads.until_state(downloads.add(want()).id, State.FAILED)
    assert failed.error is not None
    assert failed.error.code == "disk_full"
    assert failed.error.details["neededBytes"] == 300_000
    assert failed.error.details["freeBytes"] == 2**30 + 299_999
    assert hub.gets() == []
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**12, 0, 2**30 + 300_000))
    downloads.resume(failed.id)
    assert downloads.until_state(failed.id, State.DONE).error is None


def test_two_requests_for_one_target_are_one_download(hub: FakeHub, downloads: Watched) -> None:
    hub.add(REPO, "sub/vae.safetensors", CONTENT)
    hub.add(REPO, "vae.safetensors", CONTENT[:9])
    gate = hub.hold(REPO, "sub/vae.safetensors", 10)
    first = downloads.add(want())
    gate.wait()
    assert downloads.add(want()).id == first.id
    with pytest.raises(Conflict, match=r"is being downloaded from team/model/sub/vae\.safetensors"):
        downloads.add(want("vae.safetensors"))
    gate.opened.set()
    downloads.until_state(first.id)
    assert len(hub.gets()) == 1


def test_two_run_and_the_third_waits(hub: FakeHub, downloads: Watched) -> None:
    names = ["a.safetensors", "b.safetensors", "c.safetensors"]
    gates = []
    for name in names:
        hub.add(REPO, name, CONTENT)
        gates.append(hub.hold(REPO, name, 10))
    a, b, c = (downloads.add(want(name)) for name in names)
    gates[0].wait()
    gates[1].wait()
    assert downloads.get(c.id).state is State.QUEUED
    assert [d.id for d in downloads.all()].index(c.id) <= 2
    gates[0].opened.set()
    gates[2].wait()
    assert downloads.get(c.id).state is State.RUNNING
    downloads.cancel(b.id)
    gates[2].opened.set()
    downloads.until_state(a.id)
    downloads.until_state(c.id)


def test_a_waiting_one_can_be_cancelled(hub: FakeHub, downloads: Watched) -> None:
    names = ["a.safetensors", "b.safetensors", "c.safetensors"]
    for name in names:
        hub.add(REPO, name, CONTENT)
        hub.hold(REPO, name, 10)
    waiting = [downloads.add(want(name)) for name in names][2]
    assert downloads.cancel(waiting.id).state is State.CANCELLED


def test_the_queue_is_bounded(
    hub: FakeHub, downloads: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inline_core.downloads.queue.MOST_ACTIVE", 1)
    hub.add(REPO, "a.safetensors", CONTENT)
    gate = hub.hold(REPO, "a.safetensors", 10)
    first = downloads.add(want("a.safetensors"))
    gate.wait()
    assert downloads.add(want("a.safetensors")).id == first.id
    with pytest.raises(QueueFull):
        downloads.add(want("b.safetensors"))


def test_a_file_in_the_way_is_never_overwritten(
    hub: FakeHub, downloads: Watched, root: Path
) -> None:
    hub.add(REPO, "sub/vae.safetensors", CONTENT)
    place = root / "vae/vae.safetensors"
    for other, why in ((b"mine", "has 4 bytes"), (CONTENT[::-1], "hash")):
        place.write_bytes(other)
        with pytest.raises(Conflict, match=why):
            downloads.add(want())
        assert place.read_bytes() == other
    place.write_bytes(CONTENT)
    found = downloads.add(want())
    assert (found.state, found.bytes_done) == (State.DONE, len(CONTENT))
    assert hub.gets() == []
    # It is remembered: the hub is not asked again.
    asked = len(hub.asked)
    assert downloads.add(want()) == found
    assert len(hub.asked) == asked
    place.unlink()
    again = downloads.add(want())
    assert again.id == found.id
    downloads.until_state(again.id)
    assert place.read_bytes() == CONTENT


def test_a_file_that_appears_meanwhile_is_never_overwritten(
    hub: FakeHub, downloads: Watched, root: Path
) -> None:
    hub.add(REPO, "sub/vae.safetensors", CONTENT)
    gate = hub.hold(REPO, "sub/vae.safetensors", 10)
    added = downloads.add(want())
    gate.wait()
    (root / "vae/vae.safetensors").write_bytes(b"mine")
    gate.opened.set()
    failed = downloads.until_state(added.id, State.FAILED)
    assert failed.error is not None
    assert failed.error.code == "conflict"
    assert (root / "vae/vae.safetensors").read_bytes() == b"mine"


def test_a_link_that_leads_out_is_refused(
    hub: FakeHub, downloads: Watched, root: Path, tmp_path: Path
) -> None:
    hub.add(REPO, "sub/vae.safetensors", CONTENT)
    outside = tmp_path / "outside"
    outside.mkdir()
    (root / "vae").rmdir()
    (root / "vae").symlink_to(outside)
    with pytest.raises(Forbidden, match="leads out"):
        downloads.add(want())
    (root / "loras/loop").symlink_to(root / "loras/loop")
    with pytest.raises(Forbidden, match="leads out"):
        downloads.add(want(category="loras", name="loop/vae.safetensors"))
    # Within the folder a link is fine, and one that is made meanwhile is seen before the rename.
    gate = hub.hold(REPO, "sub/vae.safetensors", 10)
    added = downloads.add(want(category="loras", name="sub/vae.safetensors"))
    gate.wait()
    (root / "loras/sub").symlink_to(outside)
    gate.opened.set()
    failed = downloads.until_state(added.id, State.FAILED)
    assert failed.error is not None
    assert failed.error.code == "forbidden"
    assert list(outside.iterdir()) == []


def test_discarding_frees_the_bytes(hub: FakeHub, downloads: Watched, root: Path) -> None:
    hub.add(REPO, "sub/vae.safetensors", CONTENT)
    gate = hub.hold(REPO, "sub/vae.safetensors", 100_000)
    added = downloads.add(want())
    gate.wait()
    downloads.discard(added.id)
    with pytest.raises(NotFound):
        downloads.get(added.id)
    gate.opened.set()
    downloads.stop()
    assert {path.name for path in (root / ".downloads").iterdir()} == {"server.lock"}


def test_a_stop_interrupts_and_the_next_server_resumes(
    hub: FakeHub, downloads: Watched, root: Path
) -> None:
    hub.add(REPO, "sub/vae.safetensors", CONTENT)
    gate = hub.hold(REPO, "sub/vae.safetensors", 100_000)
    added = downloads.add(want())
    gate.wait()
    downloads.until(lambda: downloads.get(added.id).bytes_done == 100_000)
    other = Watched(root)
    with pytest.raises(Conflict, match="Another server"):
        other.add(want())
    downloads.stop()
    downloads.stop()
    assert downloads.get(added.id).state is State.INTERRUPTED
    with pytest.raises(Unavailable):
        downloads.add(want("x.safetensors"))
    asked = len(hub.asked)
    other.start()
    found = other.get(added.id)
    assert (found.state, found.bytes_done) == (State.INTERRUPTED, 100_000)
    assert len(hub.asked) == asked, "a start fetches nothing"
    gate.opened.set()
    other.resume(added.id)
    other.until_state(added.id)
    assert hub.gets()[-1].range == "bytes=100000-"
    other.stop()


def test_what_was_left_of_a_crash_is_shown_or_swept(hub: FakeHub, root: Path) -> None:
    first = Watched(root)
    hub.add(REPO, "sub/vae.safetensors", CONTENT)
    done = first.until_state(first.add(want()).id)
    first.stop()
    folder = root / ".downloads"
    document = json.loads((folder / f"{done.id}.json").read_text())
    document["wanted"]["files"][0]["name"] = "../../escape.safetensors"
    document["id"] = "download_00000000000a"
    (folder / "download_00000000000a.json").write_text(json.dumps(document))
    (folder / "download_00000000000b.json").write_text("{")
    (folder / "download_00000000000c").mkdir()
    (folder / "download_00000000000d.tmp").write_text("x")
    second = Watched(root)
    second.start()
    assert [d.id for d in second.all()] == [done.id]
    assert second.get(done.id).state is State.DONE
    assert not (folder / "download_00000000000c").exists()
    assert not (folder / "download_00000000000d.tmp").exists()
    second.stop()


def test_offline_is_said_at_once(
    hub: FakeHub, downloads: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(HubOffline, match="HF_HUB_OFFLINE is set"):
        downloads.add(want())
    assert hub.asked == []
    assert downloads.all() == ()


@pytest.mark.parametrize(
    ("status", "code", "expected", "words"),
    [
        (401, "", "hub_refused", "HF_TOKEN"),
        (403, "", "hub_refused", "HF_TOKEN"),
        (403, "GatedRepo", "hub_refused", "accept its terms"),
        (404, "", "hub_not_found", "check the name"),
        (404, "EntryNotFound", "hub_not_found", "check its path"),
        (404, "RevisionNotFound", "hub_not_found", "no such revision"),
        (429, "", "hub_unreachable", "resume the download later"),
        (503, "", "hub_unreachable", "resume the download later"),
        (418, "", "download_failed", "418"),
    ],
)
def test_what_the_hub_refuses_is_told_with_a_remedy(
    hub: FakeHub, downloads: Watched, status: int, code: str, expected: str, words: str
) -> None:
    hub.add(REPO, "sub/vae.safetensors", CONTENT, status=status, error_code=code)
    failed = downloads.until_state(downloads.add(want()).id, State.FAILED)
    assert failed.error is not None
    assert (failed.error.code, words in failed.error.message) == (expected, True), failed.error


def test_an_unknown_repository_and_a_hub_that_is_gone(
    hub: FakeHub, downloads: Watched, monkeypatch: pytest.MonkeyPatch, root: Path
) -> None:
    failed = downloads.until_state(downloads.add(want()).id, State.FAILED)
    assert failed.error is not None
    assert failed.error.code == "hub_refused"
    (root / "vae/vae.safetensors").write_bytes(b"mine")
    hub.add(REPO, "other.safetensors", CONTENT)
    with pytest.raises(HubNotFound):
        downloads.add(want())
    (root / "vae/vae.safetensors").unlink()
    for address in ("http://127.0.0.1:9", "http://no-such-host.invalid", "nonsense"):
        monkeypatch.setenv("HF_ENDPOINT", address)
        downloads.resume(failed.id)
        again = downloads.until_state(failed.id, State.FAILED)
        assert again.error is not None
        assert again.error.code == "hub_unreachable"
        assert "HF_ENDPOINT" in again.error.message
        assert address not in again.error.message


def test_the_token_goes_to_the_hub_only(
    hub: FakeHub, downloads: Watched, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add(REPO, "sub/vae.safetensors", CONTENT)
    hub.token = "hf_verysecrettoken"
    failed = downloads.until_state(downloads.add(want()).id, State.FAILED)
    assert failed.error is not None
    assert failed.error.code == "hub_refused"
    monkeypatch.setenv("HF_TOKEN", hub.token)
    downloads.resume(failed.id)
    downloads.until_state(failed.id)
    sent = {(asked.host.split(":")[0], asked.authorization) for asked in hub.asked[1:]}
    assert sent == {("127.0.0.1", f"Bearer {hub.token}"), ("localhost", None)}
    written = (root / ".downloads" / f"{failed.id}.json").read_text()
    assert hub.token not in written
    assert SIGNATURE not in written
