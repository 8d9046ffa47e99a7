"""What is known about one architecture: how its files are told and what their shapes say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from inline_core.loading.architectures.shapes import Shapes
from inline_core.loading.component import Role

Config = dict[str, Any]
Layouts = tuple[tuple[str, tuple[str, ...]], ...]
# Part of the geometry of VAEs that work on all frames of a video at once.
ALL_FRAMES: Final = "all_frames"

_NOUNS: Final[Mapping[Role, str]] = {
    Role.DIFFUSION_MODEL: "diffusion model",
    Role.VAE: "VAE",
    Role.AUDIO_VAE: "audio VAE",
    Role.VOCODER: "vocoder",
    Role.VIDEO_DECODER: "video decoder",
    Role.TEXT_ENCODER: "text encoder",
    Role.CLIP_VISION: "vision encoder",
    Role.CONTROLNET: "ControlNet",
    Role.MODEL_PATCH: "model patch",
    Role.UPSCALER: "upscaler",
    Role.LATENT_UPSCALER: "latent upscaler",
}


def _no_config(_: Shapes) -> Config:
    return {}


def whole_numbers(_: Shapes, config: Config) -> dict[str, int]:
    """The usual geometry: every whole number among the constructor arguments."""
    return {name: value for name, value in config.items() if type(value) is int}


def _no_variant(_: Shapes, __: Config) -> str:
    return ""


def _always(_: Shapes) -> bool:
    return True


def _no_problems(_: Shapes) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class Architecture:
    """One class of model.

    `layouts` names the ways its tensors are called and the keys that give each away (`group.*`
    stands for any name that starts so); the first layout whose keys are all there is meant.
    `class_name` is the class of diffusers or transformers, "" where neither has one; `config`
    derives its constructor arguments from shapes, for every layout; what shapes do not tell is left
    to the defaults of the class.  `geometry` picks the sizes that decide what fits together.
    `condition` tells kin apart that have the same names (it may raise MissingTensorError).
    `name` is the name for people; `evidence` are the words for what gave it away (default: the
    keys of the layout); `bare_label` leaves the name out of the label, `words` are a whole
    label without its article.
    """

    family: str
    name: str
    role: Role
    layouts: Layouts
    class_name: str = ""
    config: Callable[[Shapes], Config] = _no_config
    geometry: Callable[[Shapes, Config], dict[str, int]] = whole_numbers
    variant: Callable[[Shapes, Config], str] = _no_variant
    problems: Callable[[Shapes], tuple[str, ...]] = _no_problems
    condition: Callable[[Shapes], bool] = _always
    evidence: str = ""
    bare_label: bool = False
    words: str = ""

    def layout_of(self, shapes: Shapes) -> str | None:
        """The layout that the names show, or None if this is another architecture."""
        found = next((name for name, keys in self.layouts if shapes.has_all(keys)), None)
        return found if found is None or self.condition(shapes) else None

    def evidence_for(self, layout: str) -> str:
        """What gave it away, in words."""
        if self.evidence:
            return self.evidence
        keys = " and ".join(dict(self.layouts)[layout][:2])
        return f"{keys} key" if " and " not in keys else f"{keys} keys"

    @property
    def label(self) -> str:
        """`a Z-Image diffusion model`."""
        if self.words:
            return with_article(self.words)
        noun = _NOUNS[self.role]
        return with_article(noun if self.bare_label else f"{self.name} {noun}")


def with_article(words: str) -> str:
    """`a FLUX.1 VAE`, `an SDXL VAE`: by the sound of the first letter where it is spelled out."""
    spelled = words.startswith(("SD", "SAM", "LTX", "HTML", "XL"))
    return f"an {words}" if spelled or words[:1] in "AEIOaeiou" else f"a {words}"


def ratio_of(part: int, whole: int) -> float | int:
    """`part / whole`, as a whole number where it is one."""
    return part // whole if part % whole == 0 else part / whole


def rope_axes_thirds(head_dim: int) -> tuple[int, int, int]:
    """Rope axes of Lumina-like models: a quarter for the sequence, the rest for height and width.

    Not in any shape; source: the published configs (128 -> 32, 48, 48).
    """
    side = head_dim * 3 // 8 // 2 * 2
    return (head_dim - 2 * side, side, side)


def rope_axes_eighth(head_dim: int) -> tuple[int, int, int]:
    """Rope axes of FLUX-like models: an eighth, then height and width.

    Not in any shape; source: the published configs (128 -> 16, 56, 56).
    """
    side = head_dim * 7 // 16 // 2 * 2
    return (head_dim - 2 * side, side, side)
