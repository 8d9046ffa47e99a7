"""PipeFusion with xDiT's layers: each rank holds a part of the blocks, the picture goes in pieces.

Jiannan Wang et al., arXiv:2405.14430.  While pieces of the picture pass through the stages one
after the other, attention takes the keys and values that the other pieces had in the step before.
xDiT splits the blocks and keeps the keys and values; what is sent from stage to stage is ours,
since xDiT's own pipeline brings its scheduler with it and sends in an order that only works where
sends are buffered.  Here each step ends at the last rank, so that solvers, guidance, batches and
cancelling are the same as without; its price is that stages wait for each other once a step.

A pass is computed whole, which is exact, for the first `warmup` passes of each row, and when other
rows than in the pass before share it: then what is kept is that of others.
"""

from __future__ import annotations

import importlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch
import torch.distributed as dist

from inline_core.devices.split import Split
from inline_core.errors import Internal
from inline_core.sampling.family import Row

if TYPE_CHECKING:
    from torch import Tensor

_ROWS_KNOWN: Final = 1024
# xDiT counts in pixels: a token of FLUX.1 is 16 of them wide and high.
_TOKEN_PIXELS: Final = 16
_MANY_STEPS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class _Stage:
    """Where this rank stands in its pipeline."""

    before: int | None
    after: int | None


class PipelinedNetwork:
    """Stands in for a FluxTransformer2DModel whose blocks lie on several ranks.

    Every rank makes the same calls; only the last stage has the result, the others give zeros.
    """

    note = ""

    def __init__(self, network: Any, split: Split) -> None:
        """`network` has the blocks of this rank, and `AbsentBlock`s for all others."""
        groups: Any = importlib.import_module("xfuser.core.distributed")
        layers: Any = importlib.import_module(
            "xfuser.model_executor.models.transformers.transformer_flux"
        )
        self.network = network
        self._split = split
        self._groups = groups
        self._state = groups.get_runtime_state()
        self._state._set_model_parameters(  # noqa: SLF001 - it has no other way to be told
            vae_scale_factor=_TOKEN_PIXELS,
            backbone_patch_size=1,
            backbone_inner_dim=network.inner_dim,
            backbone_in_channel=network.config.in_channels,
        )
        self._manager: Any = importlib.import_module(
            "xfuser.core.cache_manager.cache_manager"
        ).get_cache_manager()
        # What is kept is kept by layer: in a dictionary of this network, so that both go together.
        self._kept: dict[Any, Any] = {}
        self._manager.cache = self._kept
        self._wrapped = layers.xFuserFluxTransformer2DWrapper(network)
        pipe = groups.get_pp_group()
        self._stage = _Stage(
            None if pipe.rank_in_group == 0 else pipe.prev_rank,
            None if pipe.rank_in_group == pipe.world_size - 1 else pipe.next_rank,
        )
        self._passes: OrderedDict[object, int] = OrderedDict()
        self._before: tuple[object, ...] = ()
        self._whole = True

    def __getattr__(self, name: str) -> Any:
        """Everything else is the network's own."""
        return getattr(self.network, name)

    def expect(self, rows: Sequence[Row]) -> None:
        """Say which rows the next call is for, so that what is kept of others is not used."""
        keys: tuple[object, ...] = tuple(row.key for row in rows)
        fresh = any(key is None or self._passes.get(key, 0) < self._split.warmup for key in keys)
        self._whole = fresh or keys != self._before
        self._before = keys
        for key in keys:
            self._passes[key] = self._passes.pop(key, 0) + 1
        while len(self._passes) > _ROWS_KNOWN:
            self._passes.popitem(last=False)

    def __call__(self, **kwargs: Any) -> tuple[Tensor]:
        """The velocity (rows, tokens, channels) of a whole picture, on the last stage."""
        hidden = kwargs["hidden_states"]  # (rows, tokens, channels)
        places = kwargs["img_ids"]  # (tokens, 3)
        self._manager.cache = self._kept
        self._describe(hidden, kwargs["encoder_hidden_states"], places)
        pieces = self._pieces(hidden.shape[1])
        self._state.set_patched_mode(patch_mode=not self._whole)
        if self._whole:
            pieces = [torch.cat(pieces)]  # of all tokens of this rank, in order
        found, sent = [], []
        text = None
        for piece in pieces:
            text, output, waits = self._piece(hidden[:, piece], places[piece], text, kwargs)
            found.append(output)
            sent += waits
            self._state.next_patch()
        for waiting in sent:
            waiting.wait()
        self._state.set_patched_mode(patch_mode=False)
        if self._stage.after is not None:
            return (torch.zeros_like(hidden[..., : self.network.out_channels]),)
        return (self._gathered(torch.cat(found, dim=1), hidden.shape[1]),)

    def _describe(self, hidden: Tensor, text: Tensor, places: Tensor) -> None:
        """Tell xDiT the sizes, from which it knows what belongs to which piece."""
        height, width = (int(places[:, axis].max()) + 1 for axis in (1, 2))
        if height * width != hidden.shape[1]:
            message = "PipeFusion was given more than one picture"
            raise Internal(message)
        self._state.set_input_parameters(
            height=height * _TOKEN_PIXELS,
            width=width * _TOKEN_PIXELS,
            batch_size=hidden.shape[0],
            num_inference_steps=_MANY_STEPS,
            max_condition_sequence_length=text.shape[1],
            split_text_embed_in_sp=False,
        )

    def _pieces(self, tokens: int) -> list[Tensor]:
        """Indexes of this rank's tokens of each piece; with Ulysses, its part of each."""
        spans = self._state.pp_patches_token_start_end_idx_global
        everything = torch.arange(tokens)
        return [everything[first:end] for first, end in spans]

    def _piece(
        self, hidden: Tensor, places: Tensor, text: Tensor | None, kwargs: Mapping[str, Any]
    ) -> tuple[Tensor, Tensor, list[Any]]:
        """One piece through the blocks of this rank: the text for the next ones, what came out.

        The text goes with the first piece only.
        """
        prompt = kwargs["encoder_hidden_states"]  # (rows, text tokens, features)
        rows, width = hidden.shape[0], self.network.inner_dim
        first = text is None
        if self._stage.before is None:
            text = prompt
        else:
            hidden = hidden.new_empty((rows, hidden.shape[1], width))  # (rows, tokens, width)
            dist.recv(hidden, self._stage.before)
            if text is None:
                text = hidden.new_empty((rows, prompt.shape[1], width))  # (rows, text, width)
                dist.recv(text, self._stage.before)
        output, next_text = self._wrapped(
            hidden_states=hidden,
            encoder_hidden_states=text,
            pooled_projections=kwargs["pooled_projections"],
            timestep=kwargs["timestep"],
            img_ids=places,
            txt_ids=kwargs["txt_ids"],
            guidance=kwargs["guidance"],
            return_dict=False,
        )[0]
        waits = []
        if self._stage.after is not None:
            waits.append(_send(output, self._stage.after))
            if first:
                waits.append(_send(next_text, self._stage.after))
        return text, output, waits

    def _gathered(self, output: Tensor, tokens: int) -> Tensor:
        """The pieces of all ranks of the last stage in their order in the picture."""
        if self._split.sequence == 1:
            return output
        group = self._groups.get_sp_group()
        parts = group.all_gather(output, separate_tensors=True)
        bounds = self._state.pp_patches_token_start_idx_local
        pieces = [
            part[:, bounds[piece] : bounds[piece + 1]]
            for piece in range(len(bounds) - 1)
            for part in parts
        ]
        whole = torch.cat(pieces, dim=1)  # (rows, tokens, channels)
        assert whole.shape[1] == tokens
        return whole


def _send(tensor: Tensor, rank: int) -> Any:
    """Send without waiting; what comes back keeps the tensor until it is waited for."""
    kept = tensor.contiguous()
    return _Waiting(dist.isend(kept, rank), kept)


class _Waiting:
    def __init__(self, work: Any, tensor: Tensor) -> None:
        self._work = work
        self._tensor = tensor

    def wait(self) -> None:
        self._work.wait()
