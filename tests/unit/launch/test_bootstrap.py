"""Setting up: what is said and chosen on machines that are not this one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from inline_core.launch import bootstrap
from tests.live import ROOT


def test_an_old_python_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inline_core.launch.bootstrap.sys.version_info", (3, 9, 2))
    with pytest.raises(bootstrap.SetupError, match=r"3\.11 or newer is needed, found 3\.9\.2 at"):
        bootstrap.check_python()


@pytest.mark.parametrize(
    ("system", "hint"), [("Windows", "winget"), ("Darwin", "brew"), ("Linux", "apt")]
)
def test_the_hint_fits_the_system(monkeypatch: pytest.MonkeyPatch, system: str, hint: str) -> None:
    monkeypatch.setattr("inline_core.launch.bootstrap.platform.system", lambda: system)
    assert hint in bootstrap.python_hint()


def plan(*names: str) -> str:
    return json.dumps({"install": [{"metadata": {"name": name}} for name in names]})


@pytest.mark.parametrize(
    ("packages", "gpu", "fits"),
    [
        (["torch", "sympy"], False, True),
        (["torch", "nvidia-cublas-cu12"], False, False),
        (["torch", "nvidia-cublas-cu12"], True, True),
        (["torch", "sympy"], True, False),
    ],
)
def test_pip_is_used_where_its_torch_fits(
    monkeypatch: pytest.MonkeyPatch, packages: list[str], gpu: bool, fits: bool
) -> None:
    def run(*_: Any, **__: Any) -> Any:
        return subprocess.CompletedProcess([], 0, f"noise\n{plan(*packages)}", "")

    monkeypatch.setattr("inline_core.launch.bootstrap.subprocess.run", run)
    assert bootstrap.pip_torch_fits(Path("python"), gpu) is fits


def test_uv_chooses_the_build_if_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "inline_core.launch.bootstrap.shutil.which",
        lambda name: f"/x/{name}" if name == "uv" else None,
    )
    command = bootstrap.installer(Path("python"), wants_torch=True)
    assert command[0] == "/x/uv"
    assert command[-2:] == ["--torch-backend", "cpu"]


def test_a_gpu_is_found_by_its_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'GPU 0: Test'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert bootstrap.has_nvidia_gpu()
    tool.write_text("#!/bin/sh\nexit 9\n")
    assert not bootstrap.has_nvidia_gpu()


def test_flags_for_setting_up_are_taken_out() -> None:
    own, rest = bootstrap.split_arguments(["--extra", "all", "serve", "--port", "1", "--install"])
    assert (own.extra, own.install, rest) == (["all"], True, ["serve", "--port", "1"])


def test_a_missing_venv_module_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: Any, **__: Any) -> Any:
        return subprocess.CompletedProcess([], 1, "ensurepip is not available", "")

    monkeypatch.setattr("inline_core.launch.bootstrap.shutil.which", lambda _: None)
    monkeypatch.setattr("inline_core.launch.bootstrap.subprocess.run", run)
    with pytest.raises(bootstrap.SetupError, match="-venv"):
        bootstrap.make_environment(tmp_path / ".venv")


@pytest.mark.skipif(os.name != "posix", reason="a shell script")
def test_the_shell_launcher_survives_spaces_and_scripts(tmp_path: Path) -> None:
    folder = tmp_path / "mön dir" / "日本 x"
    (folder / "inline_core" / "launch").mkdir(parents=True)
    (folder / "webui.sh").write_bytes((ROOT / "webui.sh").read_bytes())
    (folder / "webui.sh").chmod(0o755)
    (folder / "inline_core" / "launch" / "bootstrap.py").write_text(
        "import json, sys\nprint(json.dumps(sys.argv))\n"
    )
    environment = {**os.environ, "LC_ALL": "C", "PYTHON": sys.executable}
    result = subprocess.run(
        [str(folder / "webui.sh"), "render", "a red circle", "--x", "é"],
        env=environment, capture_output=True, check=True, cwd=tmp_path,
    )  # fmt: skip
    arguments = json.loads(result.stdout.decode())
    assert Path(arguments[0]) == folder / "inline_core" / "launch" / "bootstrap.py"
    assert arguments[1:] == ["render", "a red circle", "--x", "é"]


@pytest.mark.skipif(os.name != "posix", reason="a shell script")
def test_without_python_the_launcher_says_what_to_install(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "dirname"):
        (tools / name).symlink_to(Path("/usr/bin") / name)
    result = subprocess.run(
        ["/bin/bash", str(ROOT / "webui.sh")],
        env={"PATH": str(tools)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 3
    assert "No Python was found" in result.stderr


def test_the_windows_launcher_is_as_thin() -> None:
    text = (ROOT / "webui.bat").read_bytes().decode()
    assert "\r\n" in text
    assert text.count("bootstrap.py") >= 2
    assert "%*" in text
    assert "exit /b" in text
    assert len(text.splitlines()) < 20


def test_bootstrap_has_no_syntax_newer_than_python_3_8() -> None:
    import ast

    source = (ROOT / "inline_core" / "launch" / "bootstrap.py").read_text(encoding="utf-8")
    ast.parse(source, feature_version=(3, 8))
    assert "from __future__ import annotations" in source


@pytest.mark.parametrize(
    ("rest", "variable", "extras"),
    [
        ([], "", ["all"]),
        (["--multi-gpu"], "", ["all", "parallel"]),
        (["--parallel", "ulysses=2"], "", ["all", "parallel"]),
        ([], "auto", ["all", "parallel"]),
    ],
)
def test_several_gpus_need_nothing_but_the_flag(
    monkeypatch: pytest.MonkeyPatch, rest: list[str], variable: str, extras: list[str]
) -> None:
    monkeypatch.setenv("INLINE_PARALLEL", variable)
    assert bootstrap.wanted_extras([], rest) == extras
