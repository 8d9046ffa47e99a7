"""A picture as a frame of a compressed video, which is what video models are trained on."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Final

import av
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

CRF_LIMIT: Final = 51
"""The constant rate factor of H.264 goes from 0 (as it is, here) to this (coarsest)."""


def recompressed(pixels: NDArray[np.uint8], crf: int) -> NDArray[np.uint8]:
    """(height, width, 3) as one frame of H.264, of even sides: an odd last row or column is cut.

    `crf` 0 gives the picture as it is.  Source: `apply_image_conditioning_crf` of diffusers, which
    LTX-2's pipelines do to every first frame.
    """
    if crf == 0:
        return pixels
    height, width = (side // 2 * 2 for side in pixels.shape[:2])
    file = BytesIO()
    with av.open(file, "w", format="mp4") as container:
        options = {"crf": str(crf), "preset": "veryfast", "threads": "1"}
        stream = container.add_stream("libx264", rate=1, options=options)
        stream.width, stream.height = width, height
        cut = np.ascontiguousarray(pixels[:height, :width])
        frame = av.VideoFrame.from_ndarray(cut, format="rgb24").reformat(format="yuv420p")
        container.mux(stream.encode(frame))
        container.mux(stream.encode())
    file.seek(0)
    with av.open(file, "r") as written:
        decoded = next(written.decode(video=0))
        return np.asarray(decoded.to_ndarray(format="rgb24"), np.uint8)
