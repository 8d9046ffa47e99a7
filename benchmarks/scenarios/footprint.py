"""Memory of the work beside the weights: what is predicted over what a forward pass takes.

A measurement runs in a process of its own: `python -m benchmarks.scenarios.footprint WHAT JSON`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Final

from benchmarks.measure import Result
from benchmarks.subject import ROOT

# Real widths; one block stands for all, since blocks run one after the other.
WIDTH: Final = 3840
TEXT_WIDTH: Final = 2560
TEXT_LAYERS: Final = 8
TEXT_TOKENS: Final = 512
LARGEST: Final = 2.0
QUICK: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("denoise", {"side": 256, "dtype": "float32"}),
    ("decode", {"side": 256}),
    ("text", {"dtype": "float32"}),
)
FULL: Final = (
    *QUICK,
    ("denoise", {"side": 256, "dtype": "bfloat16"}),
    ("denoise", {"side": 512, "dtype": "float32"}),
    ("denoise", {"side": 256, "dtype": "float32", "pictures": 2}),
    ("decode", {"side": 512}),
    ("decode", {"side": 576, "tiled": True}),
    ("encode", {"side": 512}),
)


def footprint(*, quick: bool) -> list[Result]:
    """Predicted over measured: never below 1 (it would not fit) nor above 2 (room is wasted)."""
    results = []
    for what, options in QUICK if quick else FULL:
        found = measure(what, options)
        words = ", ".join(str(value) for value in options.values())
        for name, better, gate in (("at least", "higher", 1.0), ("at most", "lower", LARGEST)):
            results.append(
                Result(
                    f"{what} ({words}): {name}",
                    "MB",
                    better,  # type: ignore[arg-type]
                    us=[found["predicted"] / 1e6],
                    limit=[found["measured"] / 1e6],
                    gate=gate,
                    note="limit: measured peak",
                )
            )
    return results


def measure(what: str, options: dict[str, Any]) -> dict[str, float]:
    """`predicted` and `measured` bytes of one kind of work, in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.scenarios.footprint", what, json.dumps(options)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


# ---- in the measuring process ------------------------------------------------------------------


def _denoise(*, side: int, dtype: str, pictures: int = 1) -> tuple[Callable[[], object], int]:
    """One pass of a block of Z-Image's width."""
    import torch
    from diffusers import ZImageTransformer2DModel

    from inline_core.devices.placement import BYTES_PER_VALUE
    from inline_core.families.z_image.denoise import ZImageDenoiser
    from inline_core.families.z_image.family import workload
    from inline_core.families.z_image.text import EncodedPrompt
    from inline_core.sampling.family import PassSize

    form = getattr(torch, dtype)
    with torch.device("meta"):
        model = ZImageTransformer2DModel(dim=WIDTH, n_layers=1, n_refiner_layers=0)
    denoiser = ZImageDenoiser(_filled(model, form))
    latents = torch.randn(pictures, 16, side // 8, side // 8)  # (pictures, c, h, w)
    prompt = EncodedPrompt(torch.randn(TEXT_TOKENS, TEXT_WIDTH))
    sigmas = torch.full((pictures,), 0.5)
    geometry = {"dim": WIDTH, "cap_feat_dim": TEXT_WIDTH}
    values = workload(PassSize(geometry, side, side, pictures)).denoise_values
    return (
        lambda: denoiser.predict(latents, sigmas, [prompt] * pictures),
        values * BYTES_PER_VALUE[dtype],
    )


def _vae(
    *, side: int, tiled: bool = False, encode: bool = False
) -> tuple[Callable[[], object], int]:
    """The VAE of FLUX.1 and Z-Image in its real size, in float32 as on a processor."""
    import torch
    from diffusers import AutoencoderKL

    from inline_core.families.autoencoders.kl import VaeRuntime
    from inline_core.families.autoencoders.kl_spaces import FLUX as FLUX_SPACE
    from inline_core.sampling.footprint import decode_values, tiled_decode_values

    with torch.device("meta"):
        model = AutoencoderKL(
            block_out_channels=(128, 256, 512, 512),
            down_block_types=("DownEncoderBlock2D",) * 4,
            up_block_types=("UpDecoderBlock2D",) * 4,
            layers_per_block=2,
            latent_channels=16,
            use_quant_conv=False,
            use_post_quant_conv=False,
            scaling_factor=FLUX_SPACE.scaling,
            shift_factor=FLUX_SPACE.shift,
        )
    runtime = VaeRuntime(_filled(model, torch.float32), FLUX_SPACE)
    predict = tiled_decode_values if tiled else decode_values
    if encode:
        pixels = torch.zeros(1, 3, side, side)
        return lambda: runtime.encode_raw(pixels), 4 * predict(side, side)
    latents = torch.randn(1, 16, side // 8, side // 8)  # (1, c, h, w)
    return lambda: runtime.decode(latents, tiled=tiled), 4 * predict(side, side)


def _text(*, dtype: str, layers: int = TEXT_LAYERS) -> tuple[Callable[[], object], int]:
    """A prompt of full length through layers of Qwen3 4B's width."""
    import torch
    from transformers import Qwen3Config, Qwen3Model
    from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

    from inline_core.devices.placement import BYTES_PER_VALUE
    from inline_core.families.text_encoders.loaded import TextEncoder
    from inline_core.families.z_image.text import encode_prompt
    from inline_core.loading.interruption import Interruption
    from inline_core.sampling.footprint import encoder_values
    from tests import tiny

    config = Qwen3Config(
        vocab_size=272,
        hidden_size=TEXT_WIDTH,
        intermediate_size=9728,
        num_hidden_layers=layers,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
    )
    with torch.device("meta"):
        model = Qwen3Model(config)
    model.rotary_emb = Qwen3RotaryEmbedding(config=config)
    filled = _filled(model, getattr(torch, dtype))
    encoder = TextEncoder(filled, tiny.tokenizer(), "cpu", Interruption(filled.layers))
    values = encoder_values(TEXT_TOKENS, TEXT_WIDTH, layers)
    return (
        lambda: encode_prompt(encoder, "a red circle " * TEXT_TOKENS),
        values * BYTES_PER_VALUE[dtype],
    )


def _filled(model: Any, dtype: Any) -> Any:
    """Random weights with a repeated pattern: drawing all of them takes longer than the pass."""
    import torch

    pattern = (torch.randn(1 << 20) * 0.02).to(dtype)
    for name, parameter in list(model.named_parameters()):
        owner, _, leaf = name.rpartition(".")
        room = torch.empty(parameter.shape, dtype=dtype)
        flat = room.view(-1)
        for start in range(0, flat.numel(), pattern.numel()):
            part = flat[start : start + pattern.numel()]
            part.copy_(pattern[: part.numel()])
        weight = torch.nn.Parameter(room, requires_grad=False)
        model.get_submodule(owner).register_parameter(leaf, weight)
    return model.eval()


WORK: Final[dict[str, Callable[..., tuple[Callable[[], object], int]]]] = {
    "denoise": _denoise,
    "decode": _vae,
    "encode": lambda **options: _vae(**options, encode=True),
    "text": _text,
}


def main() -> None:
    """Do one kind of work and print its peak."""
    import torch

    from benchmarks.load_subject import peaks
    from inline_core.devices.release import tune_allocator

    torch.set_num_threads(1)
    tune_allocator()
    with torch.inference_mode():
        work, predicted = WORK[sys.argv[1]](**json.loads(sys.argv[2]))
        with peaks() as most:
            work()
    print(json.dumps({"predicted": predicted, "measured": most.anonymous}))


if __name__ == "__main__":
    main()
