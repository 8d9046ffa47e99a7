"""How a camera moves while a video goes on, as numbers for models that follow it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

CAMERA_NUMBERS: Final = 16
"""Of a frame: focal lengths and middle in pixels, then the 3 x 4 matrix from camera to world."""

_LENGTH: Final = 1.5  # of a whole move of direction 1, at speed 1
_ANGLE: Final = np.pi / 3  # of a whole turn, at speed 1
_SHAPE: Final = 1280 / 720  # of the pictures that the focal lengths are shares of


@dataclass(frozen=True, slots=True)
class Motion:
    """A direction (x to the right, y down, z ahead) and a turn around the line of sight.

    A turn of 1 is a whole one clockwise, as the camera looks.
    """

    label: str
    move: tuple[float, float, float] = (0.0, 0.0, 0.0)
    turn: float = 0.0


MOTIONS: Final[Mapping[str, Motion]] = MappingProxyType(
    {
        "static": Motion("Static"),
        "up": Motion("Up", move=(0.0, -1.0, 0.0)),
        "down": Motion("Down", move=(0.0, 1.0, 0.0)),
        "left": Motion("Left", move=(-1.0, 0.0, 0.0)),
        "right": Motion("Right", move=(1.0, 0.0, 0.0)),
        "in": Motion("In", move=(0.0, 0.0, 2.0)),
        "out": Motion("Out", move=(0.0, 0.0, -2.0)),
        "anticlockwise": Motion("Turn anticlockwise", turn=-1.0),
        "clockwise": Motion("Turn clockwise", turn=1.0),
    }
)
"""The moves of MotionCtrl, with its lengths and its angle of 60 degrees; twice as far ahead."""


def camera_path(motion: Motion, frames: int, speed: float) -> NDArray[np.float64]:
    """Where the camera is in each frame: (frames, 3, 4), from the camera to the first frame's.

    Frame i of n has gone `speed` * i / n of the way.  Source: `get_camera_motion` of MotionCtrl, as
    VideoX-Fun has it.
    """
    gone = speed * np.arange(frames) / frames  # (frames,)
    angles = gone * _ANGLE * motion.turn  # (frames,)
    poses = np.zeros((frames, 3, 4))
    poses[:, 0, 0] = poses[:, 1, 1] = np.cos(angles)
    poses[:, 1, 0] = np.sin(angles)
    poses[:, 0, 1] = -np.sin(angles)
    poses[:, 2, 2] = 1.0
    poses[:, :, 3] = gone[:, None] * _LENGTH * np.asarray(motion.move)
    return poses  # (frames, 3, 4)


def lens(
    size: tuple[int, int], focal: tuple[float, float], middle: tuple[float, float]
) -> tuple[float, float, float, float]:
    """Focal lengths and middle in pixels of a video of `size` (width, height).

    `focal` and `middle` are shares of the width and the height of a 16:9 picture, of which the
    video shows the middle.  Source: `process_pose_params` of CameraCtrl.
    """
    (width, height), (across, down) = size, focal
    if width / height < _SHAPE:
        across *= height * _SHAPE / width
    else:
        down *= width / _SHAPE / height
    return (across * width, down * height, middle[0] * width, middle[1] * height)


def camera_numbers(
    poses: NDArray[np.float64], view: tuple[float, float, float, float]
) -> NDArray[np.float32]:
    """Both as one row of `CAMERA_NUMBERS` a frame, (1, frames, 16)."""
    frames = len(poses)
    views = np.broadcast_to(np.asarray(view), (frames, len(view)))  # (frames, 4)
    rows = np.concatenate([views, poses.reshape(frames, -1)], axis=1)  # (frames, 16)
    return rows[None].astype(np.float32)  # (1, frames, 16)
