"""The policy as a table: 41 machines x 8 models, checked by arithmetic of its own."""

from __future__ import annotations

from typing import Final

import pytest

from inline_core.devices.budget import (
    GIB,
    Demand,
    Gpu,
    Machine,
    Profile,
    Weights,
    Workload,
    capacity_bytes,
    headroom_bytes,
)
from inline_core.devices.ladder import Plan, make_plan, place_vae, preferred_dtype
from inline_core.devices.placement import Placement


def gpu(
    gib: int, *, ram: int, compute: tuple[int, int], free: int | None = None, count: int = 1
) -> Machine:
    cards = tuple(
        Gpu(index, "card", gib * GIB, (free or gib) * GIB, compute) for index in range(count)
    )
    return Machine("cuda", "card", ram * GIB, cards)


def cpu(gib: int, *, bf16: bool) -> Machine:
    return Machine("cpu", "processor", gib * GIB, bf16=bf16)


def apple(gib: int) -> Machine:
    return Machine("mps", "Apple", gib * GIB)


# Measured on the real architectures (diffusers' and transformers' defaults on the meta device):
# values, values in block linears, rows of those, largest block, outside of blocks.
WEIGHTS: Final = {
    "sd15": (859_520_964, 268_001_280, 232_320, 258_330_880, 2_074_564),
    "sdxl": (2_567_463_684, 2_225_356_800, 1_449_920, 1_206_568_960, 7_320_004),
    "z-image": (6_154_908_736, 6_142_033_920, 1_840_640, 180_910_336, 11_852_352),
    "flux-1": (11_891_178_560, 11_834_228_736, 3_035_136, 339_831_296, 53_895_232),
    "krea-2": (12_820_073_036, 12_498_501_632, 1_808_384, 434_123_008, 321_198_668),
    "wan-14b": (14_288_491_584, 14_050_918_400, 2_396_160, 351_363_584, 233_948_224),
    "qwen-image": (20_430_401_088, 20_384_317_440, 5_529_600, 339_831_296, 40_523_328),
    "flux-2": (32_223_281_152, 31_406_948_352, 4_030_464, 981_467_648, 816_316_416),
    "qwen3-4b": (4_022_468_096, 3_633_315_840, 1_105_920, 100_930_816, 388_958_720),
    "t5-xxl": (4_893_906_944, 4_630_511_616, 983_040, 192_948_224, 263_196_672),
    "umt5-xxl": (6_731_059_200, 4_630_511_616, 983_040, 192_948_224, 2_100_301_824),
    "vae": (83_819_683, 2_097_152, 4_096, 16_524_800, 230_051),
}
# 1024 x 1024 (SD1.5: 512 x 512), values: encode, denoise, decode, tiled decode.
MODELS: Final = {
    "sd15": (None, (1_537_536, 18_350_080, 201_326_592, 202_899_456)),
    "sdxl": (None, (7_254_016, 68_157_440, 805_306_368, 207_618_048)),
    "z-image": ("qwen3-4b", (65_536_000, 176_947_200, 805_306_368, 207_618_048)),
    "flux-1": ("t5-xxl", (79_691_776, 198_180_864, 805_306_368, 207_618_048)),
    "krea-2": ("qwen3-4b", (65_536_000, 283_115_520, 805_306_368, 207_618_048)),
    "wan-14b": ("umt5-xxl", (79_691_776, 238_288_896, 805_306_368, 207_618_048)),
    "qwen-image": ("t5-xxl", (88_080_384, 198_180_864, 805_306_368, 207_618_048)),
    "flux-2": ("t5-xxl", (141_557_760, 311_427_072, 805_306_368, 207_618_048)),
}
LETTER: Final = {"resident": "R", "int8": "I", "offload": "O", "wont-fit": "-"}
# Machine, bytes it offers (memory - 5 %, at least 512 MiB - 600 MiB of context; 10 % below 12 GiB
# of a GPU), and the rung of each model in the order above.
TABLE: Final = [
    ("laptop 4 GB (GTX 1650)", gpu(4, ram=8, compute=(7, 5)), 3128950784, "R-------"),
    ("laptop 4 GB, 32 GB RAM", gpu(4, ram=32, compute=(7, 5)), 3128950784, "R-OO--O-"),
    ("laptop 6 GB", gpu(6, ram=16, compute=(8, 6)), 5169060250, "RIO-O---"),
    ("6 GB, 8 GB RAM", gpu(6, ram=8, compute=(8, 6)), 5169060250, "RIO-----"),
    ("8 GB, 16 GB RAM", gpu(8, ram=16, compute=(8, 6)), 7101795533, "RRIOO---"),
    ("8 GB, 32 GB RAM", gpu(8, ram=32, compute=(8, 6)), 7101795533, "RRIOOOO-"),
    ("8 GB, 3 GB taken by others", gpu(8, ram=32, compute=(8, 6), free=5), 4739563520, "RIOOO-O-"),
    ("10 GB (3080)", gpu(10, ram=32, compute=(8, 6)), 9034530816, "RRIOOOO-"),
    ("12 GB, 16 GB RAM", gpu(12, ram=16, compute=(8, 6)), 11611511194, "RRIOOO--"),
    ("12 GB, 32 GB RAM", gpu(12, ram=32, compute=(8, 6)), 11611511194, "RRIOOOO-"),
    ("12 GB, 64 GB RAM", gpu(12, ram=64, compute=(8, 6)), 11611511194, "RRIOOOOO"),
    ("T4 16 GB, 16 GB RAM", gpu(16, ram=16, compute=(7, 5)), 15691730125, "RRRIIO--"),
    ("T4 16 GB, 64 GB RAM", gpu(16, ram=64, compute=(7, 5)), 15691730125, "RRRIIOOO"),
    ("16 GB, 32 GB RAM", gpu(16, ram=32, compute=(8, 6)), 15691730125, "RRRIIIO-"),
    ("16 GB, 64 GB RAM", gpu(16, ram=64, compute=(8, 6)), 15691730125, "RRRIIIOO"),
    ("24 GB, 32 GB RAM", gpu(24, ram=32, compute=(8, 6)), 23852167988, "RRRIIII-"),
    ("24 GB, 64 GB RAM", gpu(24, ram=64, compute=(8, 6)), 23852167988, "RRRIIIIO"),
    ("2 x 24 GB", gpu(24, ram=128, compute=(8, 6), count=2), 23852167988, "RRRIIIIO"),
    ("V100 32 GB", gpu(32, ram=128, compute=(7, 0)), 32012605850, "RRRRRRIO"),
    ("32 GB (5090)", gpu(32, ram=64, compute=(12, 0)), 32012605850, "RRRRRRIO"),
    ("A100 40 GB", gpu(40, ram=128, compute=(8, 0)), 40173043712, "RRRRRRII"),
    ("48 GB", gpu(48, ram=128, compute=(8, 6)), 48333481575, "RRRRRRRI"),
    ("H100 80 GB", gpu(80, ram=256, compute=(9, 0)), 80975233024, "RRRRRRRR"),
    ("8 x 80 GB", gpu(80, ram=1024, compute=(9, 0), count=8), 80975233024, "RRRRRRRR"),
    ("H200 141 GB", gpu(141, ram=256, compute=(9, 0)), 143198571725, "RRRRRRRR"),
    ("CPU 4 GB, bf16 units", cpu(4, bf16=True), 3128950784, "R-------"),
    ("CPU 4 GB, no bf16 units", cpu(4, bf16=False), 3128950784, "R-------"),
    ("CPU 8 GB, bf16 units", cpu(8, bf16=True), 7423918080, "RRI-----"),
    ("CPU 8 GB, no bf16 units", cpu(8, bf16=False), 7423918080, "RRI-----"),
    ("CPU 16 GB, bf16 units", cpu(16, bf16=True), 15691730125, "RRRII---"),
    ("CPU 16 GB, no bf16 units", cpu(16, bf16=False), 15691730125, "RRRII---"),
    ("CPU 32 GB, bf16 units", cpu(32, bf16=True), 32012605850, "RRRRRRI-"),
    ("CPU 32 GB, no bf16 units", cpu(32, bf16=False), 32012605850, "RRRRRRI-"),
    ("CPU 64 GB, bf16 units", cpu(64, bf16=True), 64654357300, "RRRRRRRI"),
    ("CPU 64 GB, no bf16 units", cpu(64, bf16=False), 64654357300, "RRRRRRRI"),
    ("CPU 128 GB, no bf16 units", cpu(128, bf16=False), 129937860199, "RRRRRRRR"),
    ("Apple 8 GB", apple(8), 5486149632, "RI------"),
    ("Apple 16 GB", apple(16), 11821226394, "RRI-----"),
    ("Apple 32 GB", apple(32), 24061883188, "RRRIIII-"),
    ("Apple 64 GB", apple(64), 48543196775, "RRRRRRRI"),
    ("Apple 128 GB", apple(128), 97505823949, "RRRRRRRR"),
]


def weights_of(name: str) -> Weights:
    values, linear, rows, block, outside = WEIGHTS[name]
    return Weights(values, linear, rows, block, outside)


def demand_of(model: str) -> Demand:
    encoder, work = MODELS[model]
    return Demand(
        weights_of(model),
        weights_of(encoder) if encoder else None,
        weights_of("vae"),
        Workload(*work),
    )


def profile_of(machine: Machine) -> Profile:
    if machine.kind == "cpu":
        return "cpu"
    small = machine.gpu is not None and machine.gpu.total_bytes < 12 * GIB
    return "lowvram" if small else "gpu-max"


def width_of(placement: Placement) -> int:
    return 4 if placement.dtype == "float32" else 2


def by_hand(name: str, placement: Placement) -> tuple[int, int]:
    """(bytes on the device, bytes on the host) of a component, written out anew."""
    values, linear, rows, block, outside = WEIGHTS[name]
    width = width_of(placement)
    whole = width * values
    if placement.quantization == "int8":
        whole = linear + 4 * rows + width * (values - linear)
    if placement.offload == "none":
        return whole, 0
    in_blocks = whole - width * outside
    return width * outside + int(2 * (block / (values - outside)) * in_blocks), whole


def phases_by_hand(model: str, plan: Plan) -> dict[str, int]:
    encoder, (encode, denoise, decode, tiled) = MODELS[model]
    assert plan.vae is not None
    held = by_hand(model, plan.model)[0] + by_hand("vae", plan.vae)[0]
    encoding = 0
    if encoder and plan.text_encoder:
        own = by_hand(encoder, plan.text_encoder)[0]
        work = encode * width_of(plan.text_encoder)
        if "leaves the device" in plan.text_encoder.reason:
            encoding = own + work
        else:
            held += own
            encoding = held + work
    else:
        encoding = held
    pixels = min(decode, tiled) if plan.tiled_decode else decode
    return {
        "encode": encoding,
        "denoise": held + denoise * width_of(plan.model),
        "decode": held + pixels * width_of(plan.vae),
    }


@pytest.mark.parametrize(("label", "machine", "capacity", "rungs"), TABLE)
def test_every_machine_and_model(label: str, machine: Machine, capacity: int, rungs: str) -> None:
    profile = profile_of(machine)
    assert capacity_bytes(machine, profile) == capacity, label
    plans = {name: make_plan(machine, profile, demand_of(name)) for name in MODELS}
    assert "".join(LETTER[plan.rung] for plan in plans.values()) == rungs
    for name, plan in plans.items():
        assert plan.phases == phases_by_hand(name, plan), name
        assert plan.required_bytes == max(plan.phases.values())
        assert plan.capacity_bytes == capacity
        encoder = MODELS[name][0]
        on_host = by_hand(name, plan.model)[1]
        if encoder and plan.text_encoder:
            on_host += by_hand(encoder, plan.text_encoder)[1]
        assert plan.host_bytes == on_host
        if plan.fits:
            assert plan.required_bytes <= capacity
            assert on_host <= plan.host_capacity_bytes
        else:
            assert plan.required_bytes > capacity or on_host > plan.host_capacity_bytes
        assert all(plan.reasons)


@pytest.mark.parametrize(("label", "machine", "capacity", "rungs"), TABLE)
def test_no_better_rung_would_have_fitted(
    label: str, machine: Machine, capacity: int, rungs: str
) -> None:
    """Below `resident`, even the model with the VAE and the smallest work is too big for it."""
    for name, rung in zip(MODELS, rungs, strict=True):
        plan = make_plan(machine, profile_of(machine), demand_of(name))
        _, work = MODELS[name]
        assert plan.vae is not None
        smallest = min(work[3], work[2]) * width_of(plan.vae)
        smallest = max(smallest, work[1] * width_of(plan.model))
        beside = by_hand("vae", plan.vae)[0] + smallest
        if rung != "R":
            half = WEIGHTS[name][0] * 2
            streamed = 0
            encoder = MODELS[name][0]
            if encoder and machine.kind == "cuda":
                # At best the encoder is streamed: two blocks and its table.
                streamed = by_hand(encoder, Placement("cuda:0", plan.model.dtype, "int8", "group"))[
                    0
                ]
            alone = half + beside > capacity
            with_encoder = half + beside + streamed > capacity or rung == "-"
            assert alone or with_encoder, (label, name)
        if rung == "O":
            int8 = by_hand(name, Placement("cuda:0", plan.model.dtype, "int8"))[0]
            assert int8 + beside > capacity or plan.host_bytes, (label, name)


def test_the_case_of_the_12_gb_card() -> None:
    """A 12 GB transformer, 1.5 GB of activations and a VAE never count as resident on 12 GB."""
    machine = gpu(12, ram=32, compute=(8, 9))
    demand = Demand(
        Weights(6_000_000_000, 5_900_000_000, 1_800_000, 180_000_000, 100_000_000),
        vae=Weights(150_000_000),
        work=Workload(denoise_values=750_000_000, decode_values=805_306_368),
    )
    plan = make_plan(machine, "gpu-max", demand)
    assert plan.rung == "int8"
    # 5.9 GB + scales + 0.2 GB in bf16, 0.3 GB VAE, 1.61 GB for the decode
    assert plan.required_bytes == 5_900_000_000 + 7_200_000 + 200_000_000 + 300_000_000 + (
        2 * 805_306_368
    )
    assert plan.phases["denoise"] == 6_107_200_000 + 300_000_000 + 1_500_000_000


def test_precisions() -> None:
    big = Weights(6_000_000_000)
    assert preferred_dtype(gpu(24, ram=64, compute=(8, 0)), big)[0] == "bfloat16"
    assert preferred_dtype(gpu(16, ram=64, compute=(7, 5)), big)[0] == "float16"
    assert place_vae(gpu(16, ram=64, compute=(7, 5)), big).dtype == "float32"
    assert place_vae(gpu(24, ram=64, compute=(8, 6)), big).dtype == "bfloat16"
    assert preferred_dtype(cpu(64, bf16=True), big)[0] == "bfloat16"
    assert preferred_dtype(cpu(64, bf16=False), big)[0] == "float32"
    assert preferred_dtype(cpu(64, bf16=True), Weights(1_000_000))[0] == "float32"
    assert preferred_dtype(cpu(64, bf16=True), Weights(6 * 10**9, file_dtype="F16"))[0] == "float32"
    assert place_vae(cpu(64, bf16=True), big).dtype == "float32"
    assert preferred_dtype(apple(32), big)[0] == "bfloat16"


def test_a_packed_file_stays_packed_when_room_is_short_and_is_never_quantized_again() -> None:
    packed = Weights(
        6_154_908_736,
        6_142_033_920,
        1_840_640,
        180_910_336,
        11_852_352,
        file_dtype="F8_E4M3",
        packed_bytes=6_170_000_000,
    )
    demand = Demand(packed, vae=weights_of("vae"), work=Workload(*MODELS["z-image"][1]))
    wide = make_plan(gpu(24, ram=64, compute=(8, 9)), "gpu-max", demand)
    assert (wide.rung, wide.model.quantization) == ("resident", "none")
    tight = make_plan(gpu(12, ram=32, compute=(8, 9)), "gpu-max", demand)
    assert (tight.rung, tight.model.quantization) == ("resident", "packed")
    assert tight.phases["denoise"] == 6_170_000_000 + 2 * 83_819_683 + 2 * 176_947_200
    small = make_plan(gpu(6, ram=32, compute=(8, 9)), "lowvram", demand)
    assert (small.rung, small.model.quantization) == ("offload", "packed")


def test_headroom_and_budget() -> None:
    assert headroom_bytes(4 * GIB, "gpu-max") == 512 * 1024**2
    assert headroom_bytes(80 * GIB, "gpu-max") == 4 * GIB
    assert headroom_bytes(80 * GIB, "lowvram") == 8 * GIB
    machine = gpu(24, ram=64, compute=(8, 6))
    assert capacity_bytes(machine, "gpu-max", 8 * GIB) == 8 * GIB - 600 * 1024**2
    assert make_plan(machine, "gpu-max", demand_of("z-image"), 8 * GIB).rung == "int8"
    assert make_plan(machine, "gpu-max", demand_of("z-image"), GIB).rung == "wont-fit"


def test_more_pictures_in_a_pass_while_there_is_room() -> None:
    plan = make_plan(gpu(80, ram=256, compute=(9, 0)), "gpu-max", demand_of("z-image"))
    held = sum(2 * WEIGHTS[name][0] for name in ("z-image", "qwen3-4b", "vae"))
    assert plan.max_pictures == (80_975_233_024 - held) // (2 * 176_947_200)


def test_what_does_not_fit_says_how_much_is_missing() -> None:
    plan = make_plan(gpu(4, ram=8, compute=(7, 5)), "lowvram", demand_of("flux-2"))
    assert not plan.fits
    assert "GB" in plan.reasons[-1]
    assert "can be used" in plan.reasons[-1]
