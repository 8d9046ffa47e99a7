"""xDiT (the package `xfuser`): Ulysses and ring attention in its own forward passes.

A loaded network becomes one of xDiT's by its class and the processors of its attention, as the
constructors of xDiT's wrappers do it; so weights of any precision, and adapters, stay as they are.
Checked with xfuser 0.7.0.
"""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import torch
import torch.distributed as dist

from inline_core.devices.split import Split
from inline_core.errors import InvalidParam
from inline_core.families.splitting import cpu_platform
from inline_core.families.splitting.backend import DividedNetwork, indivisible
from inline_core.families.splitting.pipefusion import PipelinedNetwork

_MODULES: Final = "xfuser.model_executor.models.transformers."
# Z-Image fills captions and pictures up to multiples of so many tokens.
_Z_IMAGE_MULTIPLE: Final = 32
_AMPERE: Final = (8, 0)

Misfit = Callable[[Sequence[Any], Mapping[str, Any]], str]
Processors = Iterator[tuple[Any, Any]]
"""Attention modules and the processors they get."""


@dataclass(frozen=True, slots=True)
class _Wrapped:
    """How networks of one class become xDiT's.

    `tokens` counts what has to be divided, `masks` names arguments that its attention does not look
    at.  `cut` says that it fills its one sequence up at the end, which attention can leave out.
    """

    module: str
    wrapper: str
    processors: Callable[[Any, Any], Processors]
    tokens: Callable[[Any, Sequence[Any], Mapping[str, Any]], dict[str, int]]
    masks: tuple[str, ...] = ()
    cut: bool = False


class XditBackend:
    """Implements `ParallelBackend` with xDiT."""

    def __init__(self, split: Split, device: str, local_rank: int) -> None:
        self.split = split
        self._device = device
        self._local_rank = local_rank

    def join(self) -> None:
        """See `ParallelBackend.join`; torch's own process group must be there."""
        split, backend = self.split, dist.get_backend()
        if self._device == "cpu" and "xfuser" not in sys.modules:
            cpu_platform.prepare()
        groups = importlib.import_module("xfuser.core.distributed")
        groups.init_distributed_environment(
            world_size=dist.get_world_size(),
            rank=dist.get_rank(),
            local_rank=self._local_rank,
            backend=backend,
        )
        groups.initialize_model_parallel(
            # The rows of a pass are divided here, not by its wrappers, of which not all do that.
            data_parallel_degree=split.cfg,
            sequence_parallel_degree=split.sequence,
            ulysses_degree=split.ulysses,
            ring_degree=split.ring,
            pipeline_parallel_degree=split.pipefusion,
            backend=backend,
        )
        groups.initialize_runtime_state(_pipeline(split), self._config())

    def leave(self) -> None:
        """See `ParallelBackend.leave`: xDiT's groups are those of the process."""
        importlib.import_module("xfuser.core.distributed.parallel_state").destroy_model_parallel()

    @property
    def stage(self) -> tuple[int, int]:
        """See `ParallelBackend.stage`."""
        pipe = importlib.import_module("xfuser.core.distributed").get_pp_group()
        return pipe.rank_in_group, pipe.world_size

    def divide(self, network: Any) -> DividedNetwork | PipelinedNetwork:
        """See `ParallelBackend.divide`."""
        if self.split.pipefusion > 1:
            return PipelinedNetwork(network, self.split)
        wrapped = WRAPPED.get(type(network).__name__)
        if wrapped is None:
            message = f"xDiT does not divide a {type(network).__name__}: leave INLINE_PARALLEL out"
            raise InvalidParam(message)
        module = importlib.import_module(_MODULES + wrapped.module)
        classes = {False: type(network), True: getattr(module, wrapped.wrapper)}
        divided = dict(wrapped.processors(network, module))
        whole = {attention: attention.processor for attention in divided}

        def use(parallel: bool) -> None:
            network.__class__ = classes[parallel]
            for attention, processor in (divided if parallel else whole).items():
                attention.processor = processor

        adapt = self._adapt(network, wrapped, module)
        return DividedNetwork(network, use, self._misfit(network, wrapped), adapt)

    def _misfit(self, network: Any, wrapped: _Wrapped) -> Misfit:
        if wrapped.cut and self.split.ring == 1:
            return lambda _, __: ""

        def misfit(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
            for name in wrapped.masks:
                if kwargs.get(name) is not None:
                    return "prompts of different lengths share the pass"
            return indivisible(wrapped.tokens(network, args, kwargs), self.split.sequence)

        return misfit

    def _adapt(
        self, network: Any, wrapped: _Wrapped, module: Any
    ) -> Callable[[dict[str, Any]], dict[str, Any]]:
        if wrapped.cut:
            if not isinstance(module.USP, _CutAttention):
                module.USP = _CutAttention(module.USP)

            def measure(kwargs: dict[str, Any]) -> dict[str, Any]:
                module.USP.tokens = sum(wrapped.tokens(network, (), kwargs).values())
                return kwargs

            return measure
        if wrapped.module != "transformer_flux":
            return dict

        def adapt(kwargs: dict[str, Any]) -> dict[str, Any]:
            # Its blocks of one stream ask how long the text before the picture is.
            state = importlib.import_module("xfuser.core.distributed").get_runtime_state()
            text = kwargs["encoder_hidden_states"].shape[1]
            state.max_condition_sequence_length = text // self.split.sequence
            return kwargs

        return adapt

    def _config(self) -> Any:
        """What xDiT's engine is told.  Ring attention needs a kernel that gives its sums."""
        config = importlib.import_module("xfuser.config.config")
        split, world = self.split, dist.get_world_size()
        attention = None
        if self._device == "cpu":
            attention = "sdpa_flash" if split.ring > 1 else "sdpa"
        elif torch.cuda.get_device_capability() < _AMPERE:
            # xDiT would take cuDNN's, which older GPUs do not have.
            attention = "sdpa_efficient" if split.ring > 1 else "sdpa"
        parallel = config.ParallelConfig(
            dp_config=config.DataParallelConfig(split.cfg, dit_parallel_size=world),
            sp_config=config.SequenceParallelConfig(
                split.ulysses, split.ring, dit_parallel_size=world
            ),
            pp_config=config.PipeFusionParallelConfig(
                split.pipefusion,
                split.pieces if split.pipefusion > 1 else 1,
                None,
                dit_parallel_size=world,
            ),
            tp_config=config.TensorParallelConfig(dit_parallel_size=world),
            fs_config=config.FullyShardConfig(dit_parallel_size=world),
            vae_config=config.VaeParallelConfig(),
            world_size=world,
            dit_parallel_size=world,
        )
        runtime = config.RuntimeConfig(warmup_steps=split.warmup, attention_backend=attention)
        return config.EngineConfig(
            config.ModelConfig(""), runtime, parallel, config.FastAttnConfig()
        )


class _CutAttention:
    """xDiT's attention of all ranks, without what fills the sequence up at its end."""

    def __init__(self, attention: Callable[..., Any]) -> None:
        self._attention = attention
        self.tokens = 0

    def __call__(self, *args: Any, attention_kwargs: Any = None, **kwargs: Any) -> Any:
        told = {**(attention_kwargs or {}), "valid_kv_len": self.tokens}
        return self._attention(*args, attention_kwargs=told, **kwargs)


def _pipeline(split: Split) -> Any:
    """What the runtime state looks at of a pipeline: the heads, which our policy has checked."""
    told = types.SimpleNamespace(num_attention_heads=split.ulysses)
    return types.SimpleNamespace(transformer=types.SimpleNamespace(config=told))


def _of_blocks(*parts: tuple[str, str, str]) -> Callable[[Any, Any], Processors]:
    """Processors by (list of blocks, name of its attention, class of the processor)."""

    def processors(network: Any, module: Any) -> Processors:
        for blocks, attention, processor in parts:
            for block in getattr(network, blocks):
                yield getattr(block, attention), getattr(module, processor)()

    return processors


def _of_wan(network: Any, module: Any) -> Processors:
    kind = module.xFuserWanAttnProcessor
    # What its constructor adds.
    network.attention_kwargs = None
    for block in network.blocks:
        yield block.attn1, kind()
        # Every rank has all of the text.
        yield block.attn2, kind(use_ulysses_parallel_attention=False, is_cross_attention=True)


def _z_image_tokens(*_: Any) -> dict[str, int]:
    return {"picture": _Z_IMAGE_MULTIPLE}


def _joint_tokens(_: Any, __: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, int]:
    return {
        "picture": kwargs["hidden_states"].shape[1],
        "prompt": kwargs["encoder_hidden_states"].shape[1],
    }


def _krea_tokens(_: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, int]:
    return {"prompt and picture": sum(_joint_tokens(_, args, kwargs).values())}


def _wan_tokens(network: Any, _: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, int]:
    count = 1
    sizes = kwargs["hidden_states"].shape[2:]
    for size, patch in zip(sizes, network.config.patch_size, strict=True):
        count *= size // patch
    return {"video": count}


WRAPPED: Final[Mapping[str, _Wrapped]] = MappingProxyType(
    {
        "ZImageTransformer2DModel": _Wrapped(
            "transformer_z_image",
            "xFuserZImageTransformer2DWrapper",
            _of_blocks(
                ("noise_refiner", "attention", "xFuserZSingleStreamAttnProcessor"),
                ("context_refiner", "attention", "xFuserZSingleStreamAttnProcessor"),
                ("layers", "attention", "xFuserZSingleStreamAttnProcessor"),
            ),
            _z_image_tokens,
        ),
        "FluxTransformer2DModel": _Wrapped(
            "transformer_flux",
            "xFuserFlux1Transformer2DWrapper",
            _of_blocks(
                ("transformer_blocks", "attn", "xFuserFluxAttnProcessor"),
                ("single_transformer_blocks", "attn", "xFuserFluxAttnProcessor"),
            ),
            _joint_tokens,
        ),
        "Flux2Transformer2DModel": _Wrapped(
            "transformer_flux2",
            "xFuserFlux2Transformer2DWrapper",
            _of_blocks(
                ("transformer_blocks", "attn", "xFuserFlux2AttnProcessor"),
                ("single_transformer_blocks", "attn", "xFuserFlux2ParallelSelfAttnProcessor"),
            ),
            _joint_tokens,
        ),
        "QwenImageTransformer2DModel": _Wrapped(
            "transformer_qwen",
            "xFuserQwenImageTransformerWrapper",
            _of_blocks(("transformer_blocks", "attn", "xFuserQwenDoubleStreamAttnProcessor")),
            _joint_tokens,
            ("encoder_hidden_states_mask",),
        ),
        "WanTransformer3DModel": _Wrapped(
            "transformer_wan", "xFuserWanTransformer3DWrapper", _of_wan, _wan_tokens
        ),
        "Krea2Transformer2DModel": _Wrapped(
            "transformer_krea2",
            "xFuserKrea2Transformer2DWrapper",
            _of_blocks(("transformer_blocks", "attn", "xFuserKrea2AttnProcessor")),
            _krea_tokens,
            ("encoder_attention_mask",),
            cut=True,
        ),
    }
)
