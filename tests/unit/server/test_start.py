"""Starting: without torch, without models, before torch is imported, with a taken port."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from tests.live import ROOT

pytestmark = pytest.mark.timeout(120)

WITHOUT_TORCH = """
import importlib.abc, sys
class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
HIDDEN = {"torch", "diffusers", "transformers"}
sys.meta_path.insert(0, Refuse())
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name in HIDDEN else find(name, package)
from inline_core.server.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


def start(
    code: list[str], data_dir: Path, *, warm_up: bool = False
) -> tuple[subprocess.Popen[bytes], str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "INLINE_WARM_UP": str(warm_up)}
    process = subprocess.Popen(
        [sys.executable, *code, "--port", "0", "--data-dir", str(data_dir), "--models-dir", str(data_dir / "m")],
        cwd=ROOT, env=environment, stderr=subprocess.PIPE,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()[1].decode()
        try:
            url: str = json.loads((data_dir / "server.json").read_text())["url"]
            httpx.get(f"{url}/v1/health", timeout=5)
        except (OSError, ValueError, httpx.HTTPError):
            continue
        return process, url
    raise AssertionError


def stop(process: subprocess.Popen[bytes]) -> str:
    """A clean stop; gives what the server wrote."""
    process.terminate()
    stderr = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 0
    return stderr


def test_without_torch_everything_is_served_and_a_run_says_what_to_install(tmp_path: Path) -> None:
    process, url = start(["-c", WITHOUT_TORCH], tmp_path / "data")
    try:
        with httpx.Client(base_url=url, timeout=60) as client:
            types = {model["type"] for model in client.get("/v1/models").json()["models"]}
            assert {"sample", "vae/decode", "alibaba/z-image-turbo"} <= types
            nodes = [
                {"id": "p", "type": "input/text", "params": {"text": "x"}},
                {
                    "id": "m",
                    "type": "alibaba/z-image-turbo",
                    "inputs": {"prompt": {"from": "p", "output": "text"}},
                },
            ]
            graph = {"schemaVersion": 1, "nodes": nodes}
            run = client.post("/v1/runs?wait=50", json={"graph": graph, "target": "m"}).json()
            assert run["status"] == "error"
            # With the demo model in the package the missing library is what stops it.
            assert run["error"]["code"] in {"runtime_missing", "model_missing"}
            if run["error"]["code"] == "runtime_missing":
                assert "pip install" in run["error"]["message"]
            text = {"graph": {"schemaVersion": 1, "nodes": nodes[:1]}, "target": "p"}
            assert client.post("/v1/runs?wait=50", json=text).json()["status"] == "done"
    finally:
        stop(process)


def test_importing_the_application_needs_none_of_the_extras() -> None:
    code = (
        "import sys; import inline_core.server.app, inline_core.cli, inline_core.doctor; "
        "bad = {'torch', 'diffusers', 'transformers', 'msgpack', 'xfuser', 'ray'} "
        "& set(sys.modules); sys.exit(len(bad))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_the_port_answers_before_torch_is_there(tmp_path: Path) -> None:
    process, url = start(["-m", "inline_core.server"], tmp_path / "data", warm_up=True)
    try:
        # Asked at once after the first answer: importing torch takes seconds.
        models = httpx.get(f"{url}/v1/health").json()["models"]
        assert models["ready"] is False
    finally:
        stop(process)


def test_a_taken_port_is_named_at_once(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        result = subprocess.run(
            [sys.executable, "-m", "inline_core.server", "--port", str(port), "--data-dir", str(tmp_path)],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert result.returncode == 2
    assert f"Port {port}" in result.stderr
    assert "--port" in result.stderr
    assert f"process {os.getpid()}" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_second_server_on_the_data_folder_is_refused(tmp_path: Path) -> None:
    process, _ = start(["-m", "inline_core.server"], tmp_path / "data")
    try:
        result = subprocess.run(
            [sys.executable, "-m", "inline_core.server", "--port", "0", "--data-dir", str(tmp_path / "data")],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert result.returncode == 2
        assert f"process {process.pid}" in result.stderr
        assert "--data-dir" in result.stderr
    finally:
        stop(process)


def test_listening_wide_makes_a_token(tmp_path: Path) -> None:
    process, url = start(["-m", "inline_core.server", "--listen"], tmp_path / "data")
    try:
        assert httpx.get(f"{url}/v1/health").status_code == 401
        token = (tmp_path / "data" / "token").read_text().strip()
        assert (tmp_path / "data" / "token").stat().st_mode & 0o077 == 0
        headers = {"Authorization": f"Bearer {token}"}
        assert httpx.get(f"{url}/v1/health", headers=headers).status_code == 200
    finally:
        stderr = stop(process)
    assert f"?token={token}" in stderr
