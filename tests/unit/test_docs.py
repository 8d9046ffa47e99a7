"""The generated pages are up to date, and everything in them is documented."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.live import ROOT


@pytest.mark.timeout(240)
def test_generated_pages_are_current() -> None:
    result = subprocess.run(
        [sys.executable, "scripts/generate_docs.py", "--check"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    "page", sorted(p.relative_to(ROOT) for p in [*ROOT.glob("docs/**/*.md"), ROOT / "README.md"])
)
def test_links_lead_somewhere(page: object) -> None:
    path = ROOT / str(page)
    for target in re.findall(r"\]\(([^)#\s]+)", path.read_text(encoding="utf-8")):
        assert "://" not in target, f"{page} names a host: {target}"
        assert (path.parent / target).exists(), f"{page} links to {target}, which is not there"
