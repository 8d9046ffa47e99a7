"""Start Inline Core with the Python that runs this file (see webui.sh for one that sets up)."""

from __future__ import annotations

import sys

from inline_core.cli import main

if __name__ == "__main__":
    sys.exit(main())
