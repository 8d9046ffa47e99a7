"""Some jobs go to the group, the others are made in this process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Final

from inline_core.devices.split import Split
from inline_core.sampling.backend import BatchedSampler
from inline_core.sampling.backends.parallel.sampler import GroupSampler
from inline_core.sampling.job import SampleJob, SampleResult

_RELEASE_S: Final = 20.0

Choose = Callable[[SampleJob], tuple[Split | None, str]]


class RoutedSampler:
    """Implements `BatchedSampler` over two of them; see there for threads.

    `choose` gives the split of a job, or None and why: the run is told.  With `make_room` both use
    the same devices: what one holds is given back before the other begins.
    """

    def __init__(
        self,
        whole: Any,
        group: GroupSampler,
        choose: Choose,
        make_room: Callable[[], object] | None = None,
    ) -> None:
        """`whole` is the sampler of this process."""
        self._make_room = make_room
        self._whole: BatchedSampler = whole
        self._fail_whole: Callable[[BaseException], None] = whole.fail_all
        self.group = group
        self._choose = choose

    def submit(self, job: SampleJob) -> Future[SampleResult]:
        """Queue a job where it is made.

        Raises: as `BatchedSampler.submit`, and InvalidRequest for a split that cannot be had.
        """
        split, reason = self._choose(job)
        if split is not None:
            if self._make_room is not None and not self.group.exists:
                self._make_room()
            return self.group.submit(replace(job, split=split))
        if self._make_room is not None:
            self.group.release(_RELEASE_S)
        found = self._whole.submit(job)
        return _noted(found, f"Not split over GPUs: {reason}") if reason else found

    def stats(self) -> dict[str, Any]:
        """Those of this process, and `group`."""
        return {**self._whole.stats(), "group": self.group.stats()}

    def fail_all(self, error: BaseException) -> None:
        """End every job with `error`, and the group.  Device thread, as of the one within."""
        self._fail_whole(error)
        self.group.fail_all(error)


def _noted(found: Future[SampleResult], note: str) -> Future[SampleResult]:
    """The same result with one more warning."""
    noted: Future[SampleResult] = Future()

    def settle(done: Future[SampleResult]) -> None:
        error = done.exception()
        if error is not None:
            noted.set_exception(error)
        else:
            result = done.result()
            noted.set_result(replace(result, warnings=(*result.warnings, note)))

    found.add_done_callback(settle)
    return noted
