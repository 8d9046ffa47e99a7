"""News for readers: states in order, counts overwritten."""

from __future__ import annotations

from dataclasses import replace

from inline_core.downloads.feed import Feed
from inline_core.downloads.record import Download, FileProgress, State
from inline_core.downloads.request import want_file

WANTED = want_file("team/model", "x.safetensors", "vae")
FIRST = Download("download_000000000001", WANTED, State.QUEUED, (FileProgress(),), 1, 1)


def test_no_state_is_lost_and_counts_are_overwritten() -> None:
    feed, wakes = Feed(), [0]

    def wake() -> None:
        wakes[0] += 1

    reader = feed.open(wake)
    running = replace(FIRST, state=State.RUNNING)
    feed.publish(FIRST, changed=True)
    feed.publish(running, changed=True)
    for count in range(1, 100):
        feed.publish(running.with_file(0, bytes_done=count), changed=False)
    assert [d.state for d in reader.changes()] == [State.QUEUED, State.RUNNING]
    assert reader.has_progress
    assert [d.bytes_done for d in reader.progress()] == [99]
    assert not reader.has_progress
    assert wakes == [2], "a count behind unread news wakes nobody again"
    feed.publish(running.with_file(0, bytes_done=7), changed=False)
    assert wakes == [3]
    done = replace(running, state=State.DONE)
    feed.publish(done, changed=True)
    assert reader.progress() == [], "a count from before the end is not told after it"
    assert reader.changes() == [done]
    feed.close(reader)
    feed.close(reader)
    feed.publish(FIRST, changed=True)
    assert reader.changes() == []
