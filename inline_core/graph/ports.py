"""The kinds of value that travel along edges, and which kind may be wired into which.

An edge ends at an input port, or at a param: then its value stands in for the one that was set.
"""

from __future__ import annotations

from enum import StrEnum


class PortKind(StrEnum):
    """All kinds of the contract, and ours.

    Those are `sigmas`, `controlnet`, the values that params take (`number`, `boolean`), and `any`,
    which goes with everything.

    A kind that ends in `[]` takes a list of edges.
    """

    IMAGE = "image"
    IMAGES = "image[]"
    VIDEO = "video"
    AUDIO = "audio"
    TEXT = "text"
    MASK = "mask"
    MODEL = "model"
    VAE = "vae"
    TEXT_ENCODER = "text-encoder"
    LORA = "lora"
    CONDITIONING = "conditioning"
    LATENT = "latent"
    SIGMAS = "sigmas"
    CONTROL = "control"
    CONTROLNET = "controlnet"
    CHARACTER = "character"
    PAYLOAD = "payload"
    PAYLOADS = "payload[]"
    DATASET = "dataset"
    METRICS = "metrics"
    NUMBER = "number"
    BOOLEAN = "boolean"
    ANY = "any"

    @property
    def is_list(self) -> bool:
        """True when several edges may be wired into a port of this kind."""
        return self.value.endswith("[]")


_COERCIONS = frozenset(
    {
        (PortKind.IMAGE, PortKind.IMAGES),
        (PortKind.PAYLOAD, PortKind.PAYLOADS),
        (PortKind.IMAGE, PortKind.CONTROL),
        (PortKind.NUMBER, PortKind.BOOLEAN),
        (PortKind.BOOLEAN, PortKind.NUMBER),
    }
)


def accepts(target: PortKind, source: PortKind) -> bool:
    """Say whether a value of kind `source` may be wired into a port of kind `target`."""
    if PortKind.ANY in {target, source}:
        return True
    return source is target or (source, target) in _COERCIONS
