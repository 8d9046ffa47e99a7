"""Trains the transformer on latents made beforehand; the text encoder has learnt by then."""

from __future__ import annotations

import itertools
import multiprocessing
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist
from diffusers import AutoencoderKL
from torch import nn
from transformers import Qwen2Tokenizer

from . import autoencoder, checker, network, prompts
from .budget import WallClock, log, save_whole
from .captions import all_scenes, plain_caption
from .drawing import Pixels
from .hints import Hints
from .optimiser import Muon

SCHEDULE_SHIFT: Final = 3.0
SCHEDULE_SHARE: Final = 0.9
LEAST_STEP: Final = 0.08
MUON_RATE: Final = 0.02
ADAM_RATE: Final = 2e-3
CAPTION_DROPOUT: Final = 0.07
AVERAGE_KEEP: Final = 0.998
SAVE_SECONDS: Final = 150.0
LOOK_SECONDS: Final = 420.0
PHRASINGS: Final = 8
HINT_WEIGHT: Final = 0.5


class Painter(nn.Module):
    """The text encoder, which stays as it is here, and the transformer.

    :param tokenizer: the demo's tokenizer; it gives the vocabulary's size.
    :param width: the transformer's width, a multiple of 32.
    :param layers: the transformer's main layers.
    """

    def __init__(self, tokenizer: Qwen2Tokenizer, width: int, layers: int) -> None:
        super().__init__()
        self.transformer = network.build_transformer(width, layers)
        self.text = network.build_text_encoder(len(tokenizer), tokenizer.pad_token_id)
        self.turns = network.rotations(self.transformer)

    def forward(
        self, tokens: torch.Tensor, sigma: torch.Tensor, ids: torch.Tensor, mask: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the predicted picture-minus-noise for noisy tokens, and inner image tokens.

        The first is (B, 64, 64) as the noisy tokens are, the second (B, 64, D).

        :param sigma: (B,) share of noise, 0..1.
        :param ids: (B, 32) caption tokens; `mask` (B, 32) is true for the real ones.
        """
        with torch.no_grad():
            states = network.text_states(self.text, ids)  # (B, 32, 128)
        return network.predict(
            self.transformer, self.turns, tokens, 1.0 - sigma, states, mask
        )  # (B, 64, 64), (B, 64, D)


@dataclass(frozen=True)
class Settings:
    """What a training run may vary."""

    minutes: float
    seed: int
    batch: int = 8
    workers: int = 2
    width: int = network.WIDTH
    layers: int = network.LAYERS


def draw_sigmas(count: int) -> torch.Tensor:
    """Return (count,) shares of noise: most as the 8-step schedule has them, some even over 0..1.

    The schedule's last step starts at 0.3, so hardly any are lower. They are stratified, so that
    each batch covers the whole range.
    """
    even = (torch.arange(count) + torch.rand(count)) / count  # (count,)
    high = LEAST_STEP + (1.0 - LEAST_STEP) * even  # (count,)
    shifted = SCHEDULE_SHIFT * high / (1.0 + (SCHEDULE_SHIFT - 1.0) * high)  # (count,)
    return torch.where(torch.rand(count) < SCHEDULE_SHARE, shifted, even).clamp(0.001, 1.0)


@torch.no_grad()
def paint(
    painter: Painter, tokenizer: Qwen2Tokenizer, captions: list[str], seed: int, steps: int = 8
) -> torch.Tensor:
    """Return normalised latents (B, 16, 16, 16) made in Euler steps, without guidance."""
    ids, mask = prompts.encode(tokenizer, captions)  # (B, 32), (B, 32)
    source = torch.Generator().manual_seed(seed)
    tokens = torch.randn(len(captions), 64, 64, generator=source)  # (B, 64, 64)
    even = torch.linspace(1.0, 1.0 / steps, steps)  # (steps,)
    sigmas = SCHEDULE_SHIFT * even / (1.0 + (SCHEDULE_SHIFT - 1.0) * even)  # (steps,)
    ends = [*sigmas.tolist()[1:], 0.0]
    for start, end in zip(sigmas.tolist(), ends, strict=True):
        sigma = torch.full((len(captions),), start)  # (B,)
        output, _ = painter(tokens, sigma, ids, mask)  # (B, 64, 64)
        tokens = tokens + (start - end) * output  # (B, 64, 64)
    return network.unpatchify(tokens)  # (B, 16, 16, 16)


@torch.no_grad()
def to_pixels(vae: AutoencoderKL, latents: torch.Tensor) -> list[Pixels]:
    """Return pictures (128, 128, 3) uint8 of normalised latents (B, 16, 16, 16)."""
    raw = latents.float() / autoencoder.SCALING + autoencoder.SHIFT  # (B, 16, 16, 16)
    output = vae.decode(raw).sample.clamp(-1, 1)  # (B, 3, 128, 128)
    stack = ((output + 1.0) * 127.5).round().byte().permute(0, 2, 3, 1)  # (B, 128, 128, 3)
    return [np.asarray(picture) for picture in stack.numpy()]


class Trainer:
    """One training run with its weights, averages, optimisers and clock.

    Each worker holds all of it and the same weights; they only share their gradients.

    :param latents: (N, 16, 16, 16) float16, normalised; picture i shows scene i % len(scenes).
    :param rank: 0 for the worker that also saves and looks.
    """

    def __init__(
        self,
        settings: Settings,
        tokenizer: Qwen2Tokenizer,
        vae: AutoencoderKL,
        latents: torch.Tensor,
        rank: int,
    ) -> None:
        torch.manual_seed(settings.seed)
        self._settings, self._tokenizer, self._vae, self._rank = settings, tokenizer, vae, rank
        self._tokens = network.patchify(latents)  # (N, 64, 64) float16
        scenes = all_scenes(held_out=False)
        self._scenes = len(scenes)
        self._book = prompts.CaptionBook(tokenizer, scenes, PHRASINGS, settings.seed)
        self.painter = Painter(tokenizer, settings.width, settings.layers)
        self.average = Painter(tokenizer, settings.width, settings.layers)
        self.average.load_state_dict(self.painter.state_dict())
        self._hints = Hints(settings.width, scenes)
        matrices, others = _split(self.painter)
        others += self._hints.parameters()
        self._trained = [*matrices, *others]
        self._muon = Muon(matrices, MUON_RATE, rank, settings.workers)
        self._adam = torch.optim.AdamW(others, lr=ADAM_RATE, betas=(0.9, 0.98), weight_decay=0.0)
        self._clock = WallClock(settings.minutes)
        self.step = 0
        torch.manual_seed(settings.seed + 1000 * rank)

    def resume(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint's state, with the rest of its budget."""
        self.painter.load_state_dict(state["painter"])
        self.average.load_state_dict(state["average"])
        self._hints.load_state_dict(state["hints"])
        self._muon.load_state_dict(state["muon"])
        self._adam.load_state_dict(state["adam"])
        self._clock = WallClock(self._settings.minutes, state["used"])
        self.step = state["step"]
        torch.manual_seed(self._settings.seed + self.step + 1000 * self._rank)

    def take_text(self, weights: dict[str, torch.Tensor]) -> None:
        """Start with a text encoder that has learnt to read captions."""
        self.painter.text.load_state_dict(weights)
        self.average.text.load_state_dict(weights)

    def state(self, done: bool) -> dict[str, Any]:
        """Return everything a checkpoint needs."""
        return {
            "painter": self.painter.state_dict(),
            "average": self.average.state_dict(),
            "hints": self._hints.state_dict(),
            "muon": self._muon.state_dict(),
            "adam": self._adam.state_dict(),
            "used": self._clock.used(),
            "step": self.step,
            "width": self._settings.width,
            "layers": self._settings.layers,
            "done": done,
        }

    def run(self, checkpoint: Path) -> None:
        """Train until the budget is spent, saving and looking at pictures on the way."""
        losses: list[list[float]] = []
        progress, saved, looked = 0.0, self._clock.used(), self._clock.used()
        while progress < 1.0:
            means, progress = self._train_step()
            losses.append(means)
            if self._rank != 0:
                continue
            if self.step % 50 == 0:
                loss, hint = np.mean(losses, axis=0)
                log(f"step {self.step} {100 * progress:.1f}% loss {loss:.4f} hint {hint:.4f}")
                losses.clear()
            if self._clock.used() - saved > SAVE_SECONDS:
                save_whole(checkpoint, self.state(done=False))
                saved = self._clock.used()
            if self._clock.used() - looked > LOOK_SECONDS:
                self.look(24, checkpoint.with_suffix(".png"))
                looked = self._clock.used()
        if self._rank == 0:
            save_whole(checkpoint, self.state(done=True))
            self.look(60, checkpoint.with_suffix(".png"))

    def _train_step(self) -> tuple[list[float], float]:
        """Make one step; return its losses and the budget's used share, 0..1, as rank 0 sees it."""
        count = self._settings.batch
        picks = torch.randint(len(self._tokens), (count,))  # (B,)
        ids, mask = self._book.look_up(picks % self._scenes, CAPTION_DROPOUT)  # (B, 32) each
        clean = self._tokens[picks].float()  # (B, 64, 64)
        noise = torch.randn_like(clean)  # (B, 64, 64)
        sigma = draw_sigmas(count)  # (B,)
        share = sigma[:, None, None]  # (B, 1, 1)
        noisy = clean + share * (noise - clean)  # (B, 64, 64)
        output, inner = self.painter(noisy, sigma, ids, mask)  # (B, 64, 64), (B, 64, D)
        loss = (output - (clean - noise)).square().mean()  # ()
        said = ids.ne(self._book.empty).any(1)  # (B,)
        hint = self._hints(inner, picks % self._scenes, said)  # ()
        self._muon.zero_grad(set_to_none=True)
        self._adam.zero_grad(set_to_none=True)
        weight = HINT_WEIGHT * (1.0 - self._clock.progress())
        torch.autograd.backward(loss + weight * hint)
        means, progress, rate = self._share([loss.item(), hint.item()])
        torch.nn.utils.clip_grad_norm_(self._trained, 1.0)
        for optimiser, peak in ((self._muon, MUON_RATE), (self._adam, ADAM_RATE)):
            for group in optimiser.param_groups:
                group["lr"] = peak * rate
            optimiser.step()
        self.step += 1
        self._follow()
        return means, progress

    def _share(self, losses: list[float]) -> tuple[list[float], float, float]:
        """Average the workers' gradients; return mean losses, rank 0's progress and its rate."""
        workers = self._settings.workers
        mine = [self._clock.progress(), self._clock.rate()] if self._rank == 0 else [0.0, 0.0]
        if workers == 1:
            return losses, mine[0], mine[1]
        gradients = [p.grad for p in self._trained if p.grad is not None]
        extra = torch.tensor([*(loss / workers for loss in losses), *mine])  # (4,)
        flat = torch.cat([*(g.flatten() / workers for g in gradients), extra])  # (P + 4,)
        dist.all_reduce(flat)
        parts = torch.split(flat[:-4], [g.numel() for g in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))
        *means, progress, rate = flat[-4:].tolist()
        return means, progress, rate

    @torch.no_grad()
    def _follow(self) -> None:
        """Move the averaged weights toward the trained ones."""
        keep = min(AVERAGE_KEEP, (1 + self.step) / (10 + self.step))
        torch._foreach_lerp_(
            list(self.average.parameters()), list(self.painter.parameters()), 1.0 - keep
        )

    def look(self, count: int, sheet: Path) -> None:
        """Log the checker's figures for held-out captions, and save their pictures."""
        scenes = checker.held_out_scenes(count)
        captions = [plain_caption(scene) for scene in scenes]
        latents = paint(self.average, self._tokenizer, captions, seed=1)  # (B, 16, 16, 16)
        pictures = to_pixels(self._vae, latents)
        figures = checker.score(pictures, scenes)
        log("look " + " ".join(f"{name} {value:.2f}" for name, value in figures.items()))
        checker.contact_sheet(pictures).save(sheet)


def _split(painter: Painter) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Return the transformer's hidden matrices, for Muon, and its other parameters."""
    blocks = itertools.chain(
        painter.transformer.layers,
        painter.transformer.noise_refiner,
        painter.transformer.context_refiner,
    )
    matrices = [
        parameter
        for block in blocks
        for name, parameter in block.named_parameters()
        if parameter.ndim == 2 and "adaLN" not in name
    ]
    chosen = {id(parameter) for parameter in matrices}
    others = [p for p in painter.transformer.parameters() if id(p) not in chosen]
    return matrices, others


def load_average(state: dict[str, Any], tokenizer: Qwen2Tokenizer) -> Painter:
    """Return the averaged networks of a checkpoint's state."""
    painter = Painter(tokenizer, state["width"], state["layers"])
    painter.load_state_dict(state["average"])
    return painter.eval()


def _work(rank: int, settings: Settings, folder: Path, resume: bool, meeting: str) -> None:
    """Run one worker: the process number `rank` of `settings.workers`."""
    torch.set_num_threads(1)
    if settings.workers > 1:
        dist.init_process_group(
            "gloo", init_method=f"file://{meeting}", rank=rank, world_size=settings.workers
        )
    tokenizer = prompts.build(settings.seed)
    vae = AutoencoderKL.from_pretrained(folder / "vae", local_files_only=True).eval()
    latents = torch.load(folder / "latents.pt", weights_only=True)["latents"]
    trainer = Trainer(settings, tokenizer, vae, latents, rank)
    checkpoint = folder / "painter.pt"
    if resume and checkpoint.exists():
        trainer.resume(torch.load(checkpoint, weights_only=True))
    else:
        trainer.take_text(torch.load(folder / "text.pt", weights_only=True)["text"])
    trainer.run(checkpoint)
    if settings.workers > 1:
        dist.destroy_process_group()


def launch(settings: Settings, folder: Path, resume: bool) -> None:
    """Train in `settings.workers` processes of one thread each, and wait for them.

    Two processes that meet once a step bear a busy machine; two threads that meet in every
    operation do not (measured: 60 pictures/s alone, 7 beside one other process).

    :param folder: holds `vae/`, `latents.pt` and `text.pt`; `painter.pt` is written there.
    """
    if settings.workers == 1:
        _work(0, settings, folder, resume, "")
        return
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as meeting:
        workers = [
            context.Process(
                target=_work, args=(rank, settings, folder, resume, f"{meeting}/meeting")
            )
            for rank in range(settings.workers)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    if any(worker.exitcode for worker in workers):
        raise RuntimeError("a training process failed; its own lines say why")
