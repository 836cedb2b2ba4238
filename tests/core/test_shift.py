"""A shift gives an image like the one it was given, or its mistake is said."""

from __future__ import annotations

import numpy as np
import pytest

from sorites.core import ImageF32, Shift


@pytest.mark.parametrize(
    ("result", "came"),
    [
        (np.zeros((4, 8, 3), np.float32), r"\(4, 8, 3\) of float32"),
        (np.zeros((8, 8, 3), np.uint8), r"\(8, 8, 3\) of uint8"),
        (np.zeros((8, 8), np.float32), r"\(8, 8\) of float32"),
        ([1, 2], "list"),
    ],
)
def test_a_result_of_another_shape_or_kind_is_refused(result: object, came: str) -> None:
    image: ImageF32 = np.zeros((8, 8, 3), np.float32)
    shift = Shift("odd", lambda image, severity, rng: result, "digital", "steps", levels=(1.0,))  # type: ignore[arg-type,return-value]
    with pytest.raises(TypeError, match=f"the shift odd returned {came}"):
        shift(image, 1.0, np.random.default_rng(0))
    assert shift(image, 0, np.random.default_rng(0)).shape == (8, 8, 3)
