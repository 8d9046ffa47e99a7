"""`python -m inline_core`: the same as the `inline-core` command."""

from __future__ import annotations

import sys

from inline_core.cli import main

if __name__ == "__main__":
    sys.exit(main())
