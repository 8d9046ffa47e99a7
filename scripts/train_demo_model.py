"""Train, export or check the tiny Z-Image demo model that the package brings along.

Everything is drawn, trained and checked on a CPU, with seeds, inside a wall-clock budget:

    python scripts/train_demo_model.py --work DIR --minutes 85      train (--resume goes on)
    python scripts/train_demo_model.py --work DIR --sharpen         only its last stage again
    python scripts/train_demo_model.py --work DIR --export          write the model's files
    python scripts/train_demo_model.py --work DIR --check           paint held-out captions
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch
from demo_model import (
    autoencoder,
    binding,
    captions,
    drawing,
    export,
    network,
    pipeline,
    prompts,
    training,
)
from demo_model.budget import log, save_whole
from diffusers import AutoencoderKL

DEFAULT_OUT: Final = Path(__file__).resolve().parent.parent / "inline_core" / "demo"
VAE_SHARE: Final = 0.16
LATENT_MINUTES: Final = 4.0
SHARPEN_MINUTES: Final = 6.0
MIN_READ: Final = 0.98
FOLD_PICTURES: Final = 64


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--work", type=Path, default=Path("demo-train"), help="checkpoints, logs")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="where the model's files go")
    parser.add_argument("--minutes", type=float, default=85.0, help="wall-clock budget in all")
    parser.add_argument("--seed", type=int, default=20240, help="seed of data and weights")
    parser.add_argument("--drawings", type=int, default=3, help="drawings of each scene")
    parser.add_argument("--workers", type=int, default=2, help="processes of one thread each")
    parser.add_argument("--batch", type=int, default=8, help="pictures a step, in each worker")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoints")
    parser.add_argument(
        "--sharpen", action="store_true", help="only train the decoder a little more"
    )
    parser.add_argument("--export", action="store_true", help="only write the model's files")
    parser.add_argument("--check", action="store_true", help="only check the files in --out")
    parser.add_argument("--count", type=int, default=60, help="held-out captions to check")
    return parser.parse_args(arguments)


def get_autoencoder(options: argparse.Namespace) -> AutoencoderKL:
    """Return the folded autoencoder, trained now unless a finished one can be taken."""
    path = options.work / "vae.pt"
    done = path.exists() and torch.load(path, weights_only=True)["done"]
    if not (options.resume and done):
        autoencoder.train(options.minutes * VAE_SHARE, options.seed, path)
    plain = autoencoder.load(path)
    rng = random.Random(options.seed + 1)
    scenes = rng.sample(captions.all_scenes(held_out=False), FOLD_PICTURES)
    pictures = autoencoder.to_tensor(drawing.draw_scene(scene, rng) for scene in scenes)
    folded = copy.deepcopy(plain)
    autoencoder.fold(folded, pictures)
    difference = autoencoder.check_fold(plain, folded, pictures)
    if difference > 1e-3:
        raise RuntimeError(f"folding changed the autoencoder by {difference}")
    log(f"vae folded, difference {difference:.1e}")
    return folded


def get_latents(options: argparse.Namespace, vae: AutoencoderKL) -> torch.Tensor:
    """Return normalised latents (drawings * scenes, 16, 16, 16) float16, made now or before."""
    path = options.work / "latents.pt"
    if options.resume and path.exists():
        latents: torch.Tensor = torch.load(path, weights_only=True)["latents"]
        return latents
    scenes = captions.all_scenes(held_out=False) * options.drawings
    latents = autoencoder.encode_scenes(vae, scenes, options.seed + 2)  # (N, 16, 16, 16)
    save_whole(path, {"latents": latents})
    log(
        f"latents {tuple(latents.shape)} mean {latents.float().mean():.3f} "
        f"deviation {latents.float().std():.3f}"
    )
    return latents


def get_text(options: argparse.Namespace) -> None:
    """Save a text encoder that reads captions, unless there is one already."""
    path = options.work / "text.pt"
    if options.resume and path.exists():
        return
    torch.manual_seed(options.seed)
    tokenizer = prompts.build(options.seed)
    encoder = network.build_text_encoder(len(tokenizer), tokenizer.pad_token_id)
    right = binding.teach(encoder, tokenizer, options.seed)
    if right < MIN_READ:
        raise RuntimeError(f"the text encoder reads only {right:.2f} of the captions' words")
    save_whole(path, {"text": encoder.state_dict()})


def train(options: argparse.Namespace) -> None:
    """Train the autoencoder, then the transformer with its text encoder."""
    vae = get_autoencoder(options)
    get_latents(options, vae)
    vae.save_pretrained(options.work / "vae")
    minutes = options.minutes * (1.0 - VAE_SHARE) - LATENT_MINUTES - SHARPEN_MINUTES
    get_text(options)
    settings = training.Settings(minutes, options.seed, options.batch, workers=options.workers)
    training.launch(settings, options.work, options.resume)
    sharpen(options)


def sharpen(options: argparse.Namespace) -> None:
    """Train the decoder for its last minutes and keep the result beside the first one."""
    vae = read_autoencoder(options.work / "vae")
    autoencoder.sharpen(vae, SHARPEN_MINUTES, options.seed + 3)
    vae.save_pretrained(options.work / "vae-sharp")


def read_autoencoder(folder: Path) -> AutoencoderKL:
    """Return a saved autoencoder."""
    model: AutoencoderKL = AutoencoderKL.from_pretrained(folder, local_files_only=True)
    return model


def write_files(options: argparse.Namespace) -> None:
    """Write the model's files from the checkpoints, and prove that they read back equal."""
    state: dict[str, Any] = torch.load(options.work / "painter.pt", weights_only=True)
    tokenizer = prompts.build(options.seed)
    painter = training.load_average(state, tokenizer)
    sharp = options.work / "vae-sharp"
    vae = read_autoencoder(sharp if sharp.exists() else options.work / "vae")
    size = export.write(options.out, painter.transformer, painter.text, tokenizer, vae)
    log(f"step {state['step']} written to {options.out}, {size / 1e6:.2f} MB")


def check(options: argparse.Namespace) -> None:
    """Paint held-out captions with ZImagePipeline, and write figures and a contact sheet."""
    figures, sheet = pipeline.check(options.out, options.count)
    options.work.mkdir(parents=True, exist_ok=True)
    sheet.save(options.work / "check.png")
    (options.work / "check.json").write_text(json.dumps(figures, indent=2) + "\n")
    log(json.dumps(figures))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    options = parse(arguments)
    torch.set_num_threads(1)
    if options.sharpen:
        sharpen(options)
    if options.export:
        write_files(options)
    if options.check:
        check(options)
    if not (options.sharpen or options.export or options.check):
        train(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
