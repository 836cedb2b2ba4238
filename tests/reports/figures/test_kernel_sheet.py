from __future__ import annotations

import numpy as np

from sorites.reports.figures.kernels import sheet


def test_the_sheet_is_a_image_of_every_kernel() -> None:
    image = np.asarray(sheet())
    assert image.ndim == 3
    assert image.min() < 10
    assert image.max() == 255
    assert min(image.shape[:2]) > 500
