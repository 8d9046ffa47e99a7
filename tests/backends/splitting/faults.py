"""Faults in the processes of a group, triggered by files: a `sitecustomize` of the tests.

`install` writes a folder for PYTHONPATH.  Python then imports `sitecustomize` from there in each
process of the group, which calls `arm`.  A fault of rank N is armed by a file KIND-N in the folder,
and happens once: the file goes away with it.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

FOLDER_VARIABLE = "INLINE_TEST_FAULTS"
ROOT = Path(__file__).parents[3]
KINDS = ("pass-memory", "load-memory", "version", "import", "preview", "stop", "child")
_SITECUSTOMIZE = """
import os
import sys

if "RANK" in os.environ and os.environ.get("INLINE_TEST_FAULTS"):
    sys.path.insert(0, {root!r})
    from tests.backends.splitting.faults import arm

    sys.path.remove({root!r})
    arm()
"""


def install(folder: Path) -> dict[str, str]:
    """Write the module; gives the environment of a server whose ranks have the faults."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(_SITECUSTOMIZE.format(root=str(ROOT)))
    return {"PYTHONPATH": f"{folder}:{ROOT}", FOLDER_VARIABLE: str(folder)}


def set_fault(folder: Path, kind: str, rank: int) -> Path:
    """Arm a fault; gives the file that goes away when it happens."""
    assert kind in KINDS
    path = folder / f"{kind}-{rank}"
    path.touch()
    return path


def due(kind: str) -> bool:
    """Whether a fault of this rank is armed; it is not any more then."""
    path = Path(os.environ[FOLDER_VARIABLE]) / f"{kind}-{os.environ['RANK']}"
    try:
        path.unlink()
    except OSError:
        return False
    return True


def arm() -> None:
    """In a rank, before anything else is imported."""
    if due("import"):
        message = "No module named 'something_of_the_fault'"
        raise SystemExit(_told(ModuleNotFoundError(message)))
    if due("version"):
        _change_version()
    _when_imported("inline_core.engine.ranks.splitting", _patch_splitting)
    _when_imported("inline_core.engine.ranks.leader", _patch_leader)


def _told(error: Exception) -> str:
    return f"Traceback (most recent call last):\n  File ...\n{type(error).__name__}: {error}"


def _when_imported(name: str, change: Callable[[Any], None]) -> None:
    """Have a module changed as soon as it is there."""

    class Finder:
        @staticmethod
        def find_spec(wanted: str, *_: Any) -> Any:
            if wanted != name:
                return None
            sys.meta_path.remove(Finder)
            spec: Any = importlib.util.find_spec(name)
            run = spec.loader.exec_module

            def run_and_change(module: Any) -> None:
                run(module)
                change(module)

            spec.loader.exec_module = run_and_change
            return spec

    sys.meta_path.insert(0, Finder)


def _change_version() -> None:
    version = metadata.version
    change: Any = metadata
    change.version = lambda name: "0.0.1" if name == "torch" else version(name)


def _patch_splitting(splitting: Any) -> None:
    estimate = splitting.DividedRows.estimate
    divide = splitting.GroupSplitting.divide

    def failing_estimate(rows: Any, *args: Any, **kwargs: Any) -> Any:
        if due("pass-memory"):
            message = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"
            raise RuntimeError(message)
        if due("child"):
            _start_child()
        if due("stop"):
            os.kill(os.getpid(), signal.SIGSTOP)
        return estimate(rows, *args, **kwargs)

    def failing_divide(*args: Any, **kwargs: Any) -> Any:
        if due("load-memory"):
            message = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"
            raise RuntimeError(message)
        return divide(*args, **kwargs)

    splitting.DividedRows.estimate = failing_estimate
    splitting.GroupSplitting.divide = failing_divide


def _start_child() -> None:
    """Something that a rank has started, and that would live on without it."""
    folder = Path(os.environ[FOLDER_VARIABLE])
    child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(1000)"])
    (folder / "child.pid").write_text(str(child.pid))


def _patch_leader(leader: Any) -> None:
    preview = leader.Leader._preview

    def failing_preview(self: Any, number: int) -> None:
        if due("preview"):

            def broken() -> bytes:
                message = "a broken preview"
                raise RuntimeError(message)

            self._previews[number] = broken
        preview(self, number)

    leader.Leader._preview = failing_preview
