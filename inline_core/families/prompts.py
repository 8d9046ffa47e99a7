"""Prompts read for jobs: by the text encoders of a model, or from the cache.

Lives on the device thread; the families' torch code is imported here when first needed.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Final

from inline_core.devices.ladder import Plan
from inline_core.devices.placement import Placement
from inline_core.errors import ModelFileInvalid, NotFinite
from inline_core.families.encoding import Encoders, prompt_key
from inline_core.families.leasing import Check, Leasing
from inline_core.families.prompt_cache import PromptCache
from inline_core.families.registry import TEXT_ENCODERS, VISION_ENCODERS, family_reading
from inline_core.families.text_adapters import TextAdapters
from inline_core.loading.adapters import MatchedAdapter
from inline_core.loading.catalog import Catalog
from inline_core.loading.component import ComponentRef, Role
from inline_core.loading.deltas import LoadedAdapter
from inline_core.loading.pool import Lease
from inline_core.sampling.family import ModelFamily
from inline_core.sampling.values import Conditioning

PROMPTS_KEPT: Final = 64
PROMPT_BYTES_KEPT: Final = 128 * 1024 * 1024
TOKENIZERS_KEPT: Final = 8

Phase = Callable[[str, float, str], None]


@dataclass(frozen=True, slots=True)
class Reading:
    """A model about to run, for which prompts are read; `warnings` grow with what is found."""

    family: ModelFamily
    plan: Plan
    check: Check
    warnings: list[str]
    phase: Phase | None
    model: ComponentRef


class Prompts:
    """Reads prompts, and keeps the last ones and their tokenizers."""

    def __init__(self, catalog: Catalog, leasing: Leasing) -> None:
        self._catalog = catalog
        self._leasing = leasing
        self._cache = PromptCache(PROMPTS_KEPT, PROMPT_BYTES_KEPT)
        self._tokenizers: dict[Any, Any] = {}

    def clear(self) -> None:
        """Forget every encoded prompt."""
        self._cache.clear()

    def stats(self) -> dict[str, Any]:
        """Counters of the cache; any thread."""
        return self._cache.stats()

    def check_encoder(self, encoder: ComponentRef) -> None:
        """Make sure that prompts can be encoded later.  Raises: ModelFileInvalid/Missing."""
        if family_reading(encoder) is None:
            message = f"no family reads prompts of the text encoder {encoder.name}"
            raise ModelFileInvalid(message)
        self._leasing.opened.open(encoder)
        self._catalog.tokenizer_for(encoder)

    def encode(self, conditioning: Conditioning, reading: Reading) -> Any:
        """The encoded prompt with its mixes, from the cache or by the text encoders.

        Raises: NotFinite, ModelFileInvalid, ModelFileMissing, OutOfMemory, RunCancelled.
        """
        encoded = self._alone(conditioning, reading)
        for mix in conditioning.mixes:
            if mix.other is None:
                encoded = encoded.zeroed()
            elif mix.kind == "join":
                encoded = encoded.joined(self.encode(mix.other, reading))
            else:
                encoded = encoded.averaged(self.encode(mix.other, reading), mix.weight)
        return encoded

    def _alone(self, conditioning: Conditioning, reading: Reading) -> Any:
        encoder = conditioning.encoder
        placement = reading.plan.text_encoder
        assert placement is not None
        runtime = importlib.import_module(reading.family.runtime)
        adapters = self._adapters(runtime, reading)
        key = (reading.family.name, encoder, *prompt_key(conditioning), placement.key)
        key = (*key, adapters.adapters if adapters else ())
        if Role.CLIP_VISION in reading.family.rules.parts:
            # Of models of one family only some are told of a picture by CLIP: their sizes say so.
            sizes = self._leasing.opened.open(reading.model).identity.geometry
            key = (*key, tuple(sorted(sizes.items())))
        if "embedding:" in conditioning.prompt:
            key = (*key, self._catalog.version())  # of files that the prompt names
        encoded = self._cache.get(key)
        if encoded is None:
            reading.check()
            encoders = self._encoders(encoder, placement, reading, adapters)
            encoded = runtime.encode(encoders, conditioning)
            if not encoded.is_finite:
                message = (
                    f"NaN or infinity in the encoded prompt ({encoder.name}, {placement.dtype}): "
                    "no picture was made. Is the file damaged, or of another precision?"
                )
                raise NotFinite(message)
            self._cache.put(key, encoded)
        if encoded.cut_tokens:
            reading.warnings.append(
                f"The prompt is too long: its last {encoded.cut_tokens} tokens were cut"
            )
        reading.warnings.extend(encoded.notes)
        return encoded

    def _encoders(
        self,
        encoder: ComponentRef,
        placement: Placement,
        reading: Reading,
        adapters: TextAdapters | None,
    ) -> Encoders:
        def lease(reference: ComponentRef) -> AbstractContextManager[Any]:
            loaded = self._text_encoder(reference, placement, reading)
            if reading.phase:
                reading.phase("encode", 0.05, "Encoding prompt")
            if adapters is None:
                return loaded
            return adapters.on(loaded, reference, encoder.all.index(reference))

        return Encoders(
            encoder.all,
            lease,
            reading.check,
            self._catalog.path_of,
            functools.partial(self._vision, reading),
            self._leasing.opened.open(reading.model).identity.geometry,
        )

    def _adapters(self, runtime: Any, reading: Reading) -> TextAdapters | None:
        """What the adapters of a job change in text encoders, of families that have that."""
        target = getattr(runtime, "adapted_encoder", None)
        if target is None or not reading.model.adapters:
            return None
        device = reading.plan.model.device

        def lease(matched: MatchedAdapter, encoder: ComponentRef) -> Lease[LoadedAdapter]:
            return self._leasing.adapter(matched, encoder, device, reading.check)

        return TextAdapters(reading.model.adapters, target, lease, reading.warnings)

    def _text_encoder(
        self, encoder: ComponentRef, placement: Placement, reading: Reading
    ) -> Lease[Any]:
        readers = {**TEXT_ENCODERS, **reading.family.readers}
        loader = readers.get(encoder.family)
        if loader is None:
            message = f"no family reads prompts of the text encoder {encoder.name}"
            raise ModelFileInvalid(message)
        packed = self._leasing.opened.open(encoder).weights.packed_bytes
        if placement.quantization == "packed" and not packed:
            # The placement was made for the largest of several; this one is no packed file.
            placement = replace(placement, quantization="none")
        plan = self._leasing.plan(encoder, placement, reading.check)
        runtime = importlib.import_module(loader)
        return self._leasing.lease(
            encoder,
            plan,
            lambda plan: runtime.load_text_encoder(plan, self.tokenizer(encoder, runtime)),
            loader,
        )

    def _vision(self, reading: Reading) -> Lease[Any]:
        """The vision encoder of the model, where text encoders are."""
        reference = self._catalog.companion(Role.CLIP_VISION, reading.model)
        assert reading.plan.text_encoder is not None
        placement = replace(reading.plan.text_encoder, quantization="none", offload="none")
        plan = self._leasing.plan(reference, placement, reading.check)
        runtime = importlib.import_module(VISION_ENCODERS[reference.family])
        return self._leasing.lease(reference, plan, runtime.load_vision)

    def tokenizer(self, encoder: ComponentRef, runtime: Any) -> Any:
        """A tokenizer stays when its encoder goes: it is small, and slow to read.

        Encoders that read no words have none.
        """
        if not hasattr(runtime, "load_tokenizer"):
            return None
        folder = self._catalog.tokenizer_for(encoder)
        key = (folder, *sorted((file.name, file.stat().st_mtime_ns) for file in folder.iterdir()))
        if key not in self._tokenizers:
            if len(self._tokenizers) >= TOKENIZERS_KEPT:
                self._tokenizers.clear()
            self._tokenizers[key] = runtime.load_tokenizer(folder, encoder.name)
        return self._tokenizers[key]
