"""Texts written by a language model: prompts made longer, questions answered."""

from __future__ import annotations

from typing import Annotated

from inline_core.graph.ports import PortKind
from inline_core.loading.component import ComponentRef
from inline_core.nodes.base import NodeContext, Param, Port, node
from inline_core.sampling.text_request import TextRequest

_MOST_TOKENS = 32_768
_INSTRUCTIONS = (
    ("", "None"),
    ("ltx-2", "Prompts for LTX-2"),
    ("ltx-2-image", "Prompts for LTX-2 from a picture"),
)
Share = Annotated[float, Param(min=0.0, max=1.0, step=0.01, advanced=True)]
Penalty = Annotated[float, Param(min=0.0, max=5.0, step=0.01, advanced=True)]


@node(
    "text/generate",
    title="Write Text",
    category="Text",
    icon="type",
    outputs=[Port(PortKind.TEXT), Port(PortKind.TEXT, "Thought", id="thought")],
    needs=["torch"],
)
def generate(
    ctx: NodeContext,
    text_encoder: Annotated[ComponentRef, Port(PortKind.TEXT_ENCODER)],
    *,
    prompt: Annotated[str, Param(widget="textarea")] = "",
    system: Annotated[str, Param(widget="textarea", advanced=True)] = "",
    instructions: Annotated[str, Param(options=_INSTRUCTIONS, advanced=True)] = "",
    max_tokens: Annotated[int, Param(min=1, max=_MOST_TOKENS, step=1)] = 512,
    sampling: bool = True,
    temperature: Annotated[float, Param(min=0.01, max=2.0, step=0.01)] = 0.7,
    top_k: Annotated[int, Param(min=0, max=1000, step=1, advanced=True)] = 64,
    top_p: Share = 0.95,
    min_p: Share = 0.05,
    repetition_penalty: Penalty = 1.05,
    presence_penalty: Penalty = 0.0,
    seed: Annotated[int, Param(label="Seed (-1 = random)", widget="seed")] = -1,
    template: Annotated[bool, Param(label="As a conversation", advanced=True)] = True,
    thinking: bool = False,
) -> tuple[str, str]:
    """Let a text encoder that is a language model write an answer to a prompt.

    `instructions` are published ones for writing prompts, where `system` says nothing else.
    Without `sampling` it always takes the likeliest word.  The same seed gives the same text.
    Raises: InvalidParam for an encoder that cannot write, ModelFileMissing, ModelFileInvalid,
    OutOfMemory.
    """
    request = TextRequest(
        prompt=prompt,
        system=system,
        instructions=instructions,
        max_tokens=max_tokens,
        sampling=sampling,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        presence_penalty=presence_penalty,
        seed=seed,
        template=template,
        thinking=thinking,
    )
    text, thought = ctx.render.write_text(text_encoder, request, ctx)
    ctx.describe(text=text)
    return text, thought
