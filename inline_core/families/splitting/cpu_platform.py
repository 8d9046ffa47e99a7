"""Lets xDiT run on processors over gloo, which its release 0.7 does not foresee.

No parallel algorithm is touched: only what asks for an accelerator when the package is imported.
For processes that are told to compute on the CPU; with a GPU nothing of this is ever called.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from typing import Any

import torch


def prepare() -> None:
    """Make `xfuser` importable without an accelerator; call it before its first import."""
    # diffusers divides by the number of accelerators.
    torch.accelerator.device_count = lambda: 1
    spec = importlib.util.find_spec("xfuser")
    assert spec is not None
    # The package without its __init__, which imports every pipeline.
    sys.modules["xfuser"] = importlib.util.module_from_spec(spec)
    envs: Any = importlib.import_module("xfuser.envs")
    envs.get_device_version = lambda: None
    envs.get_torch_distributed_backend = lambda: "gloo"
    # It looks for CUDA before it looks for the package.
    envs.PACKAGES_CHECKER.packages_info["has_long_ctx_attn"] = True
    # What asks for triton itself, and does without, comes first.
    importlib.import_module("torch._dynamo")
    importlib.import_module("diffusers.pipelines.pipeline_utils")
    with _triton_stand_in():
        importlib.import_module("xfuser.core.fast_attention")
        usp: Any = importlib.import_module("xfuser.model_executor.layers.usp")
    usp.PROCESS_GROUP = importlib.import_module("yunchang.globals").PROCESS_GROUP
    _ring_attention()


class _triton_stand_in:  # noqa: N801 - used like a function
    """A module of the name while xDiT is imported: it decorates kernels that never run here."""

    def __enter__(self) -> None:
        self._before = {name: sys.modules.get(name) for name in ("triton", "triton.language")}
        triton: Any = types.ModuleType("triton")
        triton.language = types.ModuleType("triton.language")
        triton.language.constexpr = object
        triton.jit = lambda function=None, **_: function or (lambda kernel: kernel)
        sys.modules |= {"triton": triton, "triton.language": triton.language}

    def __exit__(self, *_: object) -> None:
        for name, module in self._before.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module


def _ring_attention() -> None:
    """The flash kernel of processors under the name that ring attention may use."""
    attention: Any = importlib.import_module("xfuser.core.distributed.attention_backend")
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu  # noqa: SLF001

    def attend(
        query: Any,
        key: Any,
        value: Any,
        dropout_p: float,
        is_causal: bool,
        attention_kwargs: object = None,
    ) -> tuple[Any, Any]:
        del attention_kwargs
        output, sums = flash(query, key, value, dropout_p=dropout_p, is_causal=is_causal)
        return output, sums

    kind = attention.AttentionBackendType.SDPA_FLASH
    attention.register_attention_function(kind)(attend)
