"""diffusers' own context parallelism: Ulysses, and ring attention on GPUs.

It divides any number of tokens and heads as long as there is no ring ("Ulysses anything").
Checked with diffusers 0.42.1, which calls it experimental.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import torch
from diffusers.hooks.context_parallel import apply_context_parallel, remove_context_parallel
from diffusers.models._modeling_parallel import (
    ContextParallelConfig,
    ContextParallelInput,
    ContextParallelOutput,
)
from diffusers.models.attention_processor import Attention
from diffusers.models.transformers.transformer_z_image import ZSingleStreamAttnProcessor

from inline_core.devices.split import Split
from inline_core.errors import InvalidParam
from inline_core.families.splitting.backend import DividedNetwork, indivisible
from inline_core.families.splitting.xdit import WRAPPED

_TOKENS: Final = 1  # axis of tokens
_WIDTHS: Final = 3  # axes of (rows, tokens, width)
# Networks for which diffusers has no plan of what is split and gathered where.
_PLANS: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        # The refiners stay whole on each rank.
        "ZImageTransformer2DModel": {
            "layers.0": {"x": ContextParallelInput(_TOKENS, _WIDTHS)},
            "layers.*": {"freqs_cis": ContextParallelInput(_TOKENS, _WIDTHS)},
            "all_final_layer.2-1": ContextParallelOutput(_TOKENS, _WIDTHS),
        }
    }
)


class ContextParallelBackend:
    """Implements `ParallelBackend` with diffusers."""

    def __init__(self, split: Split, device: str) -> None:
        self.split = split
        self._device = device

    def join(self) -> None:
        """See `ParallelBackend.join`: diffusers makes its groups when a network is divided."""
        if self._device == "cpu":
            # It divides by the number of accelerators.
            torch.accelerator.device_count = lambda: 1

    def leave(self) -> None:
        """See `ParallelBackend.leave`: nothing here belongs to the process as a whole."""

    @property
    def stage(self) -> tuple[int, int]:
        """See `ParallelBackend.stage`: every rank has all blocks."""
        return 0, 1

    def divide(self, network: Any) -> DividedNetwork:
        """See `ParallelBackend.divide`."""
        name = type(network).__name__
        plan = _PLANS.get(name, getattr(network, "_cp_plan", None))
        if plan is None or name not in WRAPPED:
            message = f"diffusers does not divide a {name}: leave INLINE_PARALLEL out"
            raise InvalidParam(message)
        anything = self.split.ring == 1
        _plain_attention(network)
        network.enable_parallelism(
            config=ContextParallelConfig(
                ulysses_degree=self.split.ulysses,
                ring_degree=self.split.ring,
                ulysses_anything=anything,
            ),
            cp_plan=plan,
        )
        config = network._parallel_config  # noqa: SLF001 - no other way to switch it off again
        processors = [
            module.processor
            for module in network.modules()
            if hasattr(getattr(module, "processor", None), "_parallel_config")
        ]

        def use(parallel: bool) -> None:
            remove_context_parallel(network, plan)
            for processor in processors:
                processor._parallel_config = config if parallel else None  # noqa: SLF001
            if parallel:
                apply_context_parallel(network, config.context_parallel_config, plan)

        def misfit(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
            if anything and self._device != "cpu":
                return ""
            counts = WRAPPED[name].tokens(network, args, kwargs)
            if anything:
                # Parts of any size can be computed; gloo cannot gather those of the picture.
                counts.pop("prompt", None)
            return indivisible(counts, self.split.sequence)

        return DividedNetwork(network, use, misfit, _ADAPTED.get(name, dict))


def _places_of_rows(kwargs: dict[str, Any]) -> dict[str, Any]:
    """FLUX.2's plan splits places that have an axis of rows."""
    return {
        key: value[None] if key in {"img_ids", "txt_ids"} else value
        for key, value in kwargs.items()
    }


_ADAPTED: Final = MappingProxyType({"Flux2Transformer2DModel": _places_of_rows})


def _plain_attention(network: Any) -> None:
    """Z-Image's own processors again: ours look at the lengths of rows, of which each has a part.

    Masked attention gives the same values but for rounding.
    """
    for module in network.modules():
        if isinstance(module, Attention) and isinstance(
            module.processor, ZSingleStreamAttnProcessor
        ):
            module.set_processor(ZSingleStreamAttnProcessor())
