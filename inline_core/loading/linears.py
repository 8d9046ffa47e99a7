"""A linear layer whose weight stays packed.

Without tensor subclasses: what is packed lies in parameters of bytes, so moving, saving, copying,
mapping and offloading work as for any module, and forward hooks (LoRA) see a plain output.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from inline_core.loading.dequantize import dequantize, rotate
from inline_core.loading.packing import Packing


class PackedLinear(nn.Module):
    """``x @ weight.T + bias`` with a weight that is unpacked while it is used, never stored.

    Takes x (..., in) in any float precision and gives (..., out) in the same.

    The parts are parameters, as diffusers' streamed group offload brings back parameters only, and
    their type is never a float one: float8 and scales are kept as their bytes.  So `.half()` or
    `.to(dtype)` of a parent cannot change them, and `model.dtype` is that of the real weights.
    """

    packed_weight: nn.Parameter
    in_features: int
    out_features: int

    def __init__(self, packing: Packing, parts: Mapping[str, Tensor], bias: Tensor | None) -> None:
        super().__init__()
        self.packing = packing
        self.out_features, self.in_features = packing.shape
        self._dtypes: dict[str, torch.dtype] = {}
        for name, part in parts.items():
            if name == "zero_point" and not bool(part.any()):
                continue  # symmetric, as torchao's weights are
            self._keep(name, part)
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)
        scale = parts.get("scale")
        # One scale for all or one for each row can be applied to the output instead.
        self._scales_output = (
            packing.format in ("int8", "int8_convrot", "fp8")
            and scale is not None
            and scale.numel() in (1, self.out_features)
            and (scale.numel() == 1 or scale.shape[0] == self.out_features)
            and "zero_point" not in self._dtypes
        )

    def _keep(self, name: str, part: Tensor) -> None:
        value = part if name == "weight" or not part.is_floating_point() else _side(part)
        self._dtypes[name] = value.dtype
        if value.is_floating_point():
            value = value.view(torch.uint8)
        self.register_parameter(f"packed_{name}", nn.Parameter(value, requires_grad=False))

    @property
    def parts(self) -> dict[str, Tensor]:
        """The packed weight and its scales, in their own types, where they are now."""
        return {
            name: getattr(self, f"packed_{name}").detach().view(dtype)
            for name, dtype in self._dtypes.items()
        }

    @property
    def weight(self) -> Tensor:
        """The packed bytes, for code that asks where a weight is or whether its type is a float."""
        return self.packed_weight

    @property
    def compute_dtype(self) -> torch.dtype | None:
        """The precision to feed it; diffusers asks this of layers whose weight is no float."""
        return None if self.bias is None else self.bias.dtype

    def dequantized(self, dtype: torch.dtype) -> Tensor:
        """The whole weight, (out, in)."""
        return dequantize(self.packing, self.parts, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """The product, (..., in) -> (..., out), in the precision of x."""
        dtype = _product_dtype(x)
        if self._scales_output:
            return self._scaled_product(x.to(dtype)).to(x.dtype)
        bias = None if self.bias is None else self.bias.to(dtype)
        return functional.linear(x.to(dtype), self.dequantized(dtype), bias).to(x.dtype)

    def _scaled_product(self, x: Tensor) -> Tensor:
        """The numbers are exact in every float type; the scale of a row is applied to its output.

        This rounds less than a scaled weight would and needs no float copy of it.
        """
        parts = self.parts
        scale = parts["scale"].reshape(-1)  # (out,) or (1,)
        weight = parts["weight"].to(x.dtype)  # (out, in)
        if self.packing.format == "int8_convrot":
            x = rotate(x, self.packing.group_size)
        if x.dtype is torch.float16:
            # Unscaled sums would pass 65504.  Powers of two are exact, the rest is at most 1.
            scale, exponent = torch.frexp(scale)
            power = torch.ldexp(torch.ones_like(scale), exponent)
            weight = weight.mul_(power.to(x.dtype).reshape(-1, 1))
        product = functional.linear(x, weight) * scale  # (..., out), float32
        return product if self.bias is None else product + self.bias

    def extra_repr(self) -> str:
        """What is shown of it when a model is printed."""
        block = f" {self.packing.block}" if self.packing.block else ""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}, packing={self.packing.format}{block}"
        )


@functools.cache
def _multiplies_halves() -> bool:
    """Say whether the processor is fast in 16 bits; without AVX-512, float32 is 6 times as fast."""
    return "AVX512" in torch.backends.cpu.get_cpu_capability()


def _product_dtype(x: Tensor) -> torch.dtype:
    """The precision to multiply in: that of x, unless the processor would be slow in it."""
    slow = x.device.type == "cpu" and x.element_size() < 4 and not _multiplies_halves()  # noqa: PLR2004 - 4 bytes
    return torch.float32 if slow else x.dtype


def _side(part: Tensor) -> Tensor:
    """Scales as float32 with at least one dimension; 8-bit ones as they are."""
    if part.element_size() == 1:
        return part
    return part.float().reshape(part.shape or (1,)).contiguous()


def replace_linear(module: nn.Module, name: str, linear: PackedLinear) -> None:
    """Put a packed layer in the place of the linear layer `name` of `module`.

    Raises: ValueError if the sizes differ.
    """
    before = module.get_submodule(name)
    has = (getattr(before, "in_features", None), getattr(before, "out_features", None))
    new = (linear.in_features, linear.out_features)
    if has != new:
        raise ValueError(f"{name} takes and gives {has} features, the packed one {new}")
    owner, _, leaf = name.rpartition(".")
    setattr(module.get_submodule(owner), leaf, linear.train(before.training))
