"""torchrun, tied to the process that starts it: `python -m inline_core.engine.ranks.agent`."""

from __future__ import annotations

from inline_core.sampling.backends.parallel.processes import tie_to_parent


def main() -> None:
    """Do as `python -m torch.distributed.run` does, and end with the process that started it."""
    tie_to_parent()
    from torch.distributed.run import main as torchrun

    torchrun()


if __name__ == "__main__":
    main()
