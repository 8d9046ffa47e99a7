"""Names of LTX-2's weights in original files, and diffusers' names for them.

Source: the converters of diffusers.  The numbered lists of the video VAE are laid out by
`loading.architectures.ltx_vae`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from inline_core.families.key_table import KeyTable, Modules
from inline_core.loading.architectures import ltx_vae
from inline_core.loading.architectures.shapes import Shapes
from inline_core.loading.header import TensorInfo
from inline_core.loading.stream import TensorSource, prefixed_sources

Rules = Sequence[tuple[str, str]]
_EMBEDDINGS: Final = ("emb.timestep_embedder.linear_1", "emb.timestep_embedder.linear_2", "linear")
_MODULATIONS: Final = (
    ("adaln_single", "time_embed"),
    ("audio_adaln_single", "audio_time_embed"),
    ("prompt_adaln_single", "prompt_adaln"),
    ("audio_prompt_adaln_single", "audio_prompt_adaln"),
    ("av_ca_video_scale_shift_adaln_single", "av_cross_attn_video_scale_shift"),
    ("av_ca_audio_scale_shift_adaln_single", "av_cross_attn_audio_scale_shift"),
    ("av_ca_a2v_gate_adaln_single", "av_cross_attn_video_a2v_gate"),
    ("av_ca_v2a_gate_adaln_single", "av_cross_attn_audio_v2a_gate"),
)
_ATTENTIONS: Final = (
    "attn1",
    "attn2",
    "audio_attn1",
    "audio_attn2",
    "audio_to_video_attn",
    "video_to_audio_attn",
)
_BLOCK: Final[Modules] = {
    f"{attention}.{one}_norm": (f"{attention}.norm_{one}",)
    for attention in _ATTENTIONS
    for one in "qk"
}
TABLE: Final = KeyTable(
    outer={
        "patchify_proj": ("proj_in",),
        "audio_patchify_proj": ("audio_proj_in",),
        **{
            f"{original}.{part}": (f"{ours}.{part}",)
            for original, ours in _MODULATIONS
            for part in _EMBEDDINGS
        },
    },
    groups=(("transformer_blocks", "transformer_blocks", _BLOCK),),
    leaves={
        "scale_shift_table_a2v_ca_video": "video_a2v_cross_attn_scale_shift_table",
        "scale_shift_table_a2v_ca_audio": "audio_a2v_cross_attn_scale_shift_table",
    },
)

_BESIDE: Final = ("video_embeddings_connector.", "audio_embeddings_connector.")
_CONNECTOR: Final = (
    (r"^video_embeddings_connector\.", "video_connector."),
    (r"^audio_embeddings_connector\.", "audio_connector."),
    (r"^text_embedding_projection\.aggregate_embed\.", "text_proj_in."),
    (r"^text_embedding_projection\.(video|audio)_aggregate_embed\.", r"\1_text_proj_in."),
    (r"\.transformer_1d_blocks\.", ".transformer_blocks."),
    (r"\.([qk])_norm\.", r".norm_\1."),
)
_VOCODER: Final = (
    (r"(^|\.)conv_pre\.", r"\1conv_in."),
    (r"(^|\.)conv_post\.", r"\1conv_out."),
    (r"(^|\.)ups\.", r"\1upsamplers."),
    (r"(^|\.)resblocks\.", r"\1resnets."),
)
_UNUSED: Final = "per_channel_statistics."
_STATISTICS: Final = (
    (r"^per_channel_statistics\.mean-of-means$", "latents_mean"),
    (r"^per_channel_statistics\.std-of-means$", "latents_std"),
)


class LTX2Keys:
    """The names of a transformer in one file, which may hold the text connectors, too."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = tuple(names)

    def sources(self, names: Iterable[str], prefix: str) -> dict[str, TensorSource]:
        """Module name -> place in the file, for all layouts."""
        beside = tuple(prefix + name for name in _BESIDE)
        return TABLE.sources([name for name in names if not name.startswith(beside)], prefix)

    def ignored(self, prefix: str) -> list[str]:
        """What belongs to the connectors."""
        beside = tuple(prefix + name for name in _BESIDE)
        return [name for name in self._names if name.startswith(beside)]


def connector_sources(names: Iterable[str], prefix: str) -> dict[str, TensorSource]:
    """Module name -> place in the file, for the text connectors in both layouts."""
    return _renamed(names, prefix, _CONNECTOR)


def vocoder_sources(names: Iterable[str], prefix: str) -> dict[str, TensorSource]:
    """The same for the vocoder."""
    return _renamed(names, prefix, _VOCODER)


def audio_vae_sources(names: Iterable[str], prefix: str) -> dict[str, TensorSource]:
    """The same for the audio VAE."""
    return _renamed(names, prefix, _STATISTICS)


def video_vae_sources(tensors: Mapping[str, TensorInfo], prefix: str) -> dict[str, TensorSource]:
    """The same for the video VAE; statistics that no decoder needs are left out."""
    names = [name for name in tensors if name.startswith(prefix)]
    bare = Shapes({name[len(prefix) :]: tensors[name] for name in names})
    ours = ltx_vae.view(bare).tensors
    found = {
        _in_diffusers(name, _STATISTICS): TensorSource(place)
        for name, place in zip(ours, names, strict=True)
    }
    return {name: source for name, source in found.items() if not name.startswith(_UNUSED)}


def _renamed(names: Iterable[str], prefix: str, rules: Rules) -> dict[str, TensorSource]:
    found = prefixed_sources(names, prefix)
    return {_in_diffusers(name, rules): source for name, source in found.items()}


def _in_diffusers(name: str, rules: Rules) -> str:
    for pattern, new in rules:
        name = re.sub(pattern, new, name)
    return name
