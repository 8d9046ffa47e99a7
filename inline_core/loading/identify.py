"""Say what a weight file is from its content: role, architecture, variant, geometry.

Names of files are never used.  A header takes a few milliseconds; no weights are read.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from inline_core.loading.component import Role
from inline_core.loading.fingerprints import DIFFUSION_MODELS, OTHER_FILES, PREFIXES, Fingerprint
from inline_core.loading.header import Header, TensorInfo

Tensors = Mapping[str, TensorInfo]

TURBO_CAP_DIM: Final = 2560
TURBO_DIM: Final = 3840
_LORA_KEY: Final = re.compile(r"\.(lora_A|lora_down|lora\.down|lokr_w1|hada_w1_a)\b")
_LORA_STYLES: Final = {"lokr_w1": "LoKr", "hada_w1_a": "LoHa"}
_PACKED_DTYPES: Final = ("F8_E4M3", "F8_E5M2", "F8_E8M0", "F4", "I8", "U8")


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """What a weight file or folder was found to be.

    `geometry` holds the sizes that decide what fits together (`in_channels`, `cap_feat_dim`,
    `latent_channels`, `hidden_size`, `vocab_size`, ...).  `native_size` is (width, height) in
    pixels where the file says so.  `evidence` names the keys that gave it away; `problems` says
    why a well-formed file cannot be used (empty: it can).
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
    native_size: tuple[int, int] | None = None
    geometry: Mapping[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    def in_words(self) -> str:
        """`a VAE (decoder.* keys)`, to stand after "is" in a sentence."""
        return f"{self.label} ({self.evidence})" if self.evidence else self.label


def identify(headers: Iterable[Header]) -> FileIdentity:
    """Identify one file, or the shards of one component together."""
    tensors: dict[str, TensorInfo] = {}
    metadata: dict[str, str] = {}
    for header in headers:
        tensors.update(header.tensors)
        metadata.update(header.metadata)
    found = _lora(tensors) or _checkpoint(tensors) or _diffusion_model(tensors, metadata)
    found = found or _other(tensors) or _qwen3(tensors)
    if found is None:
        found = FileIdentity(Role.UNKNOWN, "unknown", "a file of an unknown kind")
    return _with_totals(found, tensors, metadata)


def _with_totals(
    identity: FileIdentity, tensors: Tensors, metadata: Mapping[str, str]
) -> FileIdentity:
    bytes_by_dtype: Counter[str] = Counter()
    parameter_count = 0
    for dtype, shape, start, end in tensors.values():
        bytes_by_dtype[dtype] += end - start
        parameter_count += math.prod(shape)
    dtype = bytes_by_dtype.most_common(1)[0][0] if bytes_by_dtype else ""
    problems = identity.problems + tuple(_packed(tensors, metadata, bytes_by_dtype))
    return replace(
        identity,
        title=metadata.get("modelspec.title", ""),
        dtype=dtype,
        parameter_count=parameter_count,
        size_bytes=bytes_by_dtype.total(),
        native_size=_native_size(metadata),
        problems=problems,
    )


def _native_size(metadata: Mapping[str, str]) -> tuple[int, int] | None:
    match = re.fullmatch(r"\s*(\d+)\s*x\s*(\d+)\s*", metadata.get("modelspec.resolution", ""))
    return (int(match.group(1)), int(match.group(2))) if match else None


def _packed(
    tensors: Tensors, metadata: Mapping[str, str], bytes_by_dtype: Counter[str]
) -> Iterable[str]:
    """Name the pre-quantized formats, which must never be cast as if they were plain weights."""
    packed = [dtype for dtype in _PACKED_DTYPES if dtype in bytes_by_dtype]
    if not packed and "_quantization_metadata" not in metadata:
        return
    if "_quantization_metadata" in metadata or any(key.endswith(".comfy_quant") for key in tensors):
        yield "it is pre-quantized (comfy_quant), which is not supported yet: use a bf16 file"
    elif any(key.split(".")[-1] == "scaled_fp8" for key in tensors):
        yield "it is pre-quantized (scaled fp8), which is not supported yet: use a bf16 file"
    else:
        names = ", ".join(packed)
        yield f"its weights are {names}, which is not supported yet: use a bf16 file"


def _lora(tensors: Tensors) -> FileIdentity | None:
    kinds = Counter(_LORA_KEY.findall("\n".join(tensors)))
    if not kinds:
        return None
    kind, count = kinds.most_common(1)[0]
    label = "a " + _LORA_STYLES.get(kind, "LoRA")
    return FileIdentity(
        Role.LORA, _lora_family(tensors), label, layout=kind, evidence=f"{count} {kind} keys"
    )


def _lora_family(tensors: Tensors) -> str:
    names = " ".join(tensors)
    if re.search(r"layers[._]\d+[._]attention[._](to_q|qkv)", names):
        return "z-image"
    if re.search(r"double_blocks[._]\d+|single_transformer_blocks[._]\d+", names):
        return "flux-1"
    if re.search(r"lora_unet_(input|down|output|middle)_", names):
        return "sd-unet"
    return "unknown"


def strip_prefix(names: Iterable[str]) -> tuple[str, set[str]]:
    """Take the prefix off that wraps the diffusion model: (prefix, names below it)."""
    names = set(names)
    for prefix in PREFIXES:
        below = {name[len(prefix) :] for name in names if name.startswith(prefix)}
        if below:
            return prefix, below
    return "", names


def _checkpoint(tensors: Tensors) -> FileIdentity | None:
    has_model = any(key.startswith(PREFIXES[:2]) for key in tensors)
    others = [
        part
        for part, starts in (
            ("VAE", ("first_stage_model.", "vae.decoder.")),
            ("text encoder", ("cond_stage_model.", "conditioner.", "text_encoders.")),
        )
        if any(key.startswith(starts) for key in tensors)
    ]
    if not (has_model and others):
        return None
    _, names = strip_prefix(tensors)
    found = next((item for item in DIFFUSION_MODELS if item.layout_of(names) is not None), None)
    family = found.family if found else "unknown"
    label = f"an all-in-one {found.label if found else 'unknown'} checkpoint"
    evidence = "diffusion model with " + " and ".join(others)
    problem = "all-in-one checkpoints are not supported yet: use separate files"
    return FileIdentity(Role.CHECKPOINT, family, label, evidence=evidence, problems=(problem,))


def _diffusion_model(tensors: Tensors, metadata: Mapping[str, str]) -> FileIdentity | None:
    prefix, names = strip_prefix(tensors)
    for fingerprint in DIFFUSION_MODELS:
        layout = fingerprint.layout_of(names)
        if layout is None:
            continue
        bare = {
            key[len(prefix) :]: value for key, value in tensors.items() if key.startswith(prefix)
        }
        if fingerprint.family == "z-image":
            return _z_image(fingerprint, bare, metadata, layout, prefix)
        family, label = _refine(fingerprint, bare)
        evidence = f"{fingerprint.layouts[layout][0]} key"
        return FileIdentity(Role.DIFFUSION_MODEL, family, label, evidence=evidence, prefix=prefix)
    return None


def _refine(fingerprint: Fingerprint, tensors: Tensors) -> tuple[str, str]:
    """Tell SD1.5 from SDXL by the width of the text features."""
    if fingerprint.family != "sd-unet":
        return fingerprint.family, f"a {fingerprint.label} diffusion model"
    widths = {info.shape[1] for key, info in tensors.items() if key.endswith("attn2.to_k.weight")}
    if 2048 in widths:  # noqa: PLR2004 - the two CLIP widths of SDXL together
        return "sdxl", "an SDXL diffusion model"
    return "sd15", "an SD1.5 diffusion model"


def _z_image(
    fingerprint: Fingerprint,
    tensors: Tensors,
    metadata: Mapping[str, str],
    layout: int,
    prefix: str,
) -> FileIdentity:
    original = layout == 0
    embedder = tensors["x_embedder.weight" if original else "all_x_embedder.2-1.weight"]
    head = tensors.get(
        "layers.0.attention.q_norm.weight" if original else "layers.0.attention.norm_q.weight"
    )
    dim = embedder.shape[0]
    geometry = {
        "dim": dim,
        "in_channels": embedder.shape[1] // 4,  # patches of 2 x 2
        "cap_feat_dim": tensors["cap_embedder.1.weight"].shape[1],
        "n_layers": count_blocks(tensors, "layers."),
        "n_refiner_layers": count_blocks(tensors, "noise_refiner."),
        "head_dim": head.shape[0] if head else 0,
    }
    problems: tuple[str, ...] = ()
    if "siglip_pad_token" in tensors:
        problems = ("it is the Z-Image Omni variant, which is not supported yet",)
    return FileIdentity(
        Role.DIFFUSION_MODEL,
        fingerprint.family,
        "a Z-Image diffusion model",
        variant=_z_image_variant(geometry, metadata),
        layout="original" if original else "diffusers",
        prefix=prefix,
        evidence="cap_embedder and x_pad_token keys",
        geometry=geometry,
        problems=problems,
    )


def _z_image_variant(geometry: Mapping[str, int], metadata: Mapping[str, str]) -> str:
    if metadata.get("modelspec.title", "").startswith("Inline demo"):
        return "demo"
    # Base and Turbo have the same shapes; Turbo is what nearly everybody has.
    real = geometry["dim"] == TURBO_DIM and geometry["cap_feat_dim"] == TURBO_CAP_DIM
    return "turbo" if real else "tiny"


def count_blocks(tensors: Iterable[str], start: str) -> int:
    """Number of numbered blocks below `start` (`layers.` -> 30)."""
    numbers = {
        int(rest)
        for name in tensors
        if name.startswith(start) and (rest := name[len(start) :].split(".", 1)[0]).isdigit()
    }
    return len(numbers)


def _other(tensors: Tensors) -> FileIdentity | None:
    for fingerprint in OTHER_FILES:
        layout = fingerprint.layout_of(tensors.keys())
        if layout is None:
            continue
        if fingerprint.family == "autoencoder-kl":
            return _vae(tensors, layout)
        evidence = f"{fingerprint.layouts[layout][0]} key"
        return FileIdentity(
            fingerprint.role, fingerprint.family, fingerprint.label, evidence=evidence
        )
    return None


def _vae(tensors: Tensors, layout: int) -> FileIdentity:
    channels = tensors["decoder.conv_in.weight"].shape[1]
    family = (
        "autoencoder-kl-flux-2"
        if any(key.startswith("bn.") for key in tensors)
        else "autoencoder-kl"
    )
    ups = count_blocks(tensors, ("decoder.up.", "decoder.up_blocks.")[layout])
    return FileIdentity(
        Role.VAE,
        family,
        "a VAE",
        layout="ldm" if layout == 0 else "diffusers",
        evidence="decoder.* keys",
        geometry={"latent_channels": channels, "factor": 2 ** max(ups - 1, 0)},
    )


def _qwen3(tensors: Tensors) -> FileIdentity | None:
    prefix = "model." if "model.embed_tokens.weight" in tensors else ""
    embedding = tensors.get(f"{prefix}embed_tokens.weight")
    if embedding is None:
        return None
    first = f"{prefix}layers.0.self_attn."
    qwen3 = f"{first}q_norm.weight" in tensors
    vision = any(key.startswith(("visual.", "model.visual.", "vision_tower.")) for key in tensors)
    family = "qwen3-vl" if qwen3 and vision else "qwen3" if qwen3 else "decoder"
    label = "a Qwen3 text encoder" if qwen3 else "a decoder language model of another kind"
    return FileIdentity(
        Role.TEXT_ENCODER,
        family,
        label,
        layout="model." if prefix else "bare",
        prefix=prefix,
        evidence="embed_tokens and self_attn.q_norm keys" if qwen3 else "embed_tokens key",
        geometry={
            "vocab_size": embedding.shape[0],
            "hidden_size": embedding.shape[1],
            "n_layers": count_blocks(tensors, f"{prefix}layers."),
        },
    )
