"""Names of Z-Image's and the VAE's weights in files, and the module's names for them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from inline_core.families.key_table import KeyTable
from inline_core.loading.adapters import AdapterTarget
from inline_core.loading.stream import TensorSource

# Present in the original file, unused by the architecture.
IGNORABLE: Final = ("norm_final.weight",)

_RENAMES: Final = (
    (r"^final_layer\.", "all_final_layer.2-1."),
    (r"^x_embedder\.", "all_x_embedder.2-1."),
    (r"\.attention\.out\.", ".attention.to_out.0."),
    (r"\.attention\.k_norm\.", ".attention.norm_k."),
    (r"\.attention\.q_norm\.", ".attention.norm_q."),
)


def transformer_sources(names: Iterable[str], prefix: str) -> dict[str, TensorSource]:
    """Module name -> place in the file, for the original and the diffusers layout alike.

    The fused `attention.qkv` of the original is three equal blocks of rows.
    """
    sources: dict[str, TensorSource] = {}
    for name in names:
        if not name.startswith(prefix):
            continue
        bare = name[len(prefix) :]
        if ".attention.qkv." in bare:
            for part, letter in enumerate("qkv"):
                target = bare.replace(".attention.qkv.", f".attention.to_{letter}.")
                sources[target] = TensorSource(name, part, 3)
            continue
        for pattern, new in _RENAMES:
            bare = re.sub(pattern, new, bare)
        sources[bare] = TensorSource(name)
    return sources


def adapter_targets(parameters: Iterable[str]) -> dict[str, list[AdapterTarget]]:
    """Every spelling of a linear module, diffusers' and the original's, to the weights it means."""
    targets: dict[str, list[AdapterTarget]] = {}
    for parameter in parameters:
        module = parameter.removesuffix(".weight")
        if module == parameter:
            continue
        targets.setdefault(module, []).append(AdapterTarget(parameter))
        fused = re.sub(r"\.attention\.to_[qkv]$", ".attention.qkv", module)
        if fused != module:
            part = "qkv".index(module[-1])
            targets.setdefault(fused, []).append(AdapterTarget(parameter, part, 3))
            continue
        original = module.replace(".attention.to_out.0", ".attention.out")
        original = original.replace("all_final_layer.2-1.", "final_layer.")
        original = original.replace("all_x_embedder.2-1", "x_embedder")
        if original != module:
            targets.setdefault(original, []).append(AdapterTarget(parameter))
    return targets


# Files of the ControlNets have the names of diffusers in every layout.
CONTROL_KEYS: Final = KeyTable({}, ())
