"""How models are loaded and passes computed by all ranks: the leader's side and the others'."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

import torch
from torch import Tensor

from inline_core.devices.ladder import Plan
from inline_core.devices.placement import Placement
from inline_core.devices.split import Split
from inline_core.engine.ranks.link import Link
from inline_core.engine.ranks.orders import Orders
from inline_core.engine.ranks.policy import RankPolicy
from inline_core.errors import DoesNotFit, InlineError, error_of
from inline_core.families.splitting.backend import ParallelBackend
from inline_core.families.splitting.rows import DividedRows
from inline_core.loading.component import ComponentRef
from inline_core.loading.stream import LoadPlan
from inline_core.sampling.family import BatchDenoiser, Row
from inline_core.sampling.memory import as_out_of_memory

T = TypeVar("T")
_PROMPTS_KEPT: Final = 32  # several MiB each, on every device
MakeBackend = Callable[[Split], ParallelBackend]


class GroupSplitting:
    """Implements `Splitting` for every rank; `split` is that of the job that is prepared."""

    def __init__(
        self,
        orders: Orders,
        link: Link,
        policy: RankPolicy,
        make_backend: MakeBackend,
        forget: Callable[[], object],
    ) -> None:
        """`forget` drops every loaded model that is not in use."""
        self._forget = forget
        self._orders = orders
        self._link = link
        self._policy = policy
        self._make_backend = make_backend
        self._backends: dict[str, ParallelBackend] = {}
        self._numbers = itertools.count()
        self._prompts: OrderedDict[int, tuple[int, Any]] = OrderedDict()

    def use(self, split: Split | None) -> None:
        """What the next plans and models are divided by."""
        self._policy.in_use = split

    def backend(self, key: str) -> ParallelBackend:
        """The backend of a split; the first time all ranks have to ask at once.

        One that cannot join leaves the others waiting, so it is the end of the group.
        """
        if key not in self._backends:
            try:
                self._leave_others(key)
                backend = self._make_backend(Split.of_key(key))
                backend.join()
            except Exception as error:  # noqa: BLE001 - the border of a rank
                self._link.fail(error, f"joining for {key}")
            self._backends[key] = backend
        return self._backends[key]

    def _leave_others(self, key: str) -> None:
        """Make room for a split of xDiT, which has one set of groups in a process.

        The server asks for it only while no job runs.
        """
        split = Split.of_key(key)
        others = [
            (name, other)
            for name, other in self._backends.items()
            if split.backend == other.split.backend == "xdit"
        ]
        for name, other in others:
            self._forget()
            other.leave()
            del self._backends[name]

    # ---- Splitting -----------------------------------------------------------------------------

    def place(self, plan: Plan, model: ComponentRef) -> Plan:
        """See `Splitting.place`."""
        split = self._policy.in_use
        if split is None:
            return plan
        if plan.model.offload != "none":
            message = (
                f"{model.name} does not fit on each GPU of the group ({plan.reasons[0]}), and what "
                "is streamed cannot be split: leave INLINE_PARALLEL and --multi-gpu out"
            )
            raise DoesNotFit(message)
        if not split.exact and plan.model.quantization != "none":
            message = (
                f"{model.name} would be held as {plan.model.quantization}, and PipeFusion takes "
                "plain weights only: use ulysses in INLINE_PARALLEL, or more stages"
            )
            raise DoesNotFit(message)
        return replace(plan, model=replace(plan.model, parallel=split.key))

    def part(self, plan: LoadPlan) -> LoadPlan:
        """See `Splitting.part`."""
        key = plan.placement.parallel
        return replace(plan, stage=self._backends[key].stage) if key else plan

    def divide(self, denoiser: Any, placement: Placement) -> None:
        """See `Splitting.divide`."""
        if placement.parallel:
            backend = self._backends[placement.parallel]
            denoiser.replace_network(backend.divide(denoiser.module))

    def lead(
        self,
        model: ComponentRef,
        plan: Plan,
        leases: contextlib.ExitStack,
        load: Callable[[], tuple[Any, T]],
    ) -> tuple[Any, T]:
        """See `Splitting.lead`."""
        key = plan.model.parallel
        if not key:
            return load()
        number = next(self._numbers)
        self._orders.give({"do": "load", "number": number, "model": model, "plan": plan})
        leases.callback(lambda: self._orders.give({"do": "release", "number": number}))
        try:
            self.backend(key)
            denoiser, facts = load()
        except BaseException as error:
            self._orders.agree(verdict(error))
            raise
        self._raise_for(self._orders.agree(None))
        rows = DividedRows(denoiser, Split.of_key(key), model.family)
        return LedDenoiser(rows, number, self._orders, self._link, self._reference), facts

    def _raise_for(self, verdicts: Sequence[Mapping[str, str] | None]) -> None:
        for rank, problem in enumerate(verdicts):
            if problem is not None:
                raise error_of(problem["code"], f"rank {rank}: {problem['message']}")

    def _reference(self, prompts: Sequence[Any]) -> tuple[list[int], dict[int, Any], list[int]]:
        """Numbers of encoded prompts, those the others do not have yet, and what they may drop."""
        numbers, new = [], {}
        for prompt in prompts:
            known = self._prompts.get(id(prompt))
            if known is None:
                known = self._prompts[id(prompt)] = (next(self._numbers), prompt)
                new[known[0]] = prompt
            self._prompts.move_to_end(id(prompt))
            numbers.append(known[0])
        dropped = []
        while len(self._prompts) > max(_PROMPTS_KEPT, len(prompts)):
            dropped.append(self._prompts.popitem(last=False)[1][0])
        return numbers, new, dropped


class LedDenoiser:
    """Implements `BatchDenoiser` of the leader: each pass is computed by all ranks at once."""

    def __init__(
        self,
        rows: DividedRows,
        number: int,
        orders: Orders,
        link: Link,
        reference: Callable[[Sequence[Any]], tuple[list[int], dict[int, Any], list[int]]],
    ) -> None:
        self._rows = rows
        self._number = number
        self._orders = orders
        self._link = link
        self._reference = reference

    @property
    def notes(self) -> tuple[str, ...]:
        """What a run should know about how its passes were made."""
        return self._rows.notes

    def predict(self, latents: Tensor, sigmas: Tensor, conditioning: Sequence[Any]) -> Tensor:
        """See `Denoiser.predict`."""
        return self.estimate(latents, sigmas, [Row(one) for one in conditioning], lambda: None)

    def estimate(
        self, latents: Tensor, sigmas: Tensor, rows: Sequence[Row], check: Callable[[], None]
    ) -> Tensor:
        """See `BatchDenoiser.estimate`; `check` is asked before the pass, not within it.

        A pass that fails on one rank leaves the others waiting, so it is the end of the group.
        """
        check()
        numbers, new, dropped = self._reference([row.conditioning for row in rows])
        try:
            self._orders.give(
                {
                    "do": "pass",
                    "number": self._number,
                    "shape": tuple(latents.shape),
                    "rows": [
                        (number, row.guidance, row.skipped_layers, row.negative, row.key)
                        for number, row in zip(numbers, rows, strict=True)
                    ],
                    "new": new,
                    "dropped": dropped,
                }
            )
            latents = latents.contiguous()
            self._orders.share(latents)
            self._orders.share(sigmas)
            found = self._rows.estimate(latents, sigmas, rows, lambda: None)
        except Exception as error:  # noqa: BLE001 - the border of a rank
            self._link.fail(as_out_of_memory(error, "denoising"), "a forward pass")
        self._link.passed()
        return found


class Follower:
    """A rank that computes what the leader orders.  Main thread of its process only."""

    def __init__(
        self, orders: Orders, link: Link, splitting: GroupSplitting, modules: Any, device: str
    ) -> None:
        """`modules` is a `families.modules.ModuleSource`."""
        self._orders = orders
        self._link = link
        self._splitting = splitting
        self._modules = modules
        self._device = device
        self._models: dict[int, tuple[BatchDenoiser, Callable[[], None]]] = {}
        self._prompts: dict[int, Any] = {}

    def follow(self) -> None:
        """Take orders until the group is dissolved."""
        while True:
            order = self._orders.take()
            if order["do"] == "stop":
                self._link.finish()
                return
            if order["do"] == "load":
                self._load(order["number"], order["model"], order["plan"])
            elif order["do"] == "release":
                model = self._models.pop(order["number"], None)
                if model is not None:
                    model[1]()
            else:
                self._pass(order)

    def _load(self, number: int, model: ComponentRef, plan: Plan) -> None:
        key = plan.model.parallel
        plan = replace(plan, model=replace(plan.model, device=self._device))
        try:
            self._splitting.use(Split.of_key(key))
            self._splitting.backend(key)
            denoiser, release = self._modules.lease_model(model, plan, lambda: None)
        except Exception as error:  # noqa: BLE001 - the leader raises it
            self._orders.agree(verdict(error))
            return
        others = self._orders.agree(None)
        if any(problem is not None for problem in others):
            release()
            return
        rows = DividedRows(denoiser, Split.of_key(key), model.family)
        self._models[number] = (rows, release)

    def _pass(self, order: Mapping[str, Any]) -> None:
        for number in order["dropped"]:
            self._prompts.pop(number, None)
        for number, prompt in order["new"].items():
            self._prompts[number] = on_device(prompt, self._device)
        try:
            denoiser, _ = self._models[order["number"]]
            latents = torch.empty(order["shape"], device=self._device)  # (rows, channels, ...)
            sigmas = torch.empty(order["shape"][0], device=self._device)  # (rows,)
            self._orders.share(latents)
            self._orders.share(sigmas)
            rows = [
                Row(self._prompts[number], guidance, skipped, negative=negative, key=key)
                for number, guidance, skipped, negative, key in order["rows"]
            ]
            denoiser.estimate(latents, sigmas, rows, lambda: None)
        except Exception as error:  # noqa: BLE001 - the border of a rank
            self._link.fail(as_out_of_memory(error, "denoising"), "a forward pass")
        self._link.passed()


def verdict(error: BaseException) -> dict[str, str]:
    """What another rank has to know of an error."""
    if isinstance(error, Exception):
        error = as_out_of_memory(error, "loading")
    if isinstance(error, InlineError):
        return {"code": error.code, "message": error.message}
    return {"code": "internal", "message": f"{type(error).__name__}: {error}"}


def on_device(value: Any, device: str) -> Any:
    """An encoded prompt with its tensors moved."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, tuple | list):
        return type(value)(on_device(item, device) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changes: dict[str, Any] = {
            field.name: on_device(getattr(value, field.name), device)
            for field in dataclasses.fields(value)
            if field.init
        }
        return replace(value, **changes)
    return value
