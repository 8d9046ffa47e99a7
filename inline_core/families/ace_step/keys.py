"""Names of ACE-Step's weights in its release, and diffusers' names for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from inline_core.families.key_table import KeyTable
from inline_core.loading.stream import TensorSource

# The release has the diffusion model below this, beside its encoder and its tokens of sound.
_START: Final = "decoder."
_ATTENTION: Final = MappingProxyType(
    {
        "q_proj": "to_q",
        "k_proj": "to_k",
        "v_proj": "to_v",
        "o_proj": "to_out.0",
        "q_norm": "norm_q",
        "k_norm": "norm_k",
    }
)
TABLE: Final = KeyTable(
    outer=MappingProxyType({"proj_in.1": ("proj_in_conv",), "proj_out.1": ("proj_out_conv",)}),
    groups=(
        (
            "layers",
            "layers",
            MappingProxyType(
                {
                    f"{place}.{original}": (f"{place}.{diffusers}",)
                    for place in ("self_attn", "cross_attn")
                    for original, diffusers in _ATTENTION.items()
                }
            ),
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class AceStepKeys:
    """The table for a file with these names: of the release, or of diffusers."""

    names: tuple[str, ...]
    table: KeyTable = TABLE

    def sources(self, names: Iterable[str], prefix: str) -> dict[str, TensorSource]:
        """Module name -> place in the file."""
        return self.table.sources(names, self._start(prefix))

    def ignored(self, prefix: str) -> list[str]:
        """What a file of the release has beside the diffusion model."""
        start = self._start(prefix)
        return [name for name in self.names if not name.startswith(start)]

    def _start(self, prefix: str) -> str:
        released = prefix + _START
        return released if any(name.startswith(released) for name in self.names) else prefix
