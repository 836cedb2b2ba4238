from __future__ import annotations

import numpy as np

from sorites.reports.figures.kernels import sheet


def test_the_sheet_is_a_picture_of_every_kernel() -> None:
    picture = np.asarray(sheet())
    assert picture.ndim == 3
    assert picture.min() < 10
    assert picture.max() == 255
    assert min(picture.shape[:2]) > 500
