"""Paths of cameras: where each move ends, what a lens is in pixels."""

from __future__ import annotations

import numpy as np
import pytest

from inline_core.sampling.camera_paths import (
    CAMERA_NUMBERS,
    MOTIONS,
    camera_numbers,
    camera_path,
    lens,
)

FRAMES = 81
LAST = 80 / 81  # of the way, in the last frame

MOVES = {
    "static": (0.0, 0.0, 0.0),
    "up": (0.0, -1.5, 0.0),
    "down": (0.0, 1.5, 0.0),
    "left": (-1.5, 0.0, 0.0),
    "right": (1.5, 0.0, 0.0),
    "in": (0.0, 0.0, 3.0),
    "out": (0.0, 0.0, -3.0),
    "anticlockwise": (0.0, 0.0, 0.0),
    "clockwise": (0.0, 0.0, 0.0),
}


@pytest.mark.parametrize("motion", list(MOTIONS))
@pytest.mark.parametrize("speed", [0.0, 1.0, 2.5])
def test_it_begins_at_rest_and_goes_evenly(motion: str, speed: float) -> None:
    poses = camera_path(MOTIONS[motion], FRAMES, speed)
    assert poses.shape == (FRAMES, 3, 4)
    assert np.array_equal(poses[0], np.eye(3, 4))
    assert np.allclose(poses[-1, :, 3], np.array(MOVES[motion]) * speed * LAST)
    assert np.allclose(poses[27, :, 3], np.array(MOVES[motion]) * speed / 3)
    # Rotations keep lengths and do not mirror.
    assert np.allclose(np.linalg.det(poses[:, :, :3]), 1.0)
    assert np.allclose(poses[:, 2, :3], [0.0, 0.0, 1.0])


@pytest.mark.parametrize(("motion", "side"), [("clockwise", 1.0), ("anticlockwise", -1.0)])
def test_turns_are_60_degrees_at_the_end(motion: str, side: float) -> None:
    poses = camera_path(MOTIONS[motion], FRAMES, 1.0)
    angle = side * np.pi / 3 * LAST
    # The camera's right goes down where it turns clockwise; y points down.
    assert np.allclose(poses[-1, :, 0], [np.cos(angle), np.sin(angle), 0.0])
    assert np.allclose(poses[-1, :, 1], [-np.sin(angle), np.cos(angle), 0.0])


def test_a_lens_of_the_shape_it_was_measured_in_stays() -> None:
    assert lens((1280, 720), (0.5, 0.8), (0.25, 0.75)) == pytest.approx((640, 576, 320, 540))


def test_a_lens_shows_the_middle_of_other_shapes() -> None:
    # A square shows the middle 720 x 720 of 1280 x 720: as many pixels across as down.
    assert lens((720, 720), (0.5, 0.5), (0.5, 0.5)) == pytest.approx((640, 360, 360, 360))
    # A wider one shows the middle lines of 1280 x 720.
    assert lens((1280, 360), (0.5, 0.5), (0.5, 0.5)) == pytest.approx((640, 360, 640, 180))


def test_a_row_has_the_lens_and_the_place() -> None:
    poses = camera_path(MOTIONS["in"], 5, 1.0)
    rows = camera_numbers(poses, (1.0, 2.0, 3.0, 4.0))
    assert rows.shape == (1, 5, CAMERA_NUMBERS)
    assert rows.dtype == np.float32
    assert np.allclose(rows[0, 2, :4], [1.0, 2.0, 3.0, 4.0])
    assert np.allclose(rows[0, 2, 4:], poses[2].ravel())
