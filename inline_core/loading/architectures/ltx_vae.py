"""The video VAEs of LTX-Video (0.9 to 0.9.8) and LTX-2."""

from __future__ import annotations

import re
from typing import Final

from inline_core.loading.architectures.architecture import Architecture, Config, Layouts
from inline_core.loading.architectures.shapes import Shapes
from inline_core.loading.component import Role

_PATCH: Final = 4  # pixels a side that the first convolution takes; the class default
_STRIDES: Final = {2: "temporal", 4: "spatial", 8: "spatiotemporal"}
_FLAT: Final = re.compile(r"^(encoder\.down_blocks|decoder\.up_blocks)\.(\d+)\.(.*)$")
_RENAMED: Final = (
    (".res_blocks.", ".resnets."),
    (".conv_shortcut.", ".conv_shortcut.conv."),
    (".norm3.norm.", ".norm3."),
    (".last_time_embedder.", ".time_embedder."),
    (".last_scale_shift_table", ".scale_shift_table"),
)


def with_diffusers_names(shapes: Shapes) -> Shapes:
    """The same shapes under the names of diffusers.

    The original layout numbers everything in one list: a group of residual blocks, a resampling
    convolution, a block that changes the channels.  Source: diffusers' converter.
    """
    places = _places(shapes)
    tensors = {}
    for name, info in shapes.tensors.items():
        match = _FLAT.match(name)
        new = name
        if match:
            new = places[match.group(1), int(match.group(2))] + "." + match.group(3)
        for old, ours in _RENAMED:
            new = new.replace(old, ours)
        tensors[new] = info
    return Shapes(tensors)


def _places(shapes: Shapes) -> dict[tuple[str, int], str]:
    """Where each entry of the two flat lists belongs."""
    places: dict[tuple[str, int], str] = {}
    encoder, decoder = "encoder.down_blocks", "decoder.up_blocks"
    for start in (encoder, decoder):
        kinds = [_kind(shapes, f"{start}.{index}.") for index in range(shapes.count(f"{start}."))]
        block, after_group = 0 if start == encoder else -1, False
        for index, kind in enumerate(kinds):
            middle = index == (len(kinds) - 1 if start == encoder else 0)
            if start == encoder and kind == "group" and after_group:
                block += 1
            if start == decoder and after_group:
                block += 1
            after_group = kind == "group" if start == decoder else True
            place = f"{start}.{block}"
            if kind == "group":
                places[start, index] = f"{start.split('.', 1)[0]}.mid_block" if middle else place
            elif kind == "channels":
                places[start, index] = f"{place}.{'conv_out' if start == encoder else 'conv_in'}"
            else:
                sampler = "downsamplers" if start == encoder else "upsamplers"
                places[start, index] = f"{place}.{sampler}.0"
    return places


def _kind(shapes: Shapes, start: str) -> str:
    if f"{start}res_blocks.0.conv1.conv.weight" in shapes:
        return "group"
    return "channels" if f"{start}conv1.conv.weight" in shapes else "resampling"


def view(shapes: Shapes) -> Shapes:
    """The same shapes, in their order, under the names of diffusers, whatever the layout."""
    original = "encoder.down_blocks.0.res_blocks.0.conv1.conv.weight" in shapes
    return with_diffusers_names(shapes) if original else shapes


def _encoder(shapes: Shapes, *, channels_first: bool) -> Config:
    """`channels_first`: the resampling changes the channels (0.9.5 and later), else a block."""
    count = shapes.count("encoder.down_blocks.")
    starts = [f"encoder.down_blocks.{index}." for index in range(count)]
    sizes = [shapes.rows(f"{start}resnets.0.conv1.conv.weight") for start in starts]
    last = shapes.rows("encoder.mid_block.resnets.0.conv1.conv.weight")
    types = []
    for start, after in zip(starts, [*sizes[1:], last], strict=True):
        whole = f"{start}downsamplers.0.conv.conv.weight"
        types.append(_STRIDES[after // shapes.rows(whole)] if whole in shapes else "conv")
    scaling = tuple(
        shapes.has(f"{start}downsamplers.0.conv.weight", f"{start}downsamplers.0.conv.conv.weight")
        for start in starts
    )
    return {
        "in_channels": shapes.columns("encoder.conv_in.conv.weight") // _PATCH**2,
        "block_out_channels": (*sizes, last) if channels_first else tuple(sizes),
        "layers_per_block": (
            *(shapes.count(f"{start}resnets.") for start in starts),
            shapes.count("encoder.mid_block.resnets."),
        ),
        "spatio_temporal_scaling": scaling,
        "downsample_type": tuple(types),
    }


def _decoder(shapes: Shapes) -> Config:
    """Everything in the order of the encoder, as the classes take it."""
    count = shapes.count("decoder.up_blocks.")
    starts = [f"decoder.up_blocks.{index}." for index in reversed(range(count))]
    middle = "decoder.mid_block."
    samplers = [f"{start}upsamplers.0.conv.conv.weight" for start in starts]
    factors, residuals, channels = [], [], []
    for start, sampler in zip(starts, samplers, strict=True):
        size = shapes.rows(f"{start}resnets.0.conv1.conv.weight")
        # A resampling that starts from more channels than it gives, and adds its input.
        factor = shapes.columns(sampler) // size if sampler in shapes else 1
        factors.append(factor)
        residuals.append(factor > 1)
        channels.append(size * factor)
    return {
        "out_channels": shapes.rows("decoder.conv_out.conv.weight") // _PATCH**2,
        "latent_channels": shapes.columns("decoder.conv_in.conv.weight"),
        "decoder_block_out_channels": tuple(channels),
        "decoder_layers_per_block": tuple(
            shapes.count(f"{start}resnets.") for start in [*starts, middle]
        ),
        "decoder_spatio_temporal_scaling": tuple(sampler in shapes for sampler in samplers),
        "decoder_inject_noise": tuple(
            f"{start}resnets.0.per_channel_scale1" in shapes for start in [*starts, middle]
        ),
        "upsample_residual": tuple(residuals),
        "upsample_factor": tuple(factors),
        "timestep_conditioning": "decoder.time_embedder.timestep_embedder.linear_1.weight"
        in shapes,
    }


def _ltx_video(shapes: Shapes) -> Config:
    named = view(shapes)
    later = named.has(
        *(f"encoder.down_blocks.{index}.downsamplers.0.conv.conv.weight" for index in range(4))
    )
    kind = "LTXVideo095DownBlock3D" if later else "LTXVideoDownBlock3D"
    encoder = _encoder(named, channels_first=later)
    blocks = len(encoder["spatio_temporal_scaling"])
    return encoder | _decoder(named) | {"down_block_types": (kind,) * blocks}


def _ltx_2(shapes: Shapes) -> Config:
    named = view(shapes)
    encoder = _encoder(named, channels_first=True)
    encoder["block_out_channels"] = encoder["block_out_channels"][1:]
    config = encoder | _decoder(named)
    # LTX-2's resampling types of the decoder: from the channels it makes of one.
    return config | {
        "down_block_types": ("LTX2VideoDownBlock3D",) * len(encoder["spatio_temporal_scaling"]),
        "upsample_type": _upsample_types(named, config),
    }


def _upsample_types(shapes: Shapes, config: Config) -> tuple[str, ...]:
    types = []
    factors = config["upsample_factor"]
    for position, index in enumerate(reversed(range(shapes.count("decoder.up_blocks.")))):
        sampler = f"decoder.up_blocks.{index}.upsamplers.0.conv.conv.weight"
        rows, columns = shapes.shape(sampler)[:2]
        types.append(_STRIDES.get(rows * factors[position] // columns, "spatiotemporal"))
    return tuple(types)


def _geometry(_: Shapes, config: Config) -> dict[str, int]:
    kinds = config["downsample_type"]
    scaled = [
        kind
        for kind, scales in zip(kinds, config["spatio_temporal_scaling"], strict=True)
        if scales
    ]
    return {
        "latent_channels": config["latent_channels"],
        "factor": _PATCH * 2 ** sum(kind != "temporal" for kind in scaled),
        "factor_t": 2 ** sum(kind != "spatial" for kind in scaled),
    }


def _is_ltx_2(shapes: Shapes) -> bool:
    # LTX-2 lost the time embedding of 0.9.5; its encoder starts like that one.
    if "encoder.mid_block.resnets.0.conv1.conv.weight" in shapes:
        late = "encoder.down_blocks.0.downsamplers.0.conv.conv.weight" in shapes
    else:
        late = "encoder.down_blocks.1.conv.conv.weight" in shapes
    timed = shapes.has(
        "decoder.time_embedder.timestep_embedder.linear_1.weight",
        "decoder.last_time_embedder.timestep_embedder.linear_1.weight",
    )
    return late and not timed


def _ltx_video_variant(_: Shapes, config: Config) -> str:
    if config["down_block_types"][0] == "LTXVideo095DownBlock3D":
        return "0.9.5"
    return "0.9.1" if config["timestep_conditioning"] else "0.9.0"


_LAYOUTS: Final[Layouts] = (
    ("original", ("encoder.down_blocks.0.res_blocks.0.conv1.conv.weight", "decoder.*")),
    (
        "diffusers",
        ("encoder.down_blocks.0.resnets.0.conv1.conv.weight", "latents_mean", "decoder.*"),
    ),
)
AUTOENCODER_LTX_2: Final = Architecture(
    "autoencoder-kl-ltx-2-video",
    "LTX-2",
    Role.VAE,
    _LAYOUTS,
    class_name="AutoencoderKLLTX2Video",
    config=_ltx_2,
    geometry=_geometry,
    condition=_is_ltx_2,
    evidence="decoder.* keys",
)
AUTOENCODER_LTX_VIDEO: Final = Architecture(
    "autoencoder-kl-ltx-video",
    "LTX-Video",
    Role.VAE,
    _LAYOUTS,
    class_name="AutoencoderKLLTXVideo",
    config=_ltx_video,
    geometry=_geometry,
    variant=_ltx_video_variant,
    evidence="decoder.* keys",
)
