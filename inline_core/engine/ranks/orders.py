"""What the leading rank tells the others: over a gloo group of its own, whatever the device."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from inline_core.engine.ranks.link import Link
from inline_core.sampling.backends.parallel.codec import pack, unpack

# An idle group waits here for its next job; a stalled one is noticed by the server.
_PATIENCE: Final = timedelta(days=365)
_VERDICT_BYTES: Final = 4096


class Orders:
    """Messages from the leader to all other ranks, in order.  One thread of each rank only.

    Where the others cannot be reached any more, the process ends and the server is told.
    """

    def __init__(self, leader: int, link: Link) -> None:
        """Every rank makes one at the same time."""
        self._leader = leader
        self._link = link
        self._group = dist.new_group(backend="gloo", timeout=_PATIENCE)

    def give(self, order: dict[str, Any]) -> None:
        """Tell all others; tensors in it travel through the memory of the host."""
        body, blobs = pack(order)
        sizes = [len(body), *(blob.nbytes for blob in blobs)]
        whole = np.concatenate([np.frombuffer(body, np.uint8), *blobs])
        head = torch.tensor([len(sizes), len(whole)], dtype=torch.int64)
        with self._together("giving an order"):
            dist.broadcast(head, self._leader, group=self._group)
            dist.broadcast(torch.tensor(sizes, dtype=torch.int64), self._leader, group=self._group)
            dist.broadcast(torch.from_numpy(whole), self._leader, group=self._group)

    def take(self) -> dict[str, Any]:
        """Wait for the next order."""
        head = torch.empty(2, dtype=torch.int64)
        with self._together("waiting for an order"):
            dist.broadcast(head, self._leader, group=self._group)
            sizes = torch.empty(int(head[0]), dtype=torch.int64)
            dist.broadcast(sizes, self._leader, group=self._group)
            whole = torch.empty(int(head[1]), dtype=torch.uint8)
            dist.broadcast(whole, self._leader, group=self._group)
        parts = [part.numpy() for part in torch.split(whole, sizes.tolist())]
        # Copied, as tensors want to be aligned.
        order: dict[str, Any] = unpack(parts[0].tobytes(), [part.copy() for part in parts[1:]])
        return order

    def share(self, tensor: Tensor) -> None:
        """Give all ranks the leader's tensor, on the device."""
        with self._together("sharing latents"):
            dist.broadcast(tensor, self._leader)

    def agree(self, problem: dict[str, str] | None) -> list[dict[str, str] | None]:
        """What each rank has to say, by rank; every rank calls it at the same time."""
        text = json.dumps(problem).encode()[:_VERDICT_BYTES]
        if len(text) == _VERDICT_BYTES:
            text = json.dumps({"code": "internal", "message": "an error of many words"}).encode()
        mine = torch.zeros(_VERDICT_BYTES, dtype=torch.uint8)
        mine[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        found = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        with self._together("loading a model"):
            dist.all_gather(found, mine, group=self._group)
        return [json.loads(item.numpy().tobytes().rstrip(b"\0")) for item in found]

    @contextmanager
    def _together(self, doing: str) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            # A job must not be blamed for it, and this rank is of no use alone.
            self._link.fail(error, doing)
