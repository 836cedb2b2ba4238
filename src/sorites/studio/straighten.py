"""From the frame of a camera to the picture that the screen showed: warped once by Lanczos, cut, at the size of the reference."""

from __future__ import annotations

import io
import math

import numpy as np
from PIL import Image as Pillow

from sorites.core import Picture
from sorites.studio.markers import Matrix, moved, vision
from sorites.studio.screen.server import Shown

QUALITY = 95
_ORIENTATION = 0x0112


def placement(shown: Shown, size: tuple[int, int]) -> Matrix:
    """Return the matrix that takes pixels of a reference picture (width, height) to pixels of the screen that showed it."""
    wide, high = shown.width / size[0], shown.height / size[1]
    return np.array([[wide, 0, shown.left + (wide - 1) / 2], [0, high, shown.top + (high - 1) / 2], [0, 0, 1.0]])


def straightened(frame: Picture, matrix: Matrix, shown: Shown, size: tuple[int, int]) -> Picture:
    """Cut the shown picture out of a frame, at ``size`` (width, height). ``matrix`` takes the screen's pixels to the frame's.

    Where the frame has more pixels than the reference, the warp is finer by a whole factor and its blocks are averaged, so that
    nothing is aliased and noise is averaged as in a picture that is scaled down.
    """
    cv2 = vision()
    whole = matrix @ placement(shown, size)
    fine = _factor(whole, size)
    finer = np.array([[1 / fine, 0, (1 / fine - 1) / 2], [0, 1 / fine, (1 / fine - 1) / 2], [0, 0, 1.0]])
    flags = cv2.INTER_LANCZOS4 | cv2.WARP_INVERSE_MAP
    large = cv2.warpPerspective(
        frame, whole @ finer, (size[0] * fine, size[1] * fine), flags=flags, borderMode=cv2.BORDER_REPLICATE
    )
    return np.asarray(large if fine == 1 else cv2.resize(large, size, interpolation=cv2.INTER_AREA), np.uint8)


def _factor(whole: Matrix, size: tuple[int, int]) -> int:
    """Return how many pixels of the warp stand for one of the reference, per side: no pixel of the frame is passed over."""
    corners = moved(whole, [(0, 0), (size[0], 0), (size[0], size[1]), (0, size[1])])
    longest = max(np.linalg.norm(corners[0] - corners[1]) / size[0], np.linalg.norm(corners[1] - corners[2]) / size[1])
    return int(min(8, max(1, math.ceil(float(longest) - 0.15))))


def encoded(picture: Picture, original: bytes, quality: int = QUALITY) -> bytes:
    """Return a straightened picture as a JPEG file that keeps the EXIF and the colour profile of the photograph."""
    with Pillow.open(io.BytesIO(original), formats=("JPEG",)) as opened:
        exif, profile = opened.getexif(), opened.info.get("icc_profile")
        exif.get_ifd(0x8769)
    exif.pop(_ORIENTATION, None)
    file = io.BytesIO()
    Pillow.fromarray(picture).save(file, "JPEG", quality=quality, subsampling=0, exif=exif, icc_profile=profile)
    return file.getvalue()
