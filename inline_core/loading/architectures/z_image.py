"""Z-Image (base and Turbo) and its union ControlNets."""

from __future__ import annotations

from typing import Final

from inline_core.loading.architectures.architecture import Architecture, Config, rope_axes_thirds
from inline_core.loading.architectures.shapes import Shapes
from inline_core.loading.component import Role

TURBO_CAP_DIM: Final = 2560
TURBO_DIM: Final = 3840
_LAYERS: Final = 30
_REFINERS: Final = 2
_HEAD: Final = ("layers.0.attention.q_norm.weight", "layers.0.attention.norm_q.weight")
_EMBEDDER: Final = ("x_embedder.weight", "all_x_embedder.2-1.weight")


def _config(shapes: Shapes) -> Config:
    dim, patch_channels = shapes.shape(*_EMBEDDER)
    head_dim = shapes.rows(*_HEAD)
    config: Config = {
        "dim": dim,
        "in_channels": patch_channels // 4,  # patches of 2 x 2 (all_patch_size)
        "n_layers": shapes.count("layers."),
        "n_refiner_layers": shapes.count("noise_refiner."),
        "n_heads": dim // head_dim,
        "n_kv_heads": _key_rows(shapes, dim) // head_dim,
        "cap_feat_dim": shapes.columns("cap_embedder.1.weight"),
        "axes_dims": list(rope_axes_thirds(head_dim)),
    }
    if "siglip_embedder.1.weight" in shapes:
        config["siglip_feat_dim"] = shapes.columns("siglip_embedder.1.weight")
    return config


def _key_rows(shapes: Shapes, dim: int) -> int:
    fused = "layers.0.attention.qkv.weight"
    if fused in shapes:
        return (shapes.rows(fused) - dim) // 2
    return shapes.rows("layers.0.attention.to_k.weight")


def _geometry(shapes: Shapes, config: Config) -> dict[str, int]:
    names = ("dim", "in_channels", "cap_feat_dim", "n_layers", "n_refiner_layers")
    return {name: config[name] for name in names} | {"head_dim": shapes.rows(*_HEAD)}


def _variant(_: Shapes, config: Config) -> str:
    # Base and Turbo have the same shapes; Turbo is what nearly everybody has.
    real = config["dim"] == TURBO_DIM and config["cap_feat_dim"] == TURBO_CAP_DIM
    return "turbo" if real else "tiny"


def _problems(shapes: Shapes) -> tuple[str, ...]:
    omni = "siglip_pad_token" in shapes or "siglip_embedder.1.weight" in shapes
    return ("it is the Z-Image Omni variant, which is not supported yet",) if omni else ()


Z_IMAGE: Final = Architecture(
    "z-image",
    "Z-Image",
    Role.DIFFUSION_MODEL,
    (
        ("original", ("cap_embedder.1.weight", "x_pad_token", "x_embedder.weight")),
        ("diffusers", ("all_x_embedder.2-1.weight", "x_pad_token")),
    ),
    class_name="ZImageTransformer2DModel",
    config=_config,
    geometry=_geometry,
    variant=_variant,
    problems=_problems,
    evidence="cap_embedder and x_pad_token keys",
)


def _control_config(shapes: Shapes) -> Config:
    """Which blocks of Z-Image's it hooks into is in no shape.

    The published ones (3, 6 and 15 blocks) spread them evenly over the 30 from block 0.  Those of
    2.0 have no refiner: their first blocks refine the picture too.
    """
    dim, patch_channels = shapes.shape("control_all_x_embedder.2-1.weight")
    head_dim = shapes.rows("control_layers.0.attention.norm_q.weight")
    layers = shapes.count("control_layers.")
    step = max(_LAYERS // max(layers, 1), 1)
    refiners = shapes.count("control_noise_refiner.")
    hooked = "control_noise_refiner.0.after_proj.weight" in shapes  # 2.x
    how = "control_noise_refiner" if hooked else None if refiners else "control_layers"
    return {
        "control_layers_places": list(range(0, step * layers, step)),
        "control_refiner_layers_places": list(range(refiners or _REFINERS)) if how else None,
        "control_in_dim": patch_channels // 4,  # patches of 2 x 2
        "add_control_noise_refiner": how,
        "dim": dim,
        "n_refiner_layers": refiners or _REFINERS,
        "n_heads": dim // head_dim,
        "n_kv_heads": shapes.rows("control_layers.0.attention.to_k.weight") // head_dim,
    }


Z_IMAGE_CONTROLNET: Final = Architecture(
    "z-image",
    "Z-Image",
    Role.CONTROLNET,
    (("diffusers", ("control_all_x_embedder.2-1.weight", "control_layers.*")),),
    class_name="ZImageControlNetModel",
    config=_control_config,
    variant=lambda _, config: "2" if config["add_control_noise_refiner"] else "1",
    evidence="control_layers.* keys",
)
