"""One-click nodes as families offer them: names, ports and defaults.  `nodes` makes them.

Plain data without torch, so that a family's folder is all that a new family needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from inline_core.loading.component import Patch
from inline_core.media.values import Image

Output = Literal["image", "video", "audio", "video+audio"]
# What can be wired beside the prompt: `image` starts from a picture, `mask` makes a part of it
# anew, `references` are looked at, `inpaint` gives picture and mask to a model trained for that.
# `control` guides it with a ControlNet; `first_frame` and `last_frame` begin and end a video, which
# with `optional_frame` need not be given (`Offer.between`: what lies behind them); keyframes are
# held to without being a part of the video.
Takes = Literal[
    "image",
    "mask",
    "references",
    "inpaint",
    "control",
    "first_frame",
    "last_frame",
    "optional_frame",
    "first_keyframe",
    "last_keyframe",
]
# The key of the choice whether a video is made with its sound.
WITH_SOUND: Final = "generate_audio"
Resize = Callable[[Image], Image]


def unchanged(image: Image) -> Image:
    """The picture as it is."""
    return image


@dataclass(frozen=True, slots=True)
class Choice:
    """A param of its own that goes to the text encoder: clip skip, lyrics, beats per minute.

    `default` decides the kind (bool, int, float or str); `options` are what can be picked, as
    values or as (value, label).
    """

    key: str
    default: bool | float | str
    label: str = ""
    minimum: float | None = None
    maximum: float | None = None
    step: float | None = None
    options: tuple[str | tuple[str, str], ...] = ()
    multiline: bool = False
    advanced: bool = False


@dataclass(frozen=True, slots=True)
class Told:
    """A variant that the user may say a model is, as files of it do not tell.

    `of` is what its files tell ("": nothing that rules it out).
    """

    value: str
    label: str
    of: str = ""


@dataclass(frozen=True, slots=True)
class Absent:
    """A port or a param that clients know and this release cannot serve: refused, not ignored.

    `kind` is the kind of the port ("": a param, which takes the name of a file of `category`, or is
    a switch that is off where there is none).
    """

    key: str
    label: str
    kind: str = ""
    category: str = ""


@dataclass(frozen=True, slots=True)
class Offer:
    """One one-click node of a family.

    `type` and `title` are those of the node.  `variants` are the variants of the diffusion model it
    is for, the first being preferred (none: all); `told` are variants that the user may pick where
    files do not tell, and `assumed` is the one that holds without a pick.
    `guidance` says whether that param is the scale of classifier-free guidance (`cfg`, 1: none),
    what is added to 1 for that scale (`above_one`, 0: none), or an input of the model (`input`),
    which then has `cfg` as a param too; for the variants in `guided_inside` it is an input and
    there is no other guidance.  `negative` adds a negative prompt.
    Steps, guidance, sizes and frames come from `FamilyRules.defaults`, by variant; `sampler` and
    `scheduler` are the usual ones.  `size` is the smallest and largest side, `step` that of its
    param (0: the multiple of the family); with `sized_by_reference` 0 is that of the first picture.
    `reference` brings a reference image to the size the VAE gets, `picture` to the one the text
    encoder gets (None: it looks at none); at most `references` are taken.  `first_frame` is done to
    a frame that a video begins with, `between` is what lies behind it (see the Frames Conditioning
    node); the first of `keyframes` is stretched to the video's shape, or cut as the one after it.
    `choices` are further params.  `fps` of a video is a param
    where `fps_free`, else fixed.  `stated` are steps and guidance that the node states as numbers
    of its own, where they are not left to the model (`stated_by_variant`: clients take those of the
    picked model instead);
    `absent` is what it knows and refuses, and `idle` are params that only matter with that.
    References are wired to `references_port`; ports in
    `port_order` are shown in that order, behind the others.
    With `experts` a second model may be picked, which is used below `boundary` (a sigma); with
    `guiding` one that makes the estimates that guidance leads away from.
    With `duration` (seconds: usual, least, most, step) a video is that long instead of a number of
    frames.  `schedules` are the sigmas of choices of the param `mode` that leave nothing to steps
    and guidance.  `param_order` are params in the order they are shown, before the others, and
    `advanced` those that are shown on demand.  `steps_key` is the param of the steps, which with
    `counts_last` count the end too, where nothing is left to do.
    `labels` are those of params and ports that say something of their own here, by key;
    `control_key` is the param that says how strong a ControlNet is.
    `guided` are patches that the model gets when it is guided, `options` what its text encoder is
    always told.
    """

    type: str
    title: str
    output: Output = "image"
    takes: tuple[Takes, ...] = ()
    variants: tuple[str, ...] = ()
    told: tuple[Told, ...] = ()
    assumed: str = ""
    guidance: Literal["cfg", "above_one", "input", "none"] = "cfg"
    guided_inside: tuple[str, ...] = ()
    negative: bool = True
    sampler: str = "euler"
    scheduler: str = "simple"
    size: tuple[int, int] = (64, 4096)
    step: int = 0
    sized_by_reference: bool = True
    references: int = 0
    reference: Resize = unchanged
    picture: Resize | None = None
    first_frame: Resize = unchanged
    between: Literal["grey", "nothing"] = "grey"
    keyframes: Literal["stretched", "cut"] = "stretched"
    choices: tuple[Choice, ...] = ()
    duration: tuple[float, float, float, float] | None = None
    schedules: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    param_order: tuple[str, ...] = ()
    advanced: tuple[str, ...] = ()
    steps_key: str = "steps"
    counts_last: bool = False
    fps: float = 0.0
    fps_free: bool = False
    usual: Mapping[str, Any] = field(default_factory=dict)
    stated: Mapping[str, float] = field(default_factory=dict)
    stated_by_variant: bool = False
    absent: tuple[Absent, ...] = ()
    idle: tuple[Choice, ...] = ()
    references_port: str = "image"
    port_order: tuple[str, ...] = ()
    guided: tuple[Patch, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    control_key: str = "control_strength"
    experts: bool = False
    guiding: bool = False
    boundary: float = 0.875
    options: Mapping[str, Any] = field(default_factory=dict)

    def guidance_of(self, variant: str) -> str:
        """What the param `guidance` is for a model of a variant."""
        return "input" if variant in self.guided_inside else self.guidance
