"""Makes `.venv`, installs what is missing, and starts Inline Core in it.

This file runs with whatever Python there is, before anything is installed: standard library only,
and no syntax newer than Python 3.8, so that an old Python can still say what it needs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

NEEDED = (3, 11)
ROOT = Path(__file__).resolve().parent.parent.parent
STAMP = ".inline-installed.json"
EXIT_SETUP_FAILED = 3


HELP = """usage: webui.sh|webui.bat [COMMAND] [FLAGS]

Sets up .venv on first use, then starts the server.

  render "PROMPT" -o out.png   make one picture
  doctor                       what is installed, found, missing; what to do
  models                       list the model files that were found
  --install                    set up only
  --extra NAME                 install an extra (dev, parallel, ...)

Once it is set up, --help lists every flag (--listen, --port, --models-dir, --lowvram, ...)."""


class SetupError(Exception):
    """Setting up failed; the text says why and what to do."""


def main(arguments: list[str]) -> int:
    """Entry point of the launchers; gives the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    own, rest = split_arguments(arguments)
    if set(rest) & {"-h", "--help"} and not read_stamp(ROOT / ".venv"):
        print(HELP)
        return 0
    try:
        python = ensure(wanted_extras(own.extra or [], rest))
    except SetupError as error:
        print(f"\nSetting up failed: {error}", file=sys.stderr)
        return EXIT_SETUP_FAILED
    if own.ensure:
        print(python)
        return 0
    if own.install:
        say(f"installed; start it with {launcher_name()}")
        return 0
    return run_inside(python, rest)


def split_arguments(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Our own flags, and what is handed on."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--ensure", action="store_true")
    parser.add_argument("--extra", action="append")
    return parser.parse_known_args(arguments)


def wanted_extras(asked: list[str], rest: list[str]) -> list[str]:
    """What a server needs, what was asked for, and what splits pictures if that is wanted."""
    splits = "--multi-gpu" in rest or "--parallel" in rest or os.environ.get("INLINE_PARALLEL")
    return ["all", *asked, *(["parallel"] if splits else [])]


def launcher_name() -> str:
    """What the user typed to get here."""
    return "webui.bat" if os.name == "nt" else "./webui.sh"


def say(text: str) -> None:
    """Progress goes to standard error, so that standard output stays the program's."""
    print(f"[setup] {text}", file=sys.stderr, flush=True)


def run_inside(python: Path, arguments: list[str]) -> int:
    """Hand over to the program in the environment."""
    command = [str(python), "-m", "inline_core", *arguments]
    environment = {**os.environ, "PYTHONUTF8": "1"}
    if os.name == "posix":
        os.execve(str(python), command, environment)
    return subprocess.call(command, env=environment)


def ensure(extras: list[str]) -> Path:
    """The Python of an environment that has everything; installs only what changed.

    Raises: SetupError.
    """
    check_python()
    folder = ROOT / ".venv"
    python = interpreter_of(folder)
    active = os.environ.get("VIRTUAL_ENV")
    if active and Path(active).resolve() != folder.resolve():
        say(f"the active environment {active} is left alone; {folder} is used")
    recorded = read_stamp(folder) if python.exists() else {}
    wanted = sorted(set(extras) | set(recorded.get("extras", ())))
    stamp = {"digest": requirements_digest(), "extras": wanted}
    if recorded.get("digest") == stamp["digest"] and recorded.get("extras") == wanted:
        return python
    if not python.exists():
        make_environment(folder)
    install(python, wanted)
    (folder / STAMP).write_text(json.dumps(stamp), encoding="utf-8")
    return python


def check_python() -> None:
    """Refuse a Python that is too old, by name."""
    if sys.version_info < NEEDED:
        found = ".".join(str(part) for part in sys.version_info[:3])
        needed = ".".join(str(part) for part in NEEDED)
        raise SetupError(
            f"Python {needed} or newer is needed, found {found} at {sys.executable}. "
            + python_hint()
        )


def python_hint() -> str:
    """The command that gets a Python on this system."""
    system = platform.system()
    if system == "Windows":
        return "Install it with: winget install Python.Python.3.12"
    if system == "Darwin":
        return "Install it with: brew install python@3.12"
    return (
        "Install it with your package manager, for example: sudo apt install python3 python3-venv"
    )


def interpreter_of(folder: Path) -> Path:
    """The Python inside an environment."""
    if os.name == "nt":
        return folder / "Scripts" / "python.exe"
    return folder / "bin" / "python"


def read_stamp(folder: Path) -> dict[str, Any]:
    """What was installed the last time; empty if unknown."""
    try:
        found = json.loads((folder / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def requirements_digest() -> str:
    """Changes when the requirements or the Python do."""
    digest = hashlib.sha256(f"{sys.version_info[:2]}{ROOT}".encode())
    for name in ("pyproject.toml", "constraints.txt"):
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def make_environment(folder: Path) -> None:
    """Create `.venv`, with uv if it is there, else with the venv module."""
    uv = shutil.which("uv")
    say(f"making the environment {folder} with Python {platform.python_version()}")
    if uv:
        call([uv, "venv", "--quiet", "--seed", "--python", sys.executable, str(folder)])
        return
    result = subprocess.run(
        [sys.executable, "-m", "venv", str(folder)], capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        shutil.rmtree(folder, ignore_errors=True)
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        hint = (
            f"On Debian and Ubuntu: sudo apt install python{version}-venv"
            if "ensurepip" in result.stdout + result.stderr
            else (result.stderr or result.stdout).strip()[-800:]
        )
        raise SetupError(f"{sys.executable} could not make an environment. {hint}")


def install(python: Path, extras: list[str]) -> None:
    """Install this package with its extras and the pinned versions."""
    target = f"{ROOT}[{','.join(extras)}]"
    say(f"installing ({', '.join(extras)}); this takes a few minutes the first time")
    wants_torch = bool({"all", "runtime"} & set(extras))
    command = installer(python, wants_torch)
    call([*command, "-c", str(ROOT / "constraints.txt"), "-e", target])


def installer(python: Path, wants_torch: bool) -> list[str]:
    """The install command that gets the right build of torch for this machine.

    uv can choose the build.  pip takes what its index has, which on Linux may be gigabytes of CUDA:
    it is asked first, and if its answer does not fit this machine, uv is brought in to choose.
    """
    gpu = has_nvidia_gpu()
    backend = ["--torch-backend", "auto" if gpu else "cpu"] if wants_torch else []
    uv = shutil.which("uv")
    if uv:
        return [uv, "pip", "install", "--quiet", "--python", str(python), *backend]
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if not wants_torch or pip_torch_fits(python, gpu):
        return pip
    wanted = "a CUDA build" if gpu else "a CPU build"
    say(f"pip would not install {wanted} of torch; getting uv, which can choose")
    call([*pip, "uv"])
    return [str(python), "-m", "uv", "pip", "install", "--quiet", "--python", str(python), *backend]


def pip_torch_fits(python: Path, gpu: bool) -> bool:
    """Ask pip what it would install for torch, and whether that suits this machine."""
    result = subprocess.run(
        [
            str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
            "--dry-run", "--ignore-installed", "--report", "-",
            "-c", str(ROOT / "constraints.txt"), "torch",
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if result.returncode != 0:
        raise SetupError(
            "pip finds no torch. Is this machine online? It said: "
            + (result.stderr or result.stdout).strip()[-600:]
        )
    try:
        plan = json.loads(result.stdout[result.stdout.index("{") :])["install"]
    except (ValueError, KeyError):
        return True
    names = [entry["metadata"]["name"].lower() for entry in plan]
    is_cuda = any(name.startswith(("nvidia-", "cuda-")) for name in names)
    if gpu:
        return is_cuda
    return not is_cuda


def has_nvidia_gpu() -> bool:
    """True if an NVIDIA driver with a card answers."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return False
    result = subprocess.run([tool, "-L"], capture_output=True, text=True, check=False)
    return result.returncode == 0 and "GPU" in result.stdout


def call(command: list[str]) -> None:
    """Run an install step; its output is shown only if it fails.  Raises: SetupError."""
    result = subprocess.run(
        command, capture_output=True, text=True, encoding="utf-8", errors="replace", check=False
    )
    if result.returncode != 0:
        output = (result.stderr or result.stdout).strip()[-2000:]
        raise SetupError(f"this step failed: {' '.join(command)}\n{output}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
