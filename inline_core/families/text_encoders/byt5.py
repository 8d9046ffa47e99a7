"""ByT5 encoders: T5 whose tokens are bytes, so that they need no file of a tokenizer.

Imports torch and transformers, so it is imported on the device thread only.
"""

from __future__ import annotations

from typing import Any

from transformers import ByT5Tokenizer

from inline_core.families.text_encoders import t5
from inline_core.families.text_encoders.loaded import TextEncoder
from inline_core.loading.stream import LoadPlan


def load_text_encoder(plan: LoadPlan, _: Any) -> TextEncoder:
    """The encoder half.  Raises: ModelFileInvalid, RunCancelled."""
    return t5.load_text_encoder(plan, ByT5Tokenizer())
