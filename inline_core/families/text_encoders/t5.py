"""T5, UMT5 and ByT5 encoders, from transformers' names.

Imports torch and transformers, so it is imported on the device thread only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from torch import nn
from transformers import T5Config, T5EncoderModel, UMT5Config, UMT5EncoderModel

from inline_core.families.text_encoders import loaded
from inline_core.families.text_encoders.loaded import TextEncoder, load_encoder
from inline_core.loading.linears import PackedLinear
from inline_core.loading.stream import LoadPlan, prefixed_sources

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["load_text_encoder", "load_tokenizer", "t5_tokens"]

_TYPES: Final = frozenset({"t5", "umt5"})
_BUILDERS: Final[Mapping[str, Callable[[dict[str, Any]], Any]]] = MappingProxyType(
    {
        "T5EncoderModel": lambda config: T5EncoderModel(T5Config(**config)),
        "UMT5EncoderModel": lambda config: UMT5EncoderModel(UMT5Config(**config)),
    }
)
# One embedding under two names; files have either or both.
_SHARED: Final = "shared.weight"
_EMBEDDING: Final = "encoder.embed_tokens.weight"
# Its outputs pass what float16 can hold; transformers keeps it precise too.
_PRECISE: Final = ("wo",)


def load_tokenizer(folder: Path, label: str) -> Any:
    """The tokenizer in `folder`, of the encoder `label`.  Raises: ModelFileMissing.

    Some published folders do not name the tokens for padding and end, which all T5 have.
    """
    tokenizer = loaded.load_tokenizer(folder, label)
    return loaded.with_special_tokens(tokenizer, {"pad_token": "<pad>", "eos_token": "</s>"})


def t5_tokens(encoder: TextEncoder, text: str, length: int) -> tuple[Tensor, Tensor, int]:
    """Token ids (1, length) with padding, their mask (1, length), and how many tokens were cut."""
    whole = len(encoder.tokenizer(text).input_ids)
    inputs = encoder.tokenizer(
        text, padding="max_length", truncation=True, max_length=length, return_tensors="pt"
    )
    tokens, mask = (part.to(encoder.device) for part in (inputs.input_ids, inputs.attention_mask))
    return tokens, mask, max(whole - length, 0)


def load_text_encoder(plan: LoadPlan, tokenizer: Any) -> TextEncoder:
    """The encoder half with its tokenizer; a decoder in the file is left out.

    Raises: ModelFileInvalid, RunCancelled.
    """
    told = plan.files.config
    config = dict(told) if told.get("model_type") in _TYPES else dict(plan.identity.config)
    prefix = plan.identity.prefix
    sources = prefixed_sources(plan.logical.tensors, prefix)
    if _SHARED not in sources and _EMBEDDING in sources:
        sources[_SHARED] = sources[_EMBEDDING]
    # A whole T5 has a decoder and a head, which encode nothing.
    halves = [name for name in plan.logical.tensors if name.startswith(f"{prefix}decoder.")]

    def build() -> Any:
        model = _BUILDERS[plan.identity.class_name](config)
        # Tied as modules, so that it is filled once.
        model.encoder.set_input_embeddings(model.shared)
        return model

    return load_encoder(
        plan,
        tokenizer,
        build,
        lambda model: model.encoder.block,
        sources=sources,
        ignorable=[prefix + _EMBEDDING, prefix + _SHARED, f"{prefix}lm_head.weight", *halves],
        finish=_keep_outputs_precise,
        precise=_PRECISE if plan.placement.dtype == "float16" else (),
    )


def _keep_outputs_precise(model: Any) -> None:
    """Packed outputs of the feed-forward parts are multiplied as plain ones are."""
    for block in model.encoder.block:
        part = block.layer[-1].DenseReluDense
        if isinstance(part.wo, PackedLinear):
            part.wo = _PreciseOutput(part.wo)


class _PreciseOutput(nn.Module):
    """A packed linear that multiplies in float32.

    It has no `weight`, to whose type transformers would cast what goes in: packed ones are bytes.
    """

    weight: None = None

    def __init__(self, inner: PackedLinear) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) of any precision -> (..., out) float32."""
        product: Tensor = self.inner(x.float())
        return product
