"""The ladder: resident, int8, streamed, does not fit.  Pure arithmetic over a machine and a demand.

A plan is made for the largest moment of the work: weights at their target precision, activations
at the asked size, the decode, and the context of the device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from inline_core.devices.budget import (
    MIB,
    Demand,
    Machine,
    Profile,
    Weights,
    capacity_bytes,
    host_capacity_bytes,
)
from inline_core.devices.placement import (
    BYTES_PER_VALUE,
    Dtype,
    Offload,
    Placement,
    Quantization,
    Rung,
)

# Small models stay in float32 on the processor: it costs little, and then the same seed gives the
# same picture on every processor, with or without bf16 units.
SMALL_BYTES: Final = 256 * MIB
AMPERE: Final = (8, 0)  # compute capability with bfloat16 units


@dataclass(frozen=True, slots=True)
class Plan:
    """Where each component of one job goes, and the bytes that were counted.

    `phases` has the peak of `encode`, `denoise` and `decode` on the device; `required_bytes` is
    the largest of them, `capacity_bytes` what the device offers; `host_bytes` is what streamed
    weights take of the host.  `tiled_decode` says that a whole decode would not fit.
    `max_pictures` is how many pictures one forward pass may hold; `rows_apart` says that not even
    one with its guidance fits, so that each of its estimates is a pass of its own.
    """

    rung: Rung
    model: Placement
    text_encoder: Placement | None
    vae: Placement | None
    tiled_decode: bool
    required_bytes: int
    capacity_bytes: int
    host_bytes: int
    host_capacity_bytes: int
    phases: Mapping[str, int]
    max_pictures: int
    reasons: tuple[str, ...]
    rows_apart: bool = False

    @property
    def fits(self) -> bool:
        """False when nothing may be started."""
        return self.rung != "wont-fit"


@dataclass(frozen=True, slots=True)
class _Way:
    """One way to hold a component: on the device for good, or streamed to it."""

    dtype: Dtype
    quantization: Quantization
    offload: Offload
    device_bytes: int
    host_bytes: int = 0
    reason: str = ""

    def placement(self, device: str) -> Placement:
        """The decision in the form the loader takes."""
        return Placement(device, self.dtype, self.quantization, self.offload, reason=self.reason)


@dataclass(frozen=True, slots=True)
class _Choice:
    """A way for each component; `together` says that the encoder stays beside the model."""

    rung: Rung
    model: _Way
    encoder: _Way | None
    together: bool


@dataclass(frozen=True, slots=True)
class _Ask:
    """Everything the arithmetic reads."""

    machine: Machine
    profile: Profile
    demand: Demand
    capacity: int
    host_capacity: int
    vae: _Way | None

    @property
    def vae_bytes(self) -> int:
        return self.vae.device_bytes if self.vae else 0

    def decode_bytes(self, *, tiled: bool) -> int:
        work = self.demand.work
        values = min(work.tiled_decode_values, work.decode_values) if tiled else work.decode_values
        return values * BYTES_PER_VALUE[self.vae.dtype if self.vae else "float32"]

    def denoise_bytes(self, way: _Way) -> int:
        return self.demand.work.denoise_values * BYTES_PER_VALUE[way.dtype]

    def encode_bytes(self, way: _Way) -> int:
        return self.demand.work.encode_values * BYTES_PER_VALUE[way.dtype]


def preferred_dtype(machine: Machine, weights: Weights, *, vae: bool = False) -> tuple[Dtype, str]:
    """The precision to compute in when there is room for it, and why.

    A VAE overflows in float16 and is small, so it never gets that.
    """
    gpu = machine.gpu
    if machine.kind == "cuda":
        if gpu is not None and gpu.compute < AMPERE:
            return (
                ("float32", "VAE in float32, safe from overflow")
                if vae
                else (
                    "float16",
                    f"no bfloat16 at compute capability {gpu.compute[0]}.{gpu.compute[1]}: float16",
                )
            )
        return "bfloat16", "GPU: bfloat16"
    if machine.kind == "mps":
        return ("float32", "VAE in float32") if vae else ("bfloat16", "GPU: bfloat16")
    stored = weights.file_dtype or "unknown"
    reasons = (
        (vae, "VAE in float32"),
        (stored != "BF16" and not weights.packed_bytes, f"the file is {stored}: float32"),
        (weights.values * 2 < SMALL_BYTES, "small model: float32"),
        (not machine.bf16, "the processor has no bfloat16 units: float32"),
    )
    reason = next((text for applies, text in reasons if applies), None)
    if reason:
        return "float32", reason
    return "bfloat16", "the processor has bfloat16 units"


def place_vae(machine: Machine, weights: Weights) -> Placement:
    """The VAE's place depends on nothing else, so every user of a VAE shares it."""
    return _vae_way(machine, weights).placement(machine.device)


def _vae_way(machine: Machine, weights: Weights) -> _Way:
    dtype, reason = preferred_dtype(machine, weights, vae=True)
    return _Way(dtype, "none", "none", weights.bytes_at(dtype), reason=reason)


def make_plan(
    machine: Machine, profile: Profile, demand: Demand, budget_bytes: int | None = None
) -> Plan:
    """The first rung of the ladder that fits, or one that says `wont-fit`."""
    ask = _Ask(
        machine,
        profile,
        demand,
        capacity_bytes(machine, profile, budget_bytes),
        host_capacity_bytes(machine),
        _vae_way(machine, demand.vae) if demand.vae else None,
    )
    for choice in _choices(ask):
        plan = _plan(ask, choice, tiled=profile == "lowvram")
        if plan.required_bytes > ask.capacity:
            plan = _plan(ask, choice, tiled=True)
        if plan.required_bytes <= ask.capacity and plan.host_bytes <= ask.host_capacity:
            return plan
    # The smallest way is the one to name in the message.
    smallest = min(
        (_plan(ask, choice, tiled=True) for choice in _choices(ask)),
        key=lambda plan: plan.required_bytes,
    )
    return replace(smallest, rung="wont-fit", reasons=(*smallest.reasons, _too_big(smallest)))


def _too_big(plan: Plan) -> str:
    host = plan.host_bytes > plan.host_capacity_bytes
    needs = plan.host_bytes if host else plan.required_bytes
    has = plan.host_capacity_bytes if host else plan.capacity_bytes
    where = "host memory for streaming" if host else "memory"
    return f"needs {needs / 1e9:.1f} GB of {where}, {has / 1e9:.1f} GB can be used"


def _choices(ask: _Ask) -> Iterator[_Choice]:
    """Every allowed combination, best first: the model's rung counts more than the encoder's."""
    for rung, model in _model_ways(ask):
        encoder = ask.demand.text_encoder
        if encoder is None:
            yield _Choice(rung, model, None, together=True)
            continue
        for way, together in _encoder_ways(ask, encoder):
            yield _Choice(rung, model, way, together)


def _model_ways(ask: _Ask) -> Iterator[tuple[Rung, _Way]]:
    weights = ask.demand.model
    dtype, reason = preferred_dtype(ask.machine, weights)
    dtypes = [(dtype, reason)]
    if ask.machine.kind == "cpu" and dtype == "float32" and weights.values * 2 >= SMALL_BYTES:
        dtypes.append(("bfloat16", "float32 does not fit: bfloat16, which is slower here"))
    for wide, why in dtypes:
        yield "resident", _Way(wide, "none", "none", weights.bytes_at(wide), reason=why)
    small: Quantization = "packed" if weights.packed_bytes else "int8"
    held = weights.bytes_at(dtype, small)
    how = "kept packed as in the file" if small == "packed" else "int8, as the whole is too big"
    rung: Rung = "resident" if small == "packed" else "int8"
    yield rung, _Way(dtype, small, "none", held, reason=f"{reason}; {how}")
    if ask.machine.kind == "cuda":
        streamed = weights.streamed_bytes(dtype, small)
        words = f"{reason}; {how}; streamed block by block from host memory"
        yield "offload", _Way(dtype, small, "group", streamed, held, words)


def _encoder_ways(ask: _Ask, weights: Weights) -> Iterator[tuple[_Way, bool]]:
    """(way, stays beside the model), best first."""
    dtype, reason = preferred_dtype(ask.machine, weights)
    small: Quantization = "packed" if weights.packed_bytes else "int8"
    whole = _Way(dtype, "none", "none", weights.bytes_at(dtype), reason=reason)
    reduced = _Way(
        dtype, small, "none", weights.bytes_at(dtype, small), reason=f"{reason}; {small} to fit"
    )
    if ask.profile != "lowvram":
        yield whole, True
    if ask.machine.kind == "cuda":
        if ask.profile != "lowvram":
            yield reduced, True
        words = f"{reason}; {small}; streamed, since the diffusion model has the room"
        streamed = weights.streamed_bytes(dtype, small)
        yield _Way(dtype, small, "group", streamed, reduced.device_bytes, words), True
    # One after the other: the encoder leaves the device while denoising.
    yield replace(whole, reason=f"{reason}; leaves the device while denoising"), False
    yield replace(reduced, reason=f"{reduced.reason}; leaves the device while denoising"), False


def _plan(ask: _Ask, choice: _Choice, *, tiled: bool) -> Plan:
    model, encoder = choice.model, choice.encoder
    encoder_bytes = encoder.device_bytes if encoder else 0
    beside = encoder_bytes if choice.together else 0
    held = model.device_bytes + ask.vae_bytes + beside
    one = ask.denoise_bytes(model)
    phases = {
        "encode": (held if choice.together else encoder_bytes)
        + (ask.encode_bytes(encoder) if encoder else 0),
        "denoise": held + one,
        "decode": held + ask.decode_bytes(tiled=tiled),
    }
    host = model.host_bytes + (encoder.host_bytes if encoder else 0)
    pictures = (ask.capacity - held) // one if one else 1
    reasons = [f"diffusion model: {model.reason}"]
    if encoder:
        reasons.append(f"text encoder: {encoder.reason}")
    if ask.vae:
        reasons.append(f"VAE: {ask.vae.reason}{'; decoded in tiles' if tiled else ''}")
    device = ask.machine.device
    return Plan(
        rung=choice.rung,
        model=model.placement(device),
        text_encoder=encoder.placement(device) if encoder else None,
        vae=ask.vae.placement(device) if ask.vae else None,
        tiled_decode=tiled,
        required_bytes=max(phases.values()),
        capacity_bytes=ask.capacity,
        host_bytes=host,
        host_capacity_bytes=ask.host_capacity,
        phases=MappingProxyType(phases),
        max_pictures=max(1, pictures),
        reasons=tuple(reasons),
    )
