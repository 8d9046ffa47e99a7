"""What Wan Fun must be given, and what only it can be given.  Never imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from inline_core.errors import InvalidParam

if TYPE_CHECKING:
    from inline_core.sampling.job import SampleJob
    from inline_core.sampling.values import Latent

CONTROL, SUBJECT, CAMERA, VACE = "control", "subject", "camera", "vace"
KINDS: Final = (CONTROL, CAMERA)
"""What variants of Wan Fun begin with, and what these cannot do without."""

_NODES: Final = {
    CONTROL: "Fun Control Conditioning",
    CAMERA: "Camera Conditioning",
    VACE: "VACE Conditioning",
}
_WHAT: Final = {CONTROL: "the video that it goes by", CAMERA: "the path of its camera"}
_SMALL: Final = "wan-5b"
_WITH_FRAMES: Final = 2  # as many channels as latents: those, and those of given frames


def is_fun(config: Mapping[str, Any]) -> bool:
    """Whether a model has parts that only Fun has."""
    return bool(config.get("ref_channels") or config.get("camera_channels"))


def goes_blind(sizes: Mapping[str, int]) -> bool:
    """Whether a model that CLIP tells of a picture can do without: Fun, which then gets zeros."""
    return is_fun(sizes) or sizes["in_channels"] // sizes["out_channels"] > _WITH_FRAMES


def check_fun(job: SampleJob, geometry: Mapping[str, int]) -> None:
    """Raise InvalidParam unless Fun has what it goes by, in the size of the video."""
    name, kind = job.model.name, job.model.variant.split("-")[0]
    told = {latent.purpose: latent for latent in job.positive.references}
    if kind == CAMERA and job.model.family == _SMALL:
        message = f"{name} is Wan 2.2 5B Fun Camera, which cannot be run here yet"
        raise InvalidParam(message, param="model")
    if kind not in told:
        message = f"{name} is Wan Fun {kind.title()}: wire {_WHAT[kind]} through {_NODES[kind]}"
        raise InvalidParam(message, port="positive")
    for other in sorted(told.keys() - {"", kind, SUBJECT}):
        message = (
            f"{name} is Wan Fun {kind.title()} and does not know what {_NODES[other]} gives: "
            "unwire it"
        )
        raise InvalidParam(message, port="positive")
    if SUBJECT in told and not geometry.get("ref_channels"):
        message = f"{name} has no part for a reference image: wire it as the first frame instead"
        raise InvalidParam(message, port="positive")
    if "" in told and job.model.family == _SMALL:
        message = f"{name} cannot be given a first frame here: wire it as the reference image"
        raise InvalidParam(message, port="positive")
    for latent in told.values():
        _check_size(job, latent, _NODES[kind])


def _check_size(job: SampleJob, shown: Latent, node: str) -> None:
    latent = job.latent
    if any(getattr(shown, side) != getattr(latent, side) for side in ("width", "height", "frames")):
        message = (
            f"{node} is for {shown.width}x{shown.height}, {shown.frames} frames, and the latent "
            f"has {latent.width}x{latent.height}, {latent.frames}: wire the same latent into both"
        )
        raise InvalidParam(message, port="latent")


def check_others(job: SampleJob) -> None:
    """Raise InvalidParam for a model that is not Fun and is given what only Fun knows."""
    for latent in job.positive.references:
        if latent.purpose:
            node = _NODES.get(latent.purpose, _NODES[CONTROL])
            message = (
                f"{job.model.name} is no model for {node}: choose one that is, or unwire that node"
            )
            raise InvalidParam(message, param="model")
