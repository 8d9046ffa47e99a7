"""Prompts to features: the text encoders of a family, opened one at a time.

Never imports torch itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inline_core.loading.component import ComponentRef
from inline_core.sampling.values import Conditioning

if TYPE_CHECKING:
    from inline_core.families.encoded_prompt import EncodedPrompt

Check = Callable[[], None]


class Encoders:
    """The text encoders of one prompt, in the order its family wants them.  Device thread only.

    Each is loaded when it is opened and may leave the memory as soon as it is closed.
    """

    def __init__(
        self,
        references: Sequence[ComponentRef],
        lease: Callable[[ComponentRef], AbstractContextManager[Any]],
        check: Check,
        find: Callable[[str, str], Path | None],
        vision: Callable[[], AbstractContextManager[Any]],
        sizes: Mapping[str, int],
    ) -> None:
        """`lease` loads an encoder, `find` gives the path of a file by category and name.

        `vision` loads the model's vision encoder; `sizes` are those of the diffusion model.
        """
        self.sizes = sizes
        self._vision = vision
        self._references = tuple(references)
        self._lease = lease
        self._check = check
        self._find = find

    def __len__(self) -> int:
        return len(self._references)

    @contextmanager
    def open(self, position: int = 0) -> Iterator[Any]:
        """The loaded encoder at a position; it asks between its layers whether to go on."""
        lease = self._lease(self._references[position])
        with lease as loaded, loaded.interruption.asking(self._check):
            yield loaded

    @contextmanager
    def open_vision(self) -> Iterator[Any]:
        """The vision encoder of the model.  Raises: ModelFileMissing if there is none."""
        with self._vision() as loaded, loaded.interruption.asking(self._check):
            yield loaded

    def file(self, category: str, name: str) -> Path | None:
        """The path of a small file that a prompt names (an embedding), or None."""
        return self._find(category, name)


def reading_one(
    encode_prompt: Callable[[Any, str], EncodedPrompt],
) -> Callable[[Encoders, Conditioning], EncodedPrompt]:
    """The `encode` of a family with one text encoder that reads nothing but words."""

    def encode(encoders: Encoders, conditioning: Conditioning) -> EncodedPrompt:
        with encoders.open() as encoder:
            return encode_prompt(encoder, conditioning.prompt)

    return encode


def prompt_key(conditioning: Conditioning) -> tuple[Any, ...]:
    """What the features of a prompt depend on, beside encoders and precision."""
    pictures = tuple(
        (*image.pixels.shape, hashlib.blake2b(image.pixels.tobytes(), digest_size=16).digest())
        for image in conditioning.pictures
    )
    return (conditioning.prompt, conditioning.options, pictures)
