"""Measure on an NVIDIA GPU what no processor can tell; no network is needed.

    python scripts/gpu_check.py --json out.json     under six minutes, about 22 GB of disk
    python scripts/gpu_check.py --cpu-dry-run       every section with small models, no GPU

See docs/how-to/check-a-gpu.md.
"""

from __future__ import annotations

import sys
from pathlib import Path

# The checkout, whatever is installed.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from device_check.command import main

if __name__ == "__main__":
    sys.exit(main())
