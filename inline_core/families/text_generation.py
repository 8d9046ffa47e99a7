"""Texts written by text encoders that are language models.

Lives on the device's threads; the module with torch code is imported when first needed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from inline_core.devices.budget import Demand
from inline_core.devices.placement import Placement
from inline_core.errors import InvalidParam
from inline_core.families.leasing import Check, Leasing
from inline_core.families.registry import TEXT_ENCODERS
from inline_core.loading.component import ComponentRef
from inline_core.sampling.text_request import TextRequest

_RUNTIME: Final = "inline_core.families.text_encoders.generating"
# Language models whose modules read words only; their heads are tied or in the same file.
WRITERS: Final = ("qwen3", "qwen2.5-vl", "qwen3-vl", "gemma2", "gemma3", "gemma4", "mistral3")

Report = Callable[[int, int], None]


class TextGenerators:
    """Writes texts; a language model goes where a diffusion model of its size would."""

    def __init__(self, leasing: Leasing, tokenizer: Callable[[ComponentRef, Any], Any]) -> None:
        """`tokenizer` gives the one of an encoder, read by its module."""
        self._leasing = leasing
        self._tokenizer = tokenizer

    def write(
        self, encoder: ComponentRef, request: TextRequest, check: Check, *, report: Report
    ) -> tuple[str, str]:
        """The answer, and what was thought before; `report(tokens, most)` after each token.

        Raises: InvalidParam for an encoder that is no language model, ModelFileInvalid/Missing,
        OutOfMemory, RunCancelled.
        """
        if encoder.family not in WRITERS:
            message = (
                f"{encoder.name} ({encoder.family}) cannot write texts: load a language model "
                "(Qwen3, Gemma 3, ...) as text encoder"
            )
            raise InvalidParam(message, port="text_encoder")
        alone = replace(encoder, others=(), patches=(), adapters=())
        reader = TEXT_ENCODERS[alone.family]
        module = importlib.import_module(reader)
        placement = self._placement(alone)
        plan = self._leasing.plan(alone, placement, check)
        tokenizer = self._tokenizer(alone, module)
        writing = importlib.import_module(_RUNTIME)

        if request.instructions and not request.system:
            system = writing.instructions(request.instructions, encoder.family)
            request = replace(request, system=system)

        def told(done: int) -> None:
            check()
            report(done, request.max_tokens)

        lease = self._leasing.lease(
            alone, plan, lambda plan: module.load_text_encoder(plan, tokenizer), reader
        )
        with lease as loaded:
            head = self._leasing.lease(
                alone, plan, lambda plan: writing.load_head(plan, loaded), f"{reader} head"
            )
            with head as last, loaded.interruption.asking(check):
                answer: tuple[str, str] = writing.write(loaded, last, request, told)
        return answer

    def _placement(self, encoder: ComponentRef) -> Placement:
        weights = self._leasing.opened.open(encoder).weights
        found = self._leasing.policy.plan(Demand(model=weights)).model
        if found.quantization == "packed" and not weights.packed_bytes:
            return replace(found, quantization="none")
        return found
