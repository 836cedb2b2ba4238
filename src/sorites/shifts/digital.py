"""What files and screens do to a picture.

Hendrycks and Dietterich, "Benchmarking Neural Network Robustness to Common Corruptions and Perturbations", ICLR 2019.
"""

from __future__ import annotations

import io
import math

import numpy as np

from sorites.core import Image, Picture, to_image, to_picture
from sorites.shifts.dial import add_dial

LUMINANCE = (
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)
"""Quantisation steps of ITU-T T.81, table K.1."""

CHROMINANCE = (
    (17, 18, 24, 47, 99, 99, 99, 99),
    (18, 21, 26, 66, 99, 99, 99, 99),
    (24, 26, 56, 99, 99, 99, 99, 99),
    (47, 66, 99, 99, 99, 99, 99, 99),
    *((99,) * 8,) * 4,
)
"""Quantisation steps of ITU-T T.81, table K.2."""


def quantisation(quality: float) -> list[list[int]]:
    """libjpeg's tables for a quality in (0, 100], which need not be whole."""
    percent = math.floor(5000 / quality if quality < 50 else 200 - 2 * quality)
    tables = (np.array(LUMINANCE) * percent + 50) // 100, (np.array(CHROMINANCE) * percent + 50) // 100
    return [np.clip(table, 1, 255).ravel().tolist() for table in tables]


def _picture(image: Image, rng: np.random.Generator) -> Picture:
    return to_picture(image)


@add_dial(_picture, family="digital", unit="100 - quality", levels=(75, 82, 85, 90, 93), limit=99)
def jpeg(image: Image, severity: float, picture: Picture) -> Image:
    """JPEG as Pillow writes it at quality 100 - ``severity`` (4:2:0), 25, 18, 15, 10, 7 as published.

    Below 1 the picture of quality 99 is mixed in by ``severity``, so that the dial starts from nothing.
    """
    coded = _coded(picture, 100 - max(severity, 1.0))
    return coded if severity >= 1 else image + (coded - image) * np.float32(severity)


def _coded(picture: Picture, quality: float) -> Image:
    from PIL import Image as pil

    file = io.BytesIO()
    pil.fromarray(picture).save(file, "JPEG", qtables=quantisation(quality))
    with pil.open(file) as opened:
        return to_image(np.asarray(opened))
