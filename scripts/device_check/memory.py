"""Section c: peaks of text encoding and decoding against what `sampling.footprint` predicts."""

from __future__ import annotations

from functools import partial
from typing import Final

import torch

from device_check.bench import Bench, tidy
from device_check.report import Row
from inline_core.devices.budget import CONTEXT_BYTES
from inline_core.devices.ladder import place_vae, preferred_dtype
from inline_core.devices.placement import BYTES_PER_VALUE
from inline_core.families.autoencoders.kl import load_vae
from inline_core.families.autoencoders.kl_spaces import FLUX as FLUX_SPACE
from inline_core.families.text_encoders.qwen3 import load_text_encoder, load_tokenizer
from inline_core.families.z_image.text import encode_prompt
from inline_core.sampling.footprint import decode_values, encoder_values, tiled_decode_values

NAME: Final = "c memory"
_TOKENS: Final = 512


def memory(bench: Bench) -> None:
    """The denoising step is in section b; here are the other two phases, and the context."""
    with tidy(bench):
        _text(bench)
    bench.deadline.check(3.0)
    with tidy(bench):
        _decode(bench)
    # Last, when the kernels of all of them are loaded.
    used = bench.device.used_by_driver()
    row = Row(
        NAME,
        "context and kernels (and other programs), against what is set aside",
        None if used is None else used / 1e6,
        "MB",
        CONTEXT_BYTES[bench.device.kind] / 1e6,
        at_most=1.0,
    )
    bench.report.add(row)


def _text(bench: Bench) -> None:
    """A prompt that is cut at the full length."""
    opened = bench.opened(bench.files.text)
    dtype, _ = preferred_dtype(bench.device.machine, opened.weights)
    plan = bench.load_plan(bench.files.text, bench.placement(dtype))
    folder = bench.files.text.parent / f"{bench.files.text.stem}.tokenizer"
    encoder = load_text_encoder(plan, load_tokenizer(folder, plan.label))
    size = opened.identity.geometry
    values = encoder_values(_TOKENS, size["hidden_size"], size["n_layers"])
    prompt = "a red circle on a white background " * _TOKENS
    encode_prompt(encoder, prompt)  # kernels are loaded
    with bench.device.peak() as peak:
        took = bench.device.seconds(lambda: encode_prompt(encoder, prompt))
    layers = f"{size['n_layers']} layers"
    bench.report.add(Row(NAME, f"text encode of {_TOKENS} tokens", took, "s", note=layers))
    bench.add_peak(NAME, f"text encode, {layers}", values * BYTES_PER_VALUE[dtype], peak)


def _decode(bench: Bench) -> None:
    """Whole and in tiles, at both sizes, and encoding a picture."""
    opened = bench.opened(bench.files.vae)
    placement = place_vae(bench.device.machine, opened.weights)
    width = BYTES_PER_VALUE[placement.dtype]
    vae = load_vae(bench.load_plan(bench.files.vae, placement), FLUX_SPACE)
    problems = []
    for side in (bench.side, bench.large):
        latents = torch.randn((1, 16, side // 8, side // 8))  # (1, c, h, w)
        for tiled, predict in ((False, decode_values), (True, tiled_decode_values)):
            what = f"decode {side} {'in tiles' if tiled else 'whole'}"
            bench.deadline.check(1.0)
            try:
                with bench.device.peak() as peak:
                    took = bench.device.seconds(partial(vae.decode_raw, latents, tiled=tiled))
            except RuntimeError as error:
                problems.append(f"{what}: {error}")
                continue
            bench.report.add(Row(NAME, what, took, "s", note=placement.dtype))
            bench.add_peak(NAME, what, predict(side, side) * width, peak)
    pixels = torch.zeros((1, 3, bench.side, bench.side))  # (1, 3, height, width)
    with bench.device.peak() as peak:
        vae.encode_raw(pixels)
    bench.add_peak(
        NAME, f"encode {bench.side}", decode_values(bench.side, bench.side) * width, peak
    )
    if problems:
        raise RuntimeError("; ".join(problems))
