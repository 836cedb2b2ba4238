"""Calibration board of ArUco markers, the homography from screen to frame, and rectification of photographs.

Coordinates refer to pixel centres: a marker drawn from pixel 10 on has its corner at 9.5.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

from sorites.apps.studio.cameras import CameraError
from sorites.apps.studio.screen.server import Shown
from sorites.core import ImageU8
from sorites.core.errors import MissingExtra

Matrix = NDArray[np.float64]
COLUMNS, ROWS = 5, 4
# Minimum markers for a homography.
MIN_MARKERS = 6
# Thresholds of warnings: relative difference of opposite sides, width of edges in px, distance of corners in
# px.
MAX_TILT, MAX_EDGE_PX, MAX_OFF_PX = 0.05, 3.0, 1.5


def vision() -> Any:
    """Return OpenCV."""
    try:
        import cv2
    except ImportError as error:
        raise MissingExtra("the studio", "studio") from error
    return cv2


@dataclass(frozen=True)
class Board:
    """The markers on the screen: size, corners by marker in pixels of the board, and the board as PNG."""

    size: tuple[int, int]
    corners: dict[int, Matrix]
    png: bytes


def _dictionary() -> Any:
    cv2 = vision()
    return cv2.aruco.getPredefinedDictionary(cv2.aruco.DICT_4X4_50)


def board(width: int, height: int) -> Board:
    """Draw markers on grey, bright enough to be found and dark enough not to glare."""
    cv2, dictionary = vision(), _dictionary()
    page = np.full((height, width), 190, np.uint8)
    cell = min(width // COLUMNS, height // ROWS)
    side = max(12, cell * 7 // 10 // 6 * 6)
    corners: dict[int, Matrix] = {}
    for number in range(COLUMNS * ROWS):
        column, row = number % COLUMNS, number // COLUMNS
        left = round((column + 0.5) * width / COLUMNS - side / 2)
        top = round((row + 0.5) * height / ROWS - side / 2)
        page[top : top + side, left : left + side] = (
            cv2.aruco.generateImageMarker(dictionary, number, side) * 0.75
        )
        x, y = left - 0.5, top - 0.5
        corners[number] = np.array([[x, y], [x + side, y], [x + side, y + side], [x, y + side]])
    file = io.BytesIO()
    Pillow.fromarray(np.repeat(page[..., None], 3, 2)).save(file, "PNG")
    return Board((width, height), corners, file.getvalue())


@dataclass(frozen=True)
class Found:
    """Result of locating the board in a photograph.

    Attributes:
        matrix: Homography from pixels of the screen to pixels of the frame.
        frame: Width and height of the frame.
        markers: Number of markers found.
    """

    matrix: Matrix
    frame: tuple[int, int]
    markers: int
    off_px: float
    """Median reprojection error of the corners, in pixels of the frame."""
    warnings: tuple[str, ...]


def locate(frame: ImageU8, shown_board: Board, placed: Matrix) -> Found:
    """Find the markers of a board in a photograph; ``placed`` maps pixels of the board to pixels of the
    screen.
    """
    cv2 = vision()
    grey = cv2.cvtColor(np.ascontiguousarray(frame), cv2.COLOR_RGB2GRAY)
    corners = _detect(grey, shown_board)
    if len(corners) < MIN_MARKERS:
        raise CameraError(
            f"only {len(corners)} of {len(shown_board.corners)} markers are in the image:"
            f" {_why_few(grey, len(corners))}"
        )
    ids = sorted(corners)
    in_frame = np.concatenate([corners[id_] for id_ in ids])
    on_screen = apply_homography(placed, np.concatenate([shown_board.corners[id_] for id_ in ids]))
    matrix, _ = cv2.findHomography(on_screen, in_frame, cv2.RANSAC, 3.0)
    if matrix is None:
        raise CameraError(
            "no homography fits the positions of the markers; check that the photograph shows this screen"
        )
    off = float(np.median(np.linalg.norm(apply_homography(matrix, on_screen) - in_frame, axis=1)))
    size = (frame.shape[1], frame.shape[0])
    warnings = _warnings(
        np.asarray(matrix) @ placed, size, shown_board, off, len(corners), _edge_px(grey, corners)
    )
    return Found(np.asarray(matrix, np.float64), size, len(corners), off, tuple(warnings))


def _detect(grey: NDArray[np.uint8], shown_board: Board) -> dict[int, Matrix]:
    cv2 = vision()
    options = cv2.aruco.DetectorParameters()
    options.cornerRefinementMethod = cv2.aruco.CORNER_REFINE_SUBPIX
    options.cornerRefinementWinSize = 4
    corners, ids, _ = cv2.aruco.ArucoDetector(_dictionary(), options).detectMarkers(grey)
    pairs = zip([] if ids is None else ids.ravel().tolist(), corners, strict=False)
    return {
        id_: np.asarray(quad, np.float64).reshape(4, 2) for id_, quad in pairs if id_ in shown_board.corners
    }


def apply_homography(matrix: Matrix, points: Any) -> Matrix:
    """Apply a homography to points (N x 2)."""
    points = np.asarray(points, np.float64)
    homogeneous = np.column_stack([points, np.ones(len(points))]) @ matrix.T
    return np.asarray(homogeneous[:, :2] / homogeneous[:, 2:], np.float64)


def _why_few(grey: NDArray[np.uint8], markers: int) -> str:
    level = float(grey.mean())
    if np.percentile(grey, 99) < 30:
        return "it is too dark. Check that the screen is on and the lens cap is off"
    if level > 235:
        return "it is too bright"
    return (
        "check that the screen is not cut off, out of focus or covered"
        if markers
        else "check that the camera sees the screen, in focus"
    )


def _edge_px(grey: NDArray[np.uint8], corners: dict[int, Matrix]) -> float:
    """Return the median width in pixels of the markers' upper edges, from dark to light."""
    cv2, widths = vision(), []
    for quad in corners.values():
        middle, below = (quad[0] + quad[1]) / 2, (quad[2] + quad[3]) / 2
        inward = (below - middle) / np.linalg.norm(below - middle)
        steps = np.arange(-6, 6.01, 0.25)
        line = middle + steps[:, None] * inward
        values = (
            cv2.remap(grey, line[:, :1].astype(np.float32), line[:, 1:].astype(np.float32), cv2.INTER_LINEAR)
            .ravel()
            .astype(float)
        )
        span = values.max() - values.min()
        slope = np.abs(np.diff(values)).max() / 0.25
        widths.append(span / slope if slope > 0 else np.inf)
    return float(np.median(widths))


def _warnings(
    matrix: Matrix, size: tuple[int, int], shown_board: Board, off: float, markers: int, edge: float
) -> list[str]:
    width, height = shown_board.size
    quad = apply_homography(matrix, np.array([(0, 0), (width, 0), (width, height), (0, height)]) - 0.5)
    warnings = []
    sides = [float(np.linalg.norm(quad[i] - quad[(i + 1) % 4])) for i in range(4)]
    lean = max(abs(math.log(sides[0] / sides[2])), abs(math.log(sides[1] / sides[3])))
    if lean > MAX_TILT:
        warnings.append(
            f"the camera is tilted: opposite sides of the screen differ by {100 * lean:.0f} %. Place it"
            " straight in front of the screen"
        )
    if (quad < 0).any() or (quad > np.array(size) - 1).any():
        warnings.append(
            "the shown area is cut off at the border of the frame. Move the camera back, or zoom out"
        )
    if markers < len(shown_board.corners):
        warnings.append(
            f"{len(shown_board.corners) - markers} of {len(shown_board.corners)} markers were not found"
        )
    if edge > MAX_EDGE_PX * max(1.0, sides[0] / width):
        warnings.append(
            f"the image is out of focus: edges are {edge:.1f} px wide. Focus on the screen, then switch"
            " autofocus off"
        )
    if off > MAX_OFF_PX:
        warnings.append(
            f"corners are {off:.1f} px off a plane: the lens distorts. Use a longer focal length or the"
            " camera's correction"
        )
    return warnings


def drift(before: Matrix, after: Matrix, area: Sequence[float]) -> float:
    """Return the largest shift, in pixels of the frame, of the corners of an area (left, top, width,
    height).
    """
    left, top, width, height = area
    corners = [(left, top), (left + width, top), (left + width, top + height), (left, top + height)]
    return float(
        np.linalg.norm(apply_homography(before, corners) - apply_homography(after, corners), axis=1).max()
    )


# Rectification

QUALITY = 95
_ORIENTATION = 0x0112


def placement(shown: Shown, size: tuple[int, int]) -> Matrix:
    """Return the matrix from pixels of a reference image (width, height) to pixels of the screen that
    showed it.
    """
    wide, high = shown.width / size[0], shown.height / size[1]
    return np.array(
        [[wide, 0, shown.left + (wide - 1) / 2], [0, high, shown.top + (high - 1) / 2], [0, 0, 1.0]]
    )


def rectify(frame: ImageU8, matrix: Matrix, shown: Shown, size: tuple[int, int]) -> ImageU8:
    """Rectify the shown image from a frame, at ``size`` (width, height).

    If the frame has more pixels than the reference, the warp is finer by a whole factor and its blocks are
    averaged. This avoids aliasing and averages noise as in a downscaled image.

    Args:
        frame: The photograph.
        matrix: Homography from pixels of the screen to pixels of the frame.
        shown: Where the image was on the screen.
        size: Size of the result.
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
    """Return the supersampling factor per side at which no pixel of the frame is skipped."""
    corners = apply_homography(whole, [(0, 0), (size[0], 0), (size[0], size[1]), (0, size[1])])
    longest = max(
        np.linalg.norm(corners[0] - corners[1]) / size[0], np.linalg.norm(corners[1] - corners[2]) / size[1]
    )
    return int(min(8, max(1, math.ceil(float(longest) - 0.15))))


def encode_jpeg(image: ImageU8, original: bytes, quality: int = QUALITY) -> bytes:
    """Encode a rectified image as JPEG with the EXIF and colour profile of the photograph."""
    with Pillow.open(io.BytesIO(original), formats=("JPEG",)) as opened:
        exif, profile = opened.getexif(), opened.info.get("icc_profile")
        exif.get_ifd(0x8769)
    exif.pop(_ORIENTATION, None)
    file = io.BytesIO()
    Pillow.fromarray(image).save(file, "JPEG", quality=quality, subsampling=0, exif=exif, icc_profile=profile)
    return file.getvalue()
