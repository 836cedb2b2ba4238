"""A dial of your own: you say what severity means, its unit, and the levels that you publish."""

import numpy as np

from sorites.core import ImageF32, add_shift

TONE = np.array([[0.393, 0.769, 0.189], [0.349, 0.686, 0.168], [0.272, 0.534, 0.131]], np.float32)


@add_shift(family="colour", unit="share of sepia", levels=(0.2, 0.4, 0.6, 0.8, 1.0))
def sepia(image: ImageF32, severity: float, rng: np.random.Generator) -> ImageF32:
    """Draw the colours towards brown, as in an old print; at severity 1 no other colour is left."""
    brown = np.clip(image @ TONE.T, 0, 1)
    return np.clip(image + np.float32(severity) * (brown - image), 0, 1)
