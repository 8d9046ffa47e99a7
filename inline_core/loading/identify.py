"""Say what a weight file is from its content: role, architecture, variant, geometry, config.

Names of files are never used.  A header takes a few milliseconds; no weights are read.  What is
known about each architecture is in `inline_core.loading.architectures`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from inline_core.loading import architectures
from inline_core.loading.architectures.architecture import Architecture, with_article
from inline_core.loading.architectures.decoders import start_of
from inline_core.loading.architectures.lora import adapter_kind
from inline_core.loading.architectures.shapes import MissingTensorError, Shapes, count_blocks
from inline_core.loading.architectures.stable_diffusion import prediction_told
from inline_core.loading.component import Role
from inline_core.loading.header import Header, TensorInfo, part_of
from inline_core.loading.packing import LogicalTensors, logical_tensors

__all__ = ["FileIdentity", "count_blocks", "identify"]

Tensors = Mapping[str, TensorInfo]

_CHECKPOINT_PREFIXES: Final = architectures.DIFFUSION_PREFIXES[:2]
_OTHER_PARTS: Final = (
    ("VAE", ("first_stage_model", "vae", "audio_vae")),
    ("text encoder", ("cond_stage_model", "conditioner", "text_encoders")),
)
_PARTS: Final = re.compile(
    r"(?:first_stage_model|vae|audio_vae|vocoder"
    r"|cond_stage_model(?:\.[^.]+)?\.transformer|cond_stage_model\.model"
    r"|conditioner\.embedders\.\d+\.(?:transformer|model)"
    r"|text_encoders\.[^.]+(?:\.transformer)?)\."
)
_ROLES_OF_PARTS: Final = (Role.VAE, Role.AUDIO_VAE, Role.VOCODER, Role.TEXT_ENCODER)


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """What a weight file or folder was found to be.

    `class_name` is the class of diffusers or transformers that holds it ("" where there is none)
    and `config` its constructor arguments (for transformers: those of its config class), as far as
    shapes tell; the rest are the defaults of the class.  `geometry` holds the sizes that decide
    what fits together (`in_channels`, `cap_feat_dim`, `latent_channels`, `hidden_size`,
    `vocab_size`, ...).  `native_size` is (width, height) in pixels where the file says so.
    `evidence` names the keys that gave it away; `made_for` is the family an adapter belongs to, in
    words; `quantization` is how a pre-quantized file is packed, in words; `problems` says why a
    well-formed file cannot be used (empty: it can).  `parts` are the components of an all-in-one
    checkpoint by the prefix of their names, its diffusion model first; the rest of its identity
    is that of its diffusion model.
    """

    role: Role
    family: str
    label: str
    variant: str = ""
    title: str = ""
    dtype: str = ""
    parameter_count: int = 0
    size_bytes: int = 0
    layout: str = ""
    prefix: str = ""
    evidence: str = ""
    made_for: str = ""
    native_size: tuple[int, int] | None = None
    geometry: Mapping[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    class_name: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    quantization: str = ""
    parts: Mapping[str, FileIdentity] = field(default_factory=dict)

    def in_words(self) -> str:
        """`a VAE (decoder.* keys)`, to stand after "is" in a sentence."""
        words = f"{self.label} ({self.evidence})" if self.evidence else self.label
        return f"{words} made for {self.made_for}" if self.made_for else words


def identify(headers: Iterable[Header]) -> FileIdentity:
    """Identify one file, or the shards of one component together.

    Packed weights count by their own names and shapes, whatever the file calls and holds.
    """
    headers = tuple(headers)
    logical = logical_tensors(headers)
    tensors = logical.tensors
    metadata = {key: value for header in headers for key, value in header.metadata.items()}
    whole = Shapes(tensors)
    found = _adapter(tensors, metadata) or _checkpoint(whole, headers) or _model(whole)
    if found is None:
        found = FileIdentity(Role.UNKNOWN, "unknown", "a file of an unknown kind")
    return _with_totals(found, logical, metadata)


def _adapter(tensors: Tensors, metadata: Mapping[str, str]) -> FileIdentity | None:
    kind = adapter_kind(tensors, metadata)
    if kind is None:
        return None
    name = architectures.name_of(kind.family)
    return FileIdentity(
        Role.LORA,
        kind.family,
        with_article(kind.style),
        layout=kind.spelling,
        evidence=f"{kind.count} {kind.spelling} keys",
        made_for=name or ("Stable Diffusion" if kind.family == "sd-unet" else ""),
    )


def _checkpoint(whole: Shapes, headers: Sequence[Header]) -> FileIdentity | None:
    others = [part for part, starts in _OTHER_PARTS if not whole.groups.keys().isdisjoint(starts)]
    prefix = whole.first_prefix(_CHECKPOINT_PREFIXES)
    if not (prefix and others):
        return None
    evidence = "diffusion model with " + " and ".join(others)
    model = identify(part_of(header, prefix) for header in headers)
    if model.role is not Role.DIFFUSION_MODEL:
        problem = "its diffusion model is of an unknown kind: use a model that is listed"
        label = "an all-in-one unknown checkpoint"
        unknown = FileIdentity(Role.CHECKPOINT, "unknown", label)
        return replace(unknown, evidence=evidence, prefix=prefix, problems=(problem,))
    # Stable Diffusion files tell beside their parts how the model predicts.
    model = replace(model, variant=model.variant or prediction_told(whole))
    parts = {prefix: model}
    for place in _places_of_parts(whole):
        found = identify(part_of(header, place) for header in headers)
        if found.role in _ROLES_OF_PARTS:
            parts[place] = found
    label = f"an all-in-one {architectures.name_of(model.family)} checkpoint"
    return replace(
        model, role=Role.CHECKPOINT, label=label, evidence=evidence, prefix=prefix, parts=parts
    )


def _places_of_parts(whole: Shapes) -> list[str]:
    """Prefixes of what may be further components, each once, in the order of the alphabet."""
    starts = {start for _, names in _OTHER_PARTS for start in names} | {"vocoder"}
    names = (name for start in starts for name in whole.groups.get(start, ()))
    found = {match.group() for name in names if (match := _PARTS.match(name))}
    # `text_encoders.x.` has nothing but a scale where its weights are in `text_encoders.x.y.`.
    return sorted(
        place
        for place in found
        if not any(other.startswith(place) and other != place for other in found)
    )


def _model(whole: Shapes) -> FileIdentity | None:
    """Try the architectures of each kind below the prefix that such files have."""
    control = whole.first_prefix(architectures.CONTROL_PREFIXES)
    shapes = whole.below(whole.first_prefix(architectures.DIFFUSION_PREFIXES))
    found = (
        _first_match(architectures.CONTROL, whole.below(control) if control else shapes)
        or _first_match(architectures.DIFFUSION_MODELS, shapes)
        or _first_match(
            architectures.VAES, whole.below(whole.first_prefix(architectures.VAE_PREFIXES))
        )
        or _first_match(architectures.OTHERS, whole)
    )
    if found is None or found.family not in architectures.DECODER_FAMILIES:
        return found
    return replace(found, prefix=start_of(whole))


def _first_match(candidates: tuple[Architecture, ...], shapes: Shapes) -> FileIdentity | None:
    for candidate in candidates:
        try:
            layout = candidate.layout_of(shapes)
        except MissingTensorError:
            continue
        if layout is not None:
            return _described(candidate, shapes, layout)
    return None


def _described(found: Architecture, shapes: Shapes, layout: str) -> FileIdentity:
    """Everything that one architecture says about these shapes."""
    identity = FileIdentity(
        found.role,
        found.family,
        found.label,
        layout=layout,
        prefix=shapes.prefix,
        evidence=found.evidence_for(layout),
        problems=found.problems(shapes),
    )
    try:
        config = found.config(shapes)
        geometry = found.geometry(shapes, config)
        variant = found.variant(shapes, config)
    except MissingTensorError as error:
        missing = f"it is no whole model: {error.name} is not in it"
        return replace(identity, problems=(*identity.problems, missing))
    return replace(
        identity,
        class_name=found.class_name,
        config=config,
        geometry=geometry,
        variant=variant,
    )


def _with_totals(
    identity: FileIdentity, logical: LogicalTensors, metadata: Mapping[str, str]
) -> FileIdentity:
    tensors = logical.tensors
    totals: dict[str, int] = {}
    for dtype, _, start, end in tensors.values():
        totals[dtype] = totals.get(dtype, 0) + end - start
    bytes_by_dtype = Counter(totals)
    parameter_count = sum(math.prod(info.shape) for info in tensors.values())
    dtype = bytes_by_dtype.most_common(1)[0][0] if bytes_by_dtype else ""
    problems = identity.problems + logical.problems
    title = metadata.get("modelspec.title", "")
    demo = identity.role is Role.DIFFUSION_MODEL and title.startswith("Inline demo")
    return replace(
        identity,
        variant="demo" if demo else identity.variant,
        title=title,
        dtype=dtype,
        parameter_count=parameter_count,
        size_bytes=bytes_by_dtype.total(),
        native_size=_native_size(metadata),
        quantization=logical.quantization,
        problems=problems,
    )


def _native_size(metadata: Mapping[str, str]) -> tuple[int, int] | None:
    match = re.fullmatch(r"\s*(\d+)\s*x\s*(\d+)\s*", metadata.get("modelspec.resolution", ""))
    return (int(match.group(1)), int(match.group(2))) if match else None
