"""Names of the U-Net and its ControlNets in original files, and diffusers' names for them.

Where a block is follows from the numbers of levels and of residual blocks a level, so the table is
made for each model from its constructor arguments (as `convert_ldm_unet_checkpoint` of diffusers).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from inline_core.loading.adapters import AdapterTarget
from inline_core.loading.stream import TensorSource

# What checkpoints hold beside the weights: how the model predicts, as empty tensors.
IGNORABLE: Final = ("v_pred", "ztsnr")
_OUTER: Final = MappingProxyType(
    {
        "time_embed.0": "time_embedding.linear_1",
        "time_embed.2": "time_embedding.linear_2",
        "label_emb.0.0": "add_embedding.linear_1",
        "label_emb.0.2": "add_embedding.linear_2",
        "input_blocks.0.0": "conv_in",
        "out.0": "conv_norm_out",
        "out.2": "conv_out",
        "middle_block_out.0": "controlnet_mid_block",
    }
)
_RESIDUAL: Final = MappingProxyType(
    {
        "in_layers.0": "norm1",
        "in_layers.2": "conv1",
        "emb_layers.1": "time_emb_proj",
        "out_layers.0": "norm2",
        "out_layers.3": "conv2",
        "skip_connection": "conv_shortcut",
    }
)
# Convolutions of the hint of a ControlNet: the first, the last, and six between.
_HINTS: Final = 8


@dataclass(frozen=True, slots=True)
class UNetKeys:
    """The table of one model: where its residual blocks, attentions and resamplings are.

    `residual` and `others` are original prefix -> diffusers prefix; below those of `others` both
    layouts have the same names.
    """

    residual: Mapping[str, str]
    others: Mapping[str, str]

    def sources(self, names: Iterable[str], prefix: str) -> dict[str, TensorSource]:
        """Module name -> place in the file, for the original and the diffusers layout alike."""
        bare = (name[len(prefix) :] for name in names if name.startswith(prefix))
        return {
            self.in_diffusers(name): TensorSource(prefix + name)
            for name in bare
            if name not in IGNORABLE
        }

    def ignored(self, prefix: str) -> list[str]:
        """Names in a file with this prefix that may be left over."""
        return [prefix + name for name in IGNORABLE]

    def in_diffusers(self, name: str) -> str:
        """Diffusers' name of a weight; its own names stay as they are."""
        module, _, leaf = name.rpartition(".")
        start, inner = _split(module)
        if start in self.residual and inner in _RESIDUAL:
            return f"{self.residual[start]}.{_RESIDUAL[inner]}.{leaf}"
        if module in self.others:
            return f"{self.others[module]}.{leaf}"
        if start in self.others:
            return f"{self.others[start]}.{inner}.{leaf}"
        return f"{_OUTER[module]}.{leaf}" if module in _OUTER else name

    def adapter_targets(self, parameters: Iterable[str]) -> dict[str, list[AdapterTarget]]:
        """Every spelling of a module, diffusers' and the original's, to the weight it means."""
        outer = {new: old for old, new in _OUTER.items()}
        inner = {new: old for old, new in _RESIDUAL.items()}
        blocks = {new: old for old, new in (*self.residual.items(), *self.others.items())}
        targets: dict[str, list[AdapterTarget]] = {}
        for parameter in parameters:
            module = parameter.removesuffix(".weight")
            if module == parameter:
                continue
            names = {module, outer.get(module, module), blocks.get(module, module)}
            start = ".".join(module.split(".")[: _depth(module)])
            if start in blocks:
                rest = module[len(start) + 1 :]
                names.add(f"{blocks[start]}.{inner.get(rest, rest)}")
            for name in names:
                targets.setdefault(name, []).append(AdapterTarget(parameter))
        return targets


def unet_keys(config: Mapping[str, Any]) -> UNetKeys:
    """The table of a U-Net or a ControlNet with these constructor arguments."""
    levels, blocks = len(config["block_out_channels"]), config["layers_per_block"]
    residual = {"middle_block.0": "mid_block.resnets.0", "middle_block.2": "mid_block.resnets.1"}
    others = {"middle_block.1": "mid_block.attentions.0"}
    step = blocks + 1
    for level in range(levels):
        start = f"down_blocks.{level}"
        for block in range(blocks):
            place = f"input_blocks.{1 + level * step + block}"
            residual[f"{place}.0"] = f"{start}.resnets.{block}"
            others[f"{place}.1"] = f"{start}.attentions.{block}"
        others[f"input_blocks.{(level + 1) * step}.0.op"] = f"{start}.downsamplers.0.conv"
        start = f"up_blocks.{level}"
        for block in range(step):
            place = f"output_blocks.{level * step + block}"
            residual[f"{place}.0"] = f"{start}.resnets.{block}"
            others[f"{place}.1"] = f"{start}.attentions.{block}"
        # Behind the attention, where there is one.
        for position in (1, 2):
            place = f"output_blocks.{level * step + blocks}.{position}.conv"
            others[place] = f"{start}.upsamplers.0.conv"
    others |= {f"zero_convs.{i}.0": f"controlnet_down_blocks.{i}" for i in range(levels * step)}
    others |= _hint_names()
    return UNetKeys(MappingProxyType(residual), MappingProxyType(others))


def _hint_names() -> dict[str, str]:
    start = "controlnet_cond_embedding"
    inner = [f"{start}.blocks.{index}" for index in range(_HINTS - 2)]
    names = [f"{start}.conv_in", *inner, f"{start}.conv_out"]
    return {f"input_hint_block.{2 * index}": name for index, name in enumerate(names)}


def _split(module: str) -> tuple[str, str]:
    """`input_blocks.4.1.proj_in` -> `input_blocks.4.1`, `proj_in`."""
    parts = module.split(".")
    count = 2 if parts[0] == "middle_block" else 3
    return ".".join(parts[:count]), ".".join(parts[count:])


def _depth(module: str) -> int:
    """How many parts of diffusers' name of a module name its block."""
    return 3 if module.startswith("mid_block.") else 4
