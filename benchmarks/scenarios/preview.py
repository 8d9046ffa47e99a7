"""Live previews: what one costs against a step, and what all of a watched run cost."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import inline_core
from benchmarks.measure import Result
from inline_core.engine.cancel import CancelToken
from inline_core.engine.context import RunContext
from inline_core.engine.preview_pace import SHARE
from inline_core.engine.progress import ProgressBoard
from inline_core.engine.render import TorchRender
from inline_core.families import previews
from inline_core.families.registry import open_catalog
from inline_core.loading.component import Role
from inline_core.sampling.job import SampleJob
from inline_core.sampling.values import Conditioning, Latent
from inline_core.settings import Settings


class _Watched(RunContext):
    """A run that somebody watches; it notes when steps end and what previews take."""

    def __init__(self, board: ProgressBoard) -> None:
        super().__init__(
            "run",
            "node",
            token=CancelToken(),
            board=board,
            render=None,  # type: ignore[arg-type]
            components=None,  # type: ignore[arg-type]
            media=None,  # type: ignore[arg-type]
        )
        self.offered: list[float] = []
        self.made: list[tuple[float, float]] = []

    def preview(self, encode: Callable[[], bytes]) -> None:
        """As the real one, with a watch."""
        self.offered.append(time.perf_counter())

        def timed() -> bytes:
            started = time.perf_counter()
            data = encode()
            self.made.append((started, time.perf_counter() - started))
            return data

        super().preview(timed)


def preview(*, quick: bool) -> list[Result]:
    """Each preview is paid for by the wait after it: 1 % of the time up to the last one."""
    results = []
    for side, steps in ((128, 300), (256, 150)):
        one = Result(f"preview of {side} px", "ms", "lower", note="limit: a step of the demo model")
        all_of = Result(f"previews of a watched run, {side} px", "ms", "lower", gate=1.05)
        for _ in range(1 if quick else 3):
            watched = _run(side, steps)
            costs = [cost for _, cost in watched.made]
            one.us.append(1e3 * statistics.median(costs))
            one.limit.append(1e3 * statistics.median(b - a for a, b in pairwise(watched.offered)))
            all_of.us.append(1e3 * sum(costs[:-1]))
            all_of.limit.append(1e3 * SHARE * (watched.made[-1][0] - watched.made[0][0]))
            all_of.note = f"limit: 1 % of the time; {len(costs)} of {steps} steps were shown"
        results += [one, all_of]
    return results


def _run(side: int, steps: int) -> _Watched:
    """A run of the demo model on one thread, drawn with colours as for a VAE of usual size."""
    demo = Path(inline_core.__file__).parent / "demo"
    with tempfile.TemporaryDirectory() as data:
        settings = Settings(
            models_dir=demo, data_dir=Path(data), demo_model=False, threads=1, profile="cpu"
        )
        catalog = open_catalog(settings)
        render = TorchRender(settings, catalog)
        model = catalog.find(Role.DIFFUSION_MODEL, "", family="z-image")
        prompt = Conditioning("a red circle", catalog.companions(model)[1])
        latent = Latent(side, side)
        board = ProgressBoard(lambda _: None)
        board.watch("run", 1)
        watched = _Watched(board)
        small, previews.SMALL_VAE_BYTES = previews.SMALL_VAE_BYTES, 0  # type: ignore[misc]
        try:
            render.sample(
                SampleJob(model, prompt, latent, steps, 1.0, "euler", "simple", 7), watched
            )
        finally:
            render.close()
            previews.SMALL_VAE_BYTES = small  # type: ignore[misc]
    return watched
