"""The table of node types is made by `scripts/make_comfyui_table.py`, which is tested here too."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[4] / "scripts"))
