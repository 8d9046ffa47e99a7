"""Writing with a text encoder: its last layer, how tokens are drawn, and when it ends.

Imports torch and transformers, so it is imported on the device thread only.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import torch
from diffusers.pipelines.ltx2.utils import (
    I2V_DEFAULT_SYSTEM_PROMPT,
    LTX2_5_I2V_DEFAULT_SYSTEM_PROMPT,
    LTX2_5_T2V_DEFAULT_SYSTEM_PROMPT,
    T2V_DEFAULT_SYSTEM_PROMPT,
)
from transformers import (
    DynamicCache,
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from inline_core.errors import NotFinite
from inline_core.families.text_encoders.loaded import TextEncoder
from inline_core.loading.stream import LoadPlan, TensorSource, fill

if TYPE_CHECKING:
    from torch import Tensor

    from inline_core.sampling.text_request import TextRequest

# Tokens that end a turn, of all families of models.
_ENDS: Final = ("<|im_end|>", "<|endoftext|>", "<end_of_turn>", "<turn|>", "</s>", "<eos>")
_THOUGHT: Final = re.compile(r"<think>(.*?)</think>\s*", re.DOTALL)
# Gemma's turns, for a tokenizer that comes without its template.
_TURNS: Final = (
    "{% for message in messages %}<start_of_turn>{{ 'model' if message.role == 'assistant' else "
    "'user' }}\n{{ message.content }}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)


def instructions(name: str, family: str) -> str:
    """The published system text of a prompt enhancer; LTX-2.5 (Gemma 4) has another one."""
    newer = family == "gemma4"
    texts: dict[str, str] = {
        "ltx-2": LTX2_5_T2V_DEFAULT_SYSTEM_PROMPT if newer else T2V_DEFAULT_SYSTEM_PROMPT,
        "ltx-2-image": LTX2_5_I2V_DEFAULT_SYSTEM_PROMPT if newer else I2V_DEFAULT_SYSTEM_PROMPT,
    }
    return texts[name].strip()


def load_head(plan: LoadPlan, encoder: TextEncoder) -> Any:
    """The last layer, from states to logits; of models that share it with their first, that one.

    Raises: ModelFileInvalid, RunCancelled.
    """
    name = next((n for n in plan.logical.tensors if n.endswith("lm_head.weight")), None)
    table = _language(encoder.model).get_input_embeddings().weight  # (vocabulary, width)
    if name is None:
        return lambda states: torch.nn.functional.linear(states, table)
    with torch.device("meta"):
        head = torch.nn.Linear(table.shape[1], table.shape[0], bias=False)
    others = [other for other in plan.logical.tensors if other != name]
    fill(head, {"weight": TensorSource(name)}, plan, ignorable=others)
    return head.eval()


def _language(model: Any) -> Any:
    """The language model, without its towers."""
    return getattr(model, "language_model", model)


def write(
    encoder: TextEncoder,
    head: Callable[[Tensor], Tensor],
    request: TextRequest,
    told: Callable[[int], None],
) -> tuple[str, str]:
    """The answer to a prompt, and what was thought before; `told(count)` after each token.

    Raises: NotFinite, and whatever `told` raises.
    """
    tokenizer = encoder.tokenizer
    tokens = torch.tensor([_prompt(tokenizer, request)], device=encoder.device)  # (1, tokens)
    known = tokenizer.get_vocab()
    ends = {tokenizer.eos_token_id, *(known[token] for token in _ENDS if token in known)}
    model, cache = _language(encoder.model), DynamicCache()
    choose = _Choice(request, tokens)
    new, written = tokens, []
    for count in range(1, request.max_tokens + 1):
        output = model(input_ids=new, cache=cache, use_cache=True)
        logits = head(output.last_hidden_state[:, -1]).float()  # (1, vocabulary)
        if not bool(torch.isfinite(logits).all()):
            message = "NaN or infinity while a text was written: nothing was kept of it"
            raise NotFinite(message)
        token = choose(logits)
        told(count)
        if token in ends:
            break
        written.append(token)
        new = torch.tensor([[token]], device=encoder.device)
    return _parts(tokenizer.decode(written, skip_special_tokens=True))


def _prompt(tokenizer: Any, request: TextRequest) -> list[int]:
    """Token ids of what the model is to go on with."""
    if not request.template:
        text = f"{request.system}\n{request.prompt}" if request.system else request.prompt
        return list(tokenizer(text).input_ids) or [tokenizer.eos_token_id or 0]
    messages = [{"role": "user", "content": request.prompt}]
    if request.system:
        messages.insert(0, {"role": "system", "content": request.system})
    template = tokenizer.chat_template or _TURNS
    text = tokenizer.apply_chat_template(
        messages,
        chat_template=template,
        tokenize=False,
        add_generation_prompt=True,
        enable_thinking=request.thinking,
    )
    return list(tokenizer(text, add_special_tokens="<bos>" not in text[:8]).input_ids)


def _parts(text: str) -> tuple[str, str]:
    """The answer and the thought, which some models write in tags."""
    thoughts = _THOUGHT.findall(text)
    return _THOUGHT.sub("", text).strip(), "\n".join(part.strip() for part in thoughts)


class _Choice:
    """Draws one token after another, on the CPU, so that a seed means the same everywhere."""

    def __init__(self, request: TextRequest, prompt: Tensor) -> None:
        self._request = request
        self._seen = prompt.cpu()  # (1, tokens)
        self._presence: set[int] = set()
        self._generator = torch.Generator("cpu").manual_seed(request.seed)
        self._always = LogitsProcessorList()
        self._drawn = LogitsProcessorList()
        if request.repetition_penalty not in {0.0, 1.0}:
            penalty = RepetitionPenaltyLogitsProcessor(request.repetition_penalty)
            self._always.append(penalty)
        self._drawn.append(TemperatureLogitsWarper(max(request.temperature, 1e-3)))
        if request.top_k > 0:
            self._drawn.append(TopKLogitsWarper(request.top_k))
        if request.top_p < 1:
            self._drawn.append(TopPLogitsWarper(max(request.top_p, 1e-6)))
        if request.min_p > 0:
            self._drawn.append(MinPLogitsWarper(request.min_p))

    def __call__(self, logits: Tensor) -> int:
        """The next token from logits (1, vocabulary)."""
        scores = self._always(self._seen, logits.cpu())
        if self._request.presence_penalty and self._presence:
            scores[:, sorted(self._presence)] -= self._request.presence_penalty
        if self._request.sampling:
            scores = self._drawn(self._seen, scores)
            chances = scores.softmax(-1)  # (1, vocabulary)
            token = int(torch.multinomial(chances, 1, generator=self._generator))
        else:
            token = int(scores.argmax())
        self._presence.add(token)
        self._seen = torch.cat([self._seen, torch.tensor([[token]])], dim=1)
        return token
