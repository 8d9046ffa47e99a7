"""Words that Qwen3-VL knows; without torch."""

from __future__ import annotations

from typing import Final

# Where a picture stands in a text.
VISION_MARKER: Final = "<|vision_start|><|image_pad|><|vision_end|>"
